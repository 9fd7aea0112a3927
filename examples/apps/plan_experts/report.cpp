// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "outcome_table.hpp"
#include "report_craft.hpp"
#include "report_gem.hpp"
#include "report_parts.hpp"
#include "report_style.hpp"

namespace examples {
namespace {

using namespace report_parts;

// ---- Text -------------------------------------------------------------------------------------

/// Returns the length of the UTF-8 sequence at the start of `text`; 0 if XML does not allow it.
[[nodiscard]] std::size_t character_length(std::string_view text) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned const first = byte(0);
  if (first < 0x80) {
    return first >= 0x20 && first != 0x7f ? 1 : 0;
  }
  std::size_t const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return 0;
  }
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0xa0, 0x800, 0x10000};  // no C1 controls
  bool const excluded = (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff;
  return code >= least[length] && code <= 0x10ffff && !excluded ? length : 0;
}

/// Escapes a text for an element or an attribute; characters that XML cannot hold become U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t const length = character_length(text);
    switch (text.front()) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

/// Returns the name of a file of loads without its folders.
[[nodiscard]] std::string_view short_name(std::string_view file) {
  return file == "-" ? "the standard input" : file.substr(file.find_last_of('/') + 1);
}

/// Formats a file's name, isolated so that a right-to-left name does not reorder the text after it.
[[nodiscard]] std::string file_name(std::string_view name) {
  return "<bdi>" + escaped(name) + "</bdi>";
}

/// Formats a load, without decimals if it is large.
[[nodiscard]] std::string load_text(double load) {
  return grouped(fmt::format("{:.{}f}", load, load < 100 && load != std::floor(load) ? 2 : 0));
}

// ---- Numbers ----------------------------------------------------------------------------------

/// A comparison, with the values that its charts need.
struct chart_data {
  outcome const& whole;
  comparison const& loads;
  index_t number;  ///< number of the comparison
  index_t layers = whole.after.layers;
  index_t experts = whole.after.experts;
  index_t ranks = whole.after.ranks;

  [[nodiscard]] measured_plan const& side(std::size_t i) const {
    return i == 0 ? loads.before : loads.after;
  }
  [[nodiscard]] std::int64_t layer_id(index_t row) const {
    return whole.after.layer_ids[static_cast<std::size_t>(row)];
  }
  [[nodiscard]] double total(index_t row) const {
    auto const first = loads.expert_loads.begin() + row * experts;
    return std::accumulate(first, first + experts, 0.0);
  }
  /// Returns the mean load of the ranks, which is the same before and after.
  [[nodiscard]] double mean(index_t row) const { return total(row) / static_cast<double>(ranks); }
  [[nodiscard]] double rank_load(std::size_t i, index_t row, index_t rank) const {
    return side(i).rank_loads[static_cast<std::size_t>(row * ranks + rank)];
  }
  [[nodiscard]] double peak(std::size_t i, index_t row) const {
    auto const first = side(i).rank_loads.begin() + row * ranks;
    return *std::max_element(first, first + ranks);
  }
};

/// Returns load / mean, or `otherwise` if there is no load.
[[nodiscard]] double relative(double load, double mean, double otherwise) {
  return mean > 0 ? load / mean : otherwise;
}

/// Returns the load of the busiest rank, for which a layer waits, divided by the mean load, over
/// all layers, and over steps if there are several.
[[nodiscard]] double busiest(chart_data const& d, std::size_t side) {
  return 1 / comparison::served(d.side(side), d.whole.split).ratio_of_sums;
}

/// Smallest load at the full height of a panel, in mean loads, so that the line at the mean stays
/// below the edge.
constexpr double smallest_scale = 1.2;

/// Returns the load at the full height of every panel, in mean loads.
[[nodiscard]] double panel_scale(chart_data const& d) {
  double result = smallest_scale;
  for (index_t row = 0; row < d.layers; ++row) {
    for (std::size_t const side : sides) {
      result = std::max(result, relative(d.peak(side, row), d.mean(row), 0));
    }
  }
  return result;
}

// ---- Charts -----------------------------------------------------------------------------------

/// Writes two bars for one number, before and after.
void figure_bars(std::ostream& out, std::array<double, 2> const& values, double whole,
                 std::string_view label) {
  open_svg(out, 16, label);
  for (std::size_t const side : sides) {
    fmt::print(out, "<rect class=\"{}\" y=\"{}\" width=\"{:.4f}%\" height=\"7\"/>\n",
               side_classes[side], 9 * side, 100 * values[side] / whole);
  }
  out << "</svg>";
}

void tile(std::ostream& out, std::string_view title, std::array<double, 2> const& values,
          std::string_view unit, int digits, std::string_view note, bool worse) {
  auto const text = [&](double value) { return fmt::format("{:.{}f}{}", value, digits, unit); };
  fmt::print(out, "<div class=\"tile{}\">{}<b><i>{} →</i> {}</b>", worse ? " worse" : "", title,
             text(values[0]), text(values[1]));
  figure_bars(out, values, std::max({values[0], values[1], 1.0}),
              fmt::format("{}: {} before, {} after", title, text(values[0]), text(values[1])));
  fmt::print(out, "<small>{}</small></div>\n", note);
}

/// Formats the place of the worst row: "layer 3", or "layer 3, step 7".
[[nodiscard]] std::string place_of(balance_statistics const& s, bool has_steps) {
  return has_steps ? fmt::format("layer {}, step {}", s.worst_layer, s.worst_step)
                   : fmt::format("layer {}", s.worst_layer);
}

/// Writes the main figures: the improvement, step by step if there are several steps.
void key_figures(std::ostream& out, chart_data const& d) {
  bool const stepped = d.loads.before.per_step && d.loads.after.per_step;
  auto const& before = comparison::served(d.loads.before, d.whole.split);
  auto const& after = comparison::served(d.loads.after, d.whole.split);
  auto const latency = [&](std::string_view title, comparison const& c, std::string_view note) {
    if (c.before.latency && c.after.latency) {
      double const was = c.before.latency->mean;
      double const is = c.after.latency->mean;
      tile(out, title, {was, is}, "", 2, note, is > was);
    }
  };
  auto const balancedness = [&](std::string_view title, double was, double is,
                                std::string_view note) {
    tile(out, title, {was, is}, "", 3, note, is < was);
  };
  out << (d.whole.comparisons.size() == 1 && !stepped ? "<div class=\"tiles\">\n"
                                                      : "<div class=\"tiles four\">\n");
  latency("Mean latency of a layer", d.loads, "µs, of every layer in every step, by the curves");
  balancedness("Mean balancedness", before.mean, after.mean,
               stepped ? "of every layer in every step, as served; 1 is perfect"
                       : "mean of the layers; 1 is perfect");
  std::string const place_before = place_of(before, stepped);
  std::string const place_after = place_of(after, stepped);
  balancedness(stepped ? "Worst layer of a step" : "Worst layer’s balancedness", before.worst,
               after.worst,
               place_before == place_after ? place_before + " before and after"
                                           : place_before + " before, " + place_after + " after");
  std::array<double, 2> const peaks{busiest(d, 0), busiest(d, 1)};
  double const change = 100 * (peaks[1] / peaks[0] - 1);
  tile(out, "Load of the busiest rank", peaks, "×", 2,
       fmt::format("times the mean load, over all layers{}; ", stepped ? " of all steps" : "") +
           (std::abs(change) < 0.05 ? std::string("as much to wait for as before")
                                    : fmt::format("{:.1f} % {} to wait for", std::abs(change),
                                                  change < 0 ? "less" : "more")),
       peaks[1] > peaks[0]);
  if (stepped) {
    balancedness("Mean of the summed steps", d.loads.before.summed.mean, d.loads.after.summed.mean,
                 fmt::format("of the sum of {} steps, which evens out their differences",
                             count_text(d.loads.filled_steps())));
  }
  for (std::size_t i = 1; i < d.whole.comparisons.size(); ++i) {
    comparison const& other = d.whole.comparisons[i];
    balancedness("Mean on other loads", comparison::served(other.before, d.whole.split).mean,
                 comparison::served(other.after, d.whole.split).mean,
                 fmt::format("of the same plans on {}{}", file_name(short_name(other.loads)),
                             other.before.per_step ? ", step by step" : ""));
    latency("Mean latency on other loads", other,
            "µs, of the same plans on " + file_name(short_name(other.loads)));
  }
  out << "</div>\n";
}

void fact(std::ostream& out, std::string_view name, std::string_view value) {
  fmt::print(out, "<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
}

/// Formats a range: "5", or "5 to 6".
[[nodiscard]] std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? count_text(low) : count_text(low) + " to " + count_text(high);
}

/// Formats slots: "320 (5 a rank)", or "80 (11 to 12 a rank)" if ranks or layers differ.
[[nodiscard]] std::string slots_text(plan const& p) {
  std::int64_t low = p.slots;
  std::int64_t high = 0;
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      auto const at = static_cast<std::size_t>(layer * (p.ranks + 1) + rank);
      std::int64_t const slots = p.rank_offsets[at + 1] - p.rank_offsets[at];
      low = std::min(low, slots);
      high = std::max(high, slots);
    }
  }
  auto const [least, most] = slots_of_layers(p);
  return fmt::format("{} ({} a rank)", range_text(least, most), range_text(low, high));
}

[[nodiscard]] std::string layers_text(plan const& p) {
  std::int64_t const first = p.layer_ids.front();
  std::int64_t const last = p.layer_ids.back();
  if (first == last) {
    return fmt::format("1 (layer {})", first);
  }
  return fmt::format("{} ({} {} to {})", p.layers,
                     last - first + 1 == p.layers ? "layers" : "some of", first, last);
}

[[nodiscard]] std::string replicas_text(plan const& p) {
  std::vector<std::int64_t> const extra = extra_replicas(p);
  auto const [least, most] = std::minmax_element(extra.begin(), extra.end());
  return *least == *most
             ? count_text(*most) + " a layer"
             : count_text(std::accumulate(extra.begin(), extra.end(), index_t{0})) + " in all";
}

/// Writes what was planned, and how.
void facts(std::ostream& out, chart_data const& d) {
  outcome const& o = d.whole;
  plan const& p = o.after;
  out << "<dl>\n";
  fact(out, "planner", o.planner == "none" ? "none, the plan was read" : escaped(o.planner));
  fact(out, "refinement", escaped(o.refinement));
  if (o.milliseconds) {
    fact(out, "planned in",
         fmt::format("{:.3f} ms ({}, median of {})", *o.milliseconds, escaped(o.policy), o.runs));
  } else {
    fact(out, "policy", escaped(o.policy));
  }
  fact(out, "before",
       o.before_name == "trivial" ? "trivial: slot i has expert i mod experts"
       : o.before_name == "tensorrt-llm"
           ? "as TensorRT-LLM begins: rank r from expert floor(r x experts / ranks)"
           : file_name(o.before_name));
  fact(out, "layers", layers_text(p));
  fact(out, "experts a layer",
       o.groups > 1 ? fmt::format("{} in {} groups{}", count_text(p.experts), o.groups,
                                  o.hierarchical ? ", kept to nodes" : "")
                    : count_text(p.experts));
  fact(out, "ranks",
       o.nodes > 1 ? fmt::format("{} on {} nodes", count_text(p.ranks), o.nodes)
                   : count_text(p.ranks));
  std::string const slots = slots_text(p);
  std::string const slots_before = slots_text(o.before);
  fact(out, "slots a layer", slots == slots_before ? slots : slots_before + " → " + slots);
  fact(out, "extra replicas", replicas_text(p));
  if (o.craft) {
    fact(out, "replicas on each rank",
         fmt::format("{} over all layers, {}", count_text(o.craft->replicas_per_rank),
                     choice_text(*o.craft)));
  }
  if (o.selected && o.planner == "auto") {
    selection const& s = *o.selected;
    fact(out, "planner chosen", escaped(s.candidates[s.chosen].name));
    for (plimsoll::planner_report const& one : s.candidates) {
      fact(out, escaped(one.name) + " on unseen steps",
           !one.error.empty()      ? escaped(one.error)
           : one.balancedness == 0 ? "not judged"
                                   : fmt::format("balancedness {:.4f}", one.balancedness));
    }
  }
  fact(out, "judged by",
       o.split == plimsoll::split_rule::even ? "the even split" : "the optimal split");
  if (o.gem) {
    fact(out, "latency curves", file_name(short_name(o.gem->latency)));
    fact(out, "planned from",
         fmt::format("the last {} of {} steps", count_text(o.gem->trace_length),
                     count_text(d.loads.filled_steps())));
    fact(out, "searches of a layer", count_text(o.gem->restarts));
  }
  if (auto const bytes = bytes_of_fullest_rank(p, o.expert_bytes)) {
    fact(out, "weights of the fullest rank", bytes_text(*bytes));
  }
  if (o.moves) {
    moves_text const text = text_of_moves(o);
    if (!text.ranks.empty()) {
      fact(out, "ranks", text.ranks);
    }
    fact(out, "moves", text.moves);
    if (!text.gain.empty()) {
      fact(out, "gain", text.gain);
    }
    fact(out, "transfers", text.transfers);
    for (std::string const& loads : text.break_even) {
      fact(out, "break-even", escaped(loads));
    }
  }
  if (o.decision) {
    fact(out, "worth it", escaped(o.decision->text()));
    fact(out, "what would change that", escaped(o.decision->change()));
  }
  if (shows_traffic(o)) {
    auto const text = [](double was, double is) {
      return fmt::format("{} instead of {} token copies of a step", count_text(std::llround(is)),
                         count_text(std::llround(was)));
    };
    for (comparison const& c : o.comparisons) {
      auto const& before = comparison::traffic_in_service(c.before, o.split);
      auto const& after = comparison::traffic_in_service(c.after, o.split);
      std::string const on = ", on " + file_name(short_name(c.loads));
      fact(out, "between ranks", text(before.split.ranks, after.split.ranks) + on);
      fact(out, "- to the nearest replica", text(before.nearest.ranks, after.nearest.ranks) + on);
      if (o.nodes > 1) {
        fact(out, "between nodes", text(before.split.nodes, after.split.nodes) + on);
        fact(out, "- to the nearest replica", text(before.nearest.nodes, after.nearest.nodes) + on);
      }
    }
  }
  if (index_t const idle = idle_layers(o); idle > 0) {
    fact(out, "layers without load", count_text(idle) + ", left out");
  }
  for (comparison const& c : o.comparisons) {
    if (c.empty_steps > 0 && c.steps > 1) {
      fact(out, "steps without load",
           fmt::format("{} of {} in {}, left out", count_text(c.empty_steps), count_text(c.steps),
                       file_name(short_name(c.loads))));
    }
  }
  out << "</dl>\n";
}

void statistics_row(std::ostream& out, std::string_view lead, std::string_view rows,
                    std::size_t side, balance_statistics const& s, bool has_steps) {
  auto const number = [](std::string_view key, double value) {
    return fmt::format("<td data-{}=\"{}\">{:.4f}</td>", key, value, value);
  };
  fmt::print(out, "<tr class=\"{0}\" data-rows=\"{1}\">{2}<th class=\"l\">{0}</th>{3}{4}{5}",
             side_names[side], rows, lead, number("mean", s.mean),
             number("fifth-percentile", s.fifth_percentile), number("worst", s.worst));
  fmt::print(out, "<td data-worst-layer=\"{0}\">{0}</td>", s.worst_layer);
  out << (has_steps ? fmt::format("<td data-worst-step=\"{0}\">{0}</td></tr>\n", s.worst_step)
                    : "<td></td></tr>\n");
}

/// Writes the table that the program prints, for every file of loads.
void summary_table(std::ostream& out, outcome const& o) {
  out << "<div class=\"wide\"><table>\n<thead><tr><th class=\"l\">loads</th>"
         "<th class=\"l\">balancedness of</th><th class=\"l\">plan</th><th>mean</th>"
         "<th>5th percentile</th><th>worst</th><th>in layer</th><th>in step</th></tr></thead>\n";
  for (std::size_t i = 0; i < o.comparisons.size(); ++i) {
    comparison const& c = o.comparisons[i];
    bool const stepped = c.before.per_step && c.after.per_step;
    std::string const file = fmt::format("<th class=\"l f\" rowspan=\"{}\">{}</th>",
                                         stepped ? 6 : 4, file_name(c.loads));
    std::string const summed = fmt::format(
        "<th class=\"l\" rowspan=\"2\">{}</th>",
        c.steps == 1 ? "the loads" : fmt::format("sum of {} steps", count_text(c.filled_steps())));
    fmt::print(out, "<tbody data-loads=\"{}\">\n", i);
    statistics_row(out, file + summed, "summed", 0, c.before.summed, false);
    statistics_row(out, "", "summed", 1, c.after.summed, false);
    if (stepped) {
      statistics_row(out, "<th class=\"l\" rowspan=\"2\">step by step</th>", "per_step", 0,
                     *c.before.per_step, true);
      statistics_row(out, "", "per_step", 1, *c.after.per_step, true);
    }
    statistics_row(out,
                   fmt::format("<th class=\"l\" rowspan=\"2\">{}optimal split</th>",
                               stepped ? "step by step, " : ""),
                   "optimal_split", 0, c.before.optimal, stepped);
    statistics_row(out, "", "optimal_split", 1, c.after.optimal, stepped);
    out << "</tbody>\n";
  }
  out << "</table></div>\n";
}

/// Writes the balancedness of every layer: a dot before, a dot after, and a line between them.
void balance_chart(std::ostream& out, chart_data const& d) {
  constexpr int height = 220;
  key_of_sides(out);
  out << "<div class=\"axes titled\">";
  open_svg(
      out, height,
      "Balancedness of every layer on " + escaped(short_name(d.loads.loads)) + ", before and after",
      fmt::format(" data-loads=\"{}\"", d.number));
  auto const y = [](double value) { return height * (1 - value); };
  for (int i = 0; i <= 4; ++i) {
    double const value = i / 4.0;
    fmt::print(out,
               "<line class=\"{0}\" x2=\"100%\" y1=\"{1}\" y2=\"{1}\"/>"
               "<text class=\"e\" x=\"-8\" y=\"{2}\">{3:.2f}</text>\n",
               i == 4 ? 'm' : 'g', y(value), y(value) + 4, value);
  }
  double const radius = std::clamp(180.0 / static_cast<double>(d.layers), 1.5, 4.0);
  for (index_t row = 0; row < d.layers; ++row) {
    auto const at = static_cast<std::size_t>(row);
    double const x = percent(2 * row + 1, 2 * d.layers);
    double const before = d.loads.before.balancedness[at];
    double const after = d.loads.after.balancedness[at];
    fmt::print(out,
               "<line class=\"d\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"{1:.3f}\" y2=\"{2:.3f}\"/>",
               x, y(before), y(after));
    for (std::size_t const side : sides) {
      double const value = side == 0 ? before : after;
      fmt::print(out,
                 "<circle class=\"{}\" cx=\"{:.3f}%\" cy=\"{:.3f}\" r=\"{:.1f}\" data-layer=\"{}\" "
                 "data-balancedness=\"{}\"><title>layer {} {}: {:.4f}</title></circle>",
                 side_classes[side], x, y(value), radius, d.layer_id(row), value, d.layer_id(row),
                 side_names[side], value);
    }
    out << '\n';
  }
  for (std::size_t const i : ticks(d.whole.after.layer_ids)) {
    auto const row = static_cast<index_t>(i);
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"{}\">{}</text>\n",
               percent(2 * row + 1, 2 * d.layers), height + 18, d.layer_id(row));
  }
  title_of_layers(out, height);
  out << "</svg></div>\n";
}

/// Writes the bars of a layer, and a line at the mean load.
void layer_bars(std::ostream& out, chart_data const& d, index_t row, double scale, bool titled) {
  double const mean = d.mean(row);
  auto const bar = [&](std::size_t side, index_t rank) {
    double const load = d.rank_load(side, row, rank);
    double const share = relative(load, mean, 0);
    return rank_bar{
        load, 100 * share / scale,
        titled ? fmt::format("{}, {:.2f} × the mean", load_text(load), share) : std::string()};
  };
  rank_bars(out, d.ranks, d.layer_id(row), "load", bar,
            mean > 0 ? fmt::format("<path class=\"m\" d=\"M0 {0:.4f}H{1}\"/>", 100 / scale,
                                   bars_across(d.ranks))
                     : std::string());
}

/// Writes one panel for every layer, all on the same scale.
void rank_load_panels(std::ostream& out, chart_data const& d) {
  double const scale = panel_scale(d);
  auto const height = static_cast<std::int64_t>(std::clamp(22 * scale, 96.0, 170.0));
  key_of_sides(out, key_of_line("mean load"));
  panels(out, d.whole.after, [&](index_t row, bool titled) {
    double const mean = d.mean(row);
    return panel{.caption = mean > 0 ? fmt::format("{:.2f}× → <b>{:.2f}×</b>",
                                                   d.peak(0, row) / mean, d.peak(1, row) / mean)
                                     : "no load",
                 .height = height,
                 .what = "Load",
                 .attributes = fmt::format("data-loads=\"{}\" data-layer=\"{}\" data-mean=\"{}\" "
                                           "data-scale=\"{}\"",
                                           d.number, d.layer_id(row), mean, scale),
                 .bars = [&, row, titled] { layer_bars(out, d, row, scale, titled); }};
  });
}

/// Edges between the classes of the heat map, in mean loads; equal factors lie on both sides of 1.
constexpr std::array<double, 8> heat_edges{0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2, 4};

/// Returns the class of a load; a load on an edge belongs to the class nearer to the mean.
[[nodiscard]] std::size_t heat_class(double share) {
  auto const below = [&](double edge) { return edge < 1 ? edge <= share : edge < share; };
  return static_cast<std::size_t>(std::count_if(heat_edges.begin(), heat_edges.end(), below));
}

void heat_scale(std::ostream& out) {
  constexpr int classes = static_cast<int>(heat_edges.size()) + 1;
  out << "<div class=\"scale\">";
  open_svg(out, 32, "Colors of the heat map, from a quarter of the mean load to four times it");
  for (int i = 0; i < classes; ++i) {
    fmt::print(out, "<rect class=\"c{}\" x=\"{:.3f}%\" width=\"{:.3f}%\" height=\"14\"/>", i,
               percent(i, classes), percent(1, classes));
  }
  for (int i = 1; i < classes; ++i) {
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"29\">{}</text>", percent(i, classes),
               heat_edges[static_cast<std::size_t>(i - 1)]);
  }
  out << "</svg></div>\n";
}

/// Writes one path for every class; runs of equal cells are one rectangle, to keep the file small.
void heat_cells(std::ostream& out, chart_data const& d, std::size_t side) {
  std::array<std::string, heat_edges.size() + 1> paths;
  for (index_t row = 0; row < d.layers; ++row) {
    double const mean = d.mean(row);
    auto const class_of = [&](index_t rank) {
      return heat_class(relative(d.rank_load(side, row, rank), mean, 1));
    };
    for (index_t first = 0; first < d.ranks;) {
      std::size_t const found = class_of(first);
      index_t end = first + 1;
      while (end < d.ranks && class_of(end) == found) {
        ++end;
      }
      paths[found] += fmt::format("M{} {}h{}v1h-{}z", first, row, end - first, end - first);
      first = end;
    }
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!paths[i].empty()) {
      fmt::print(out, "<path class=\"c{}\" d=\"{}\"/>\n", i, paths[i]);
    }
  }
}

void heat_map(std::ostream& out, chart_data const& d, std::size_t side) {
  auto const height = std::max<index_t>(std::min<index_t>(24, 470 / d.layers), 5) * d.layers;
  fmt::print(out, "<figure><h3>{}</h3><div class=\"axes\">", side_names[side]);
  open_svg(out, height,
           fmt::format("Load of every rank (across) in every layer (down), {}", side_names[side]),
           fmt::format(" data-loads=\"{}\" data-side=\"{}\"", d.number, side_names[side]));
  fmt::print(out,
             "<svg class=\"crisp\" width=\"100%\" height=\"{}\" viewBox=\"0 0 {} {}\" "
             "preserveAspectRatio=\"none\">\n",
             height, d.ranks, d.layers);
  heat_cells(out, d, side);
  out << "</svg>\n";
  double const row_height = static_cast<double>(height) / static_cast<double>(d.layers);
  for (std::size_t const i : ticks(d.whole.after.layer_ids)) {
    fmt::print(out, "<text class=\"e\" x=\"-8\" y=\"{:.1f}\">{}</text>",
               (static_cast<double>(i) + 0.5) * row_height + 4,
               d.layer_id(static_cast<index_t>(i)));
  }
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(d.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t const i : ticks(ranks)) {
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"{}\">{}</text>",
               percent(2 * static_cast<index_t>(i) + 1, 2 * d.ranks), height + 18, i);
  }
  out << "</svg></div></figure>\n";
}

void heat_maps(std::ostream& out, chart_data const& d) {
  heat_scale(out);
  out << "<div class=\"pair\">\n";
  heat_map(out, d, 0);
  heat_map(out, d, 1);
  out << "</div>\n";
}

struct hot_expert {
  index_t row;
  index_t expert;
  double load;
  double share;  ///< load / mean load of the layer's experts
};

/// Returns the hottest experts that have replicas before or after; others show no difference.
[[nodiscard]] std::vector<hot_expert> hottest(chart_data const& d, std::size_t count) {
  std::vector<hot_expert> all;
  for (index_t row = 0; row < d.layers; ++row) {
    double const mean = d.total(row) / static_cast<double>(d.experts);
    for (index_t expert = 0; expert < d.experts; ++expert) {
      auto const at = static_cast<std::size_t>(row * d.experts + expert);
      double const load = d.loads.expert_loads[at];
      bool const single =
          d.whole.before.replica_count[at] == 1 && d.whole.after.replica_count[at] == 1;
      if (load > 0 && !single) {
        all.push_back({row, expert, load, load / mean});
      }
    }
  }
  auto const hotter = [](hot_expert const& a, hot_expert const& b) { return a.share > b.share; };
  std::stable_sort(all.begin(), all.end(), hotter);
  all.resize(std::min(all.size(), count));
  return all;
}

void hot_experts(std::ostream& out, chart_data const& d) {
  std::vector<hot_expert> const experts = hottest(d, 16);
  if (experts.empty()) {
    out << "<p>No expert with load has replicas, before or after.</p>\n";
    return;
  }
  out << "<div class=\"wide\"><table>\n<thead><tr><th>layer</th><th>expert</th><th>load</th>"
         "<th>× mean</th><th class=\"l bar\"></th><th>replicas</th><th>load of a replica</th>"
         "</tr></thead>\n<tbody>\n";
  for (hot_expert const& e : experts) {
    auto const at = static_cast<std::size_t>(e.row * d.experts + e.expert);
    std::array<std::int32_t, 2> const replicas{d.whole.before.replica_count[at],
                                               d.whole.after.replica_count[at]};
    auto const each = [&](std::size_t side) { return e.load / replicas[side]; };
    fmt::print(out,
               "<tr data-layer=\"{0}\" data-expert=\"{1}\" data-load=\"{2}\"><td>{0}</td>"
               "<td>{1}</td><td>{3}</td><td>{4:.1f}</td><td class=\"bar\">",
               d.layer_id(e.row), e.expert, e.load, load_text(e.load), e.share);
    open_svg(out, 12, fmt::format("{:.1f} times the mean load", e.share));
    for (std::size_t const side : sides) {
      double const share = side == 0 ? e.share : e.share * each(1) / e.load;
      fmt::print(out, "<rect class=\"{}\" width=\"{:.3f}%\" y=\"{}\" height=\"{}\"/>",
                 side_classes[side], 100 * share / experts.front().share, side == 0 ? 0 : 3,
                 side == 0 ? 12 : 6);
    }
    fmt::print(out, "</svg></td><td><i>{} →</i> {}</td><td><i>{} →</i> {}</td></tr>\n", replicas[0],
               replicas[1], load_text(each(0)), load_text(each(1)));
  }
  out << "</tbody></table></div>\n";
}

// ---- Sections ---------------------------------------------------------------------------------

constexpr std::string_view balance_lead =
    "Mean rank load divided by the largest, by layer; 1 is perfect. Every layer waits for its "
    "busiest rank, so a layer at 0.5 takes twice as long as a balanced one.";
constexpr std::string_view heat_lead =
    "Rank load divided by the layer’s mean load, ranks across and layers down. Blue ranks wait for "
    "orange ranks; the color between them marks loads within 5 % of the mean.";

void sections_of_loads(std::ostream& out, chart_data const& d) {
  section(out, "balancedness-0", "Balancedness of the layers", balance_lead,
          [&] { balance_chart(out, d); });
  if (d.whole.craft) {
    write_craft_sections(out, d.whole);
  }
  write_latency_section(out, d.whole, d.number, "Latency of every rank");
  section(out, "heat-map-0", "Load by layer and rank", heat_lead, [&] { heat_maps(out, d); });
  section(
      out, "hottest-experts-0", "The hottest experts",
      "The experts of all layers with the highest load relative to the mean load of the layer’s "
      "experts, among those that have replicas before or after. The grey bar is the expert’s load, "
      "and the bar inside it the load of one replica after.",
      [&] { hot_experts(out, d); });
  section(out, "rank-loads-0", "Load of every rank",
          fmt::format("A bar for every rank, before on the left and after on the right, and a line "
                      "at the mean load. All panels have the same scale, from 0 to {:.2f} times "
                      "the layer’s mean; the figures are those of the busiest rank.",
                      panel_scale(d)),
          [&] { rank_load_panels(out, d); });
}

void sections_of_other_loads(std::ostream& out, chart_data const& d) {
  section(out, fmt::format("balancedness-{}", d.number),
          "The same plans on " + file_name(short_name(d.loads.loads)),
          "Balancedness of the layers on the loads given by --evaluate.",
          [&] { balance_chart(out, d); });
  write_latency_section(out, d.whole, d.number,
                        "Latency of every rank on " + file_name(short_name(d.loads.loads)));
  section(out, fmt::format("heat-map-{}", d.number),
          "The load of " + file_name(short_name(d.loads.loads)) + ", by layer and rank", heat_lead,
          [&] { heat_maps(out, d); });
}

}  // namespace

void write_report(std::ostream& out, outcome const& o) {
  chart_data const first{o, o.comparisons.front(), 0};
  fmt::print(out,
             "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
             "<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<title>Expert placement for {}</title>\n<style>{}{}{}</style>\n</head>\n<body>\n",
             escaped(short_name(first.loads.loads)), report_style::palette, report_style::chart,
             report_style::page);
  fmt::print(out, "<h1>Expert placement for {}</h1>\n", file_name(short_name(first.loads.loads)));
  fmt::print(out, "<p class=\"verdict\"><b>{}.</b></p>\n", escaped(verdict_of(o)));
  for (std::string const& warning : warnings_of(o)) {
    fmt::print(out, "<p class=\"warning\"><b>Warning:</b> {}.</p>\n", escaped(warning));
  }
  key_figures(out, first);
  facts(out, first);
  summary_table(out, o);
  sections_of_loads(out, first);
  for (std::size_t i = 1; i < o.comparisons.size(); ++i) {
    sections_of_other_loads(out, {o, o.comparisons[i], static_cast<index_t>(i)});
  }
  fmt::print(out,
             "<footer>Written by {} of Plimsoll on {} with:<br/><code>{}</code></footer>\n"
             "</body>\n</html>\n",
             escaped(o.program), escaped(o.date), escaped(o.command));
}

void write_layer_picture(std::ostream& out, outcome const& o, index_t row) {
  chart_data const d{o, o.comparisons.front(), 0};
  auto const at = static_cast<std::size_t>(row);
  constexpr int width = 860;
  constexpr int height = 300;
  constexpr int left = 24;
  constexpr int right = width - 92;  // leaves space for the label of the line
  constexpr int top = 88;
  constexpr int bottom = height - 24;
  double const mean = d.mean(row);
  std::array<double, 2> const peaks{relative(d.peak(0, row), mean, 0),
                                    relative(d.peak(1, row), mean, 0)};
  double const scale = std::max({smallest_scale, peaks[0], peaks[1]});
  fmt::print(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"Load of every rank in layer {2}, "
      "before and after\">\n<style>{3}{4}.h{{font-size:17px;font-weight:600;fill:var(--ink)}}"
      "</style>\n<rect width=\"{0}\" height=\"{1}\" rx=\"8\" style=\"fill:var(--bg)\"/>\n",
      width, height, d.layer_id(row), report_style::palette, report_style::chart);
  // Positions of the bars of each side, in pixels.
  double const bar = static_cast<double>(right - left) / static_cast<double>(bars_across(d.ranks));
  for (std::size_t const side : sides) {
    fmt::print(
        out,
        "<text class=\"h\" x=\"{0:.1f}\" y=\"36\">{1}: balancedness {2:.3f}</text>\n"
        "<text x=\"{0:.1f}\" y=\"57\">busiest of {3} ranks: {4:.2f} × the mean load</text>\n",
        left + (side == 0 ? 0 : static_cast<double>(first_bar_after(d.ranks)) * bar),
        side_names[side], d.side(side).balancedness[at], d.ranks, peaks[side]);
  }
  fmt::print(out,
             "<svg class=\"crisp\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
             "viewBox=\"0 -100 {} 100\" preserveAspectRatio=\"none\">\n",
             left, top, right - left, bottom - top, bars_across(d.ranks));
  layer_bars(out, d, row, scale, false);
  fmt::print(out,
             "</svg>\n<line class=\"g\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n"
             "<text x=\"{3}\" y=\"{4:.1f}\">mean load</text>\n</svg>\n",
             left, right, bottom, right + 8, bottom - (bottom - top) / scale + 4);
}

}  // namespace examples

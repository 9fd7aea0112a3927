// SPDX-License-Identifier: Apache-2.0
#include "report_craft.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "outcome_table.hpp"
#include "report_parts.hpp"

namespace examples {
namespace {

using namespace report_parts;

/// Writes the line at a value of a chart, with its label on the left.
void axis_line(std::ostream& out, double y, std::string_view style, std::string const& label) {
  fmt::print(out,
             "<line class=\"{0}\" x2=\"100%\" y1=\"{1:.3f}\" y2=\"{1:.3f}\"/>"
             "<text class=\"e\" x=\"-8\" y=\"{2:.3f}\">{3}</text>\n",
             style, y, y + 4, label);
}

void labels_across(std::ostream& out, plan const& p, int height) {
  for (std::size_t const i : ticks(p.layer_ids)) {
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"{}\">{}</text>\n",
               percent(2 * static_cast<index_t>(i) + 1, 2 * p.layers), height + 18, p.layer_ids[i]);
  }
  title_of_layers(out, height);
}

// ---- The curve --------------------------------------------------------------------------------

[[nodiscard]] std::string curve_lead(craft_outcome const& c) {
  return fmt::format(
      "Expected mean balancedness with R replicas on each rank over all layers together, placed "
      "where they gain most. The line marks R = {}, {}. The knee{} is the point of the curve "
      "furthest above the straight line between its ends: up to the knee a replica gains more than "
      "the average replica does, beyond it less.",
      count_text(c.replicas_per_rank), choice_text(c),
      c.allocation.knee == c.replicas_per_rank ? "" : " (the ring)");
}

void curve_chart(std::ostream& out, outcome const& o) {
  constexpr int height = 220;
  craft_outcome const& c = *o.craft;
  auto const& curve = c.allocation.curve;
  auto const last = static_cast<index_t>(curve.size()) - 1;
  // The largest sum of the layers' gains.
  double const top = curve.back() > 0 ? curve.back() : 1;
  auto const y = [&](double gain) { return height * (1 - gain / top); };
  auto const mean = [&](double gain) { return c.mean_with(gain); };

  out << "<div class=\"axes marked\">";
  open_svg(out, height, "Expected mean balancedness by the replicas on each rank",
           " data-chart=\"curve\"");
  for (int i = 0; i <= 4; ++i) {
    axis_line(out, y(top * i / 4), "g", fmt::format("{:.3f}", mean(top * i / 4)));
  }
  fmt::print(out,
             "<line class=\"d\" x2=\"100%\" y1=\"{}\" y2=\"{:.3f}\"/>\n"
             "<svg width=\"100%\" height=\"{}\" viewBox=\"0 0 {} {}\" "
             "preserveAspectRatio=\"none\"><path class=\"k\" d=\"",
             height, y(curve.back()), height, last, height);
  for (index_t i = 0; i <= last; ++i) {
    fmt::print(out, "{}{} {:.3f}", i == 0 ? 'M' : 'L', i, y(curve[static_cast<std::size_t>(i)]));
  }
  out << "\"/></svg>\n";
  double const radius = std::clamp(180.0 / static_cast<double>(last), 1.5, 4.0);
  for (index_t i = 0; i <= last; ++i) {
    double const gain = curve[static_cast<std::size_t>(i)];
    fmt::print(out,
               "<circle class=\"a\" cx=\"{:.3f}%\" cy=\"{:.3f}\" r=\"{:.1f}\" data-each=\"{}\" "
               "data-gain=\"{}\"><title>{} on each rank: {:.4f}</title></circle>\n",
               percent(i, last), y(gain), radius, i, gain, i, mean(gain));
  }
  if (c.allocation.knee != c.replicas_per_rank) {
    fmt::print(out, "<circle class=\"m\" cx=\"{:.3f}%\" cy=\"{:.3f}\" r=\"7\" data-knee=\"{}\"/>\n",
               percent(c.allocation.knee, last),
               y(curve[static_cast<std::size_t>(c.allocation.knee)]), c.allocation.knee);
  }
  index_t const at = std::min(c.replicas_per_rank, last);  // a large budget cannot be used up
  fmt::print(out,
             "<line class=\"m\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"-4\" y2=\"{1}\" "
             "data-chosen=\"{2}\"/><text class=\"{3}\" x=\"{0:.3f}%\" y=\"-10\">R = {4}</text>\n",
             percent(at, last), height, c.replicas_per_rank, 2 * at > last ? "e" : "s",
             count_text(c.replicas_per_rank));
  std::vector<std::int64_t> each(curve.size());
  std::iota(each.begin(), each.end(), 0);
  for (std::size_t const i : ticks(each)) {
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"{}\">{}</text>\n",
               percent(static_cast<index_t>(i), last), height + 18, i);
  }
  out << "</svg></div>\n";
}

// ---- The gains --------------------------------------------------------------------------------

/// Returns the largest gain or loss, which gets the full color.
[[nodiscard]] double largest_gain(craft_outcome const& c) {
  double largest = 0;
  for (double const gain : c.estimate.gain) {
    largest = std::max(largest, std::abs(gain));
  }
  return largest > 0 ? largest : 1;
}

void gain_scale(std::ostream& out, double largest, bool with_losses) {
  constexpr int steps = 4;
  int const first = with_losses ? -steps : 0;
  int const classes = steps - first + 1;
  out << "<div class=\"scale\">";
  open_svg(out, 32, "Colors of the gains");
  for (int i = first; i <= steps; ++i) {
    fmt::print(out,
               "<rect class=\"{}\" fill-opacity=\"{}\" x=\"{:.3f}%\" width=\"{:.3f}%\" "
               "height=\"14\"/><text class=\"n\" x=\"{:.3f}%\" y=\"29\">{}{:.3f}</text>\n",
               i < 0 ? "c7" : "a", std::abs(i) / double{steps}, percent(i - first, classes),
               percent(1, classes), percent(2 * (i - first) + 1, 2 * classes), i < 0 ? "−" : "",
               largest * std::abs(i) / steps);
  }
  out << "</svg></div>\n";
}

/// Writes a row for every layer: a bar for its base and a cell for every count; a dot marks the
/// chosen count.
void gain_map(std::ostream& out, outcome const& o) {
  craft_outcome const& c = *o.craft;
  auto const& counts = c.estimate.replica_counts;
  auto const width = static_cast<index_t>(counts.size());
  index_t const columns = width + 2;  // the bars are two wide
  double const largest = largest_gain(c);
  index_t const layers = o.after.layers;
  auto const row_height = std::clamp<index_t>(470 / layers, 5, 24);
  index_t const height = row_height * layers;
  gain_scale(out, largest,
             std::any_of(c.estimate.gain.begin(), c.estimate.gain.end(),
                         [](double gain) { return gain < 0; }));
  out << "<div class=\"axes marked\">";
  open_svg(out, height,
           "Balancedness of every layer (down) without replicas, and its gain from each number of "
           "replicas (across)",
           " data-chart=\"gains\"");
  double const radius = static_cast<double>(std::min<index_t>(row_height, 8) - 2) / 2;
  for (index_t row = 0; row < layers; ++row) {
    auto const at = static_cast<std::size_t>(row);
    std::int64_t const id = o.after.layer_ids[at];
    double const base = c.estimate.base[at];
    fmt::print(out,
               "<rect class=\"b\" y=\"{}\" width=\"{:.3f}%\" height=\"{}\" data-layer=\"{}\" "
               "data-base=\"{}\"><title>layer {} without replicas: {:.4f}</title></rect>\n",
               row * row_height, percent(19, 10 * columns) * base, row_height - 1, id, base, id,
               base);
    for (index_t k = 0; k < width; ++k) {
      double const gain = c.estimate.gain[static_cast<std::size_t>(row * width + k)];
      std::int32_t const count = counts[static_cast<std::size_t>(k)];
      fmt::print(
          out,
          "<rect class=\"{}\" fill-opacity=\"{:.3f}\" x=\"{:.3f}%\" y=\"{}\" width=\"{:.3f}%\" "
          "height=\"{}\" data-layer=\"{}\" data-count=\"{}\" data-gain=\"{}\">"
          "<title>layer {} with {} more: {:.4f}, {:+.4f}</title></rect>\n",
          gain < 0 ? "c7" : "a", std::abs(gain) / largest, percent(k + 2, columns),
          row * row_height, percent(1, columns), row_height - 1, id, count, gain, id, count,
          base + gain, gain);
      if (c.allocation.replicas[at] == count) {
        fmt::print(out, "<circle class=\"o\" cx=\"{:.3f}%\" cy=\"{:.1f}\" r=\"{}\"/>\n",
                   percent(2 * k + 5, 2 * columns),
                   static_cast<double>(row * row_height) + static_cast<double>(row_height - 1) / 2,
                   radius);
      }
    }
  }
  for (std::size_t const i : ticks(o.after.layer_ids)) {
    fmt::print(out, "<text class=\"e\" x=\"-8\" y=\"{:.1f}\">{}</text>\n",
               (static_cast<double>(i) + 0.5) * static_cast<double>(row_height) + 4,
               o.after.layer_ids[i]);
  }
  out << "<text class=\"s\" y=\"-10\">without</text>\n";
  for (index_t k = 0; k < width; ++k) {
    fmt::print(out, "<text class=\"n\" x=\"{:.3f}%\" y=\"-10\">{}</text>\n",
               percent(2 * k + 5, 2 * columns), counts[static_cast<std::size_t>(k)]);
  }
  out << "</svg></div>\n";
}

// ---- The layers -------------------------------------------------------------------------------

/// Writes a bar for every layer; each value is also in the attribute data-`name`.
template <class T>
void bars_of_layers(std::ostream& out, outcome const& o, std::vector<T> const& values,
                    std::string_view name, std::string_view what, int digits) {
  constexpr int height = 110;
  index_t const layers = o.after.layers;
  auto const largest = static_cast<double>(*std::max_element(values.begin(), values.end()));
  double const top = largest > 0 ? largest : 1;
  fmt::print(out, "<h3>{}</h3>\n<div class=\"axes titled\">", what);
  open_svg(out, height, fmt::format("{} of every layer", what),
           fmt::format(" data-chart=\"{}\"", name));
  for (int i = 0; i <= 2; ++i) {
    axis_line(out, height * (1 - i / 2.0), "g", fmt::format("{:.{}f}", top * i / 2, digits));
  }
  for (index_t row = 0; row < layers; ++row) {
    auto const at = static_cast<std::size_t>(row);
    double const bar = height * static_cast<double>(values[at]) / top;
    fmt::print(out,
               "<rect class=\"a\" x=\"{:.3f}%\" y=\"{:.3f}\" width=\"{:.3f}%\" height=\"{:.3f}\" "
               "data-layer=\"{}\" data-{}=\"{}\"><title>layer {}: {:.{}f}</title></rect>\n",
               percent(10 * row + 1, 10 * layers), height - bar, percent(8, 10 * layers), bar,
               o.after.layer_ids[at], name, values[at], o.after.layer_ids[at],
               static_cast<double>(values[at]), digits + 1);
  }
  labels_across(out, o.after, height);
  out << "</svg></div>\n";
}

[[nodiscard]] std::string layers_lead(outcome const& o) {
  craft_outcome const& c = *o.craft;
  std::string layers;
  for (auto const& [replicas, count] : layers_by_replicas(c)) {
    layers += fmt::format("{}{} in {} {}", layers.empty() ? "" : ", ", count_text(replicas),
                          count_text(count), count == 1 ? "layer" : "layers");
  }
  return fmt::format(
      "Replicas of a layer on all ranks together, and their expected gain in balancedness. {} of "
      "{} replicas are used: {}. Over all layers, including those without replicas, balancedness "
      "is expected to rise from {:.4f} to {:.4f}.",
      count_text(c.allocation.used), count_text(c.allocation.budget), layers, c.mean_base(),
      c.mean_expected());
}

}  // namespace

void write_craft_sections(std::ostream& out, outcome const& o) {
  craft_outcome const& c = *o.craft;
  section(out, "replica-curve", "Gain from replicas", curve_lead(c), [&] { curve_chart(out, o); });
  section(
      out, "replica-gains", "Gain of each layer",
      "A row for every layer: in grey its balancedness without replicas, from 0 to 1, then its "
      "gain from each number of replicas, over the steps of the loads. A dot marks the number of "
      "replicas that the layer got; a layer without a dot got none.",
      [&] { gain_map(out, o); });
  section(out, "replicas-of-layers", "Replicas of every layer", layers_lead(o), [&] {
    bars_of_layers(out, o, c.allocation.replicas, "replicas", "Replicas", 0);
    bars_of_layers(out, o, c.allocation.gain, "expected-gain", "Expected gain", 3);
  });
}

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
#include "report_gem.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "report_parts.hpp"

namespace examples {
namespace {

using namespace report_parts;

/// Latencies of both plans on the same loads.
using latency_pair = std::array<latency_statistics const*, 2>;

/// Returns the latency at the full height of every panel, such that lines stay below the edge.
[[nodiscard]] double full_height(latency_pair const& latency) {
  double longest = 0;
  for (latency_statistics const* const side : latency) {
    longest = std::max(longest, *std::max_element(side->of_layers.begin(), side->of_layers.end()));
  }
  return longest > 0 ? 1.08 * longest : 1;
}

void statistics_table(std::ostream& out, latency_pair const& latency) {
  auto const number = [](std::string_view key, double value) {
    return fmt::format("<td data-{}=\"{}\">{:.2f}</td>", key, value, value);
  };
  out << "<div class=\"wide\"><table>\n<thead><tr><th class=\"l\">plan</th><th>mean, µs</th>"
         "<th>95th percentile</th><th>worst</th><th>in layer</th><th>in step</th></tr></thead>\n"
         "<tbody>\n";
  for (std::size_t const side : sides) {
    latency_statistics const& s = *latency[side];
    fmt::print(out,
               "<tr class=\"{0}\" data-rows=\"latency\"><th class=\"l f\">{0}</th>{1}{2}{3}"
               "<td data-worst-layer=\"{4}\">{4}</td><td data-worst-step=\"{5}\">{5}</td></tr>\n",
               side_names[side], number("mean", s.mean),
               number("ninety-fifth-percentile", s.ninety_fifth_percentile),
               number("worst", s.worst), s.worst_layer, s.worst_step);
  }
  out << "</tbody></table></div>\n";
}

/// Returns a line over the bars of each side, at the mean latency of the slowest rank of each step.
[[nodiscard]] std::string lines_of(latency_pair const& latency, std::size_t row, index_t ranks,
                                   double full) {
  std::string lines;
  for (std::size_t const side : sides) {
    double const last = latency[side]->of_layers[row];
    lines += fmt::format(
        "<path class=\"m\" d=\"M{} {:.4f}h{}\" data-side=\"{}\" data-of-layer=\"{}\"/>",
        side == 0 ? 0 : first_bar_after(ranks), 100 * last / full, ranks, side_classes[side], last);
  }
  return lines;
}

void latency_panels(std::ostream& out, plan const& p, latency_pair const& latency,
                    index_t comparison) {
  constexpr std::int64_t height = 110;
  double const full = full_height(latency);
  key_of_sides(out, key_of_line("mean of each step’s slowest rank"));
  panels(out, p, [&](index_t row, bool titled) {
    auto const at = static_cast<std::size_t>(row);
    auto const bar = [&, row, titled](std::size_t side, index_t rank) {
      double const value = latency[side]->of_ranks[static_cast<std::size_t>(row * p.ranks + rank)];
      return rank_bar{value, 100 * value / full,
                      titled ? fmt::format("{:.2f} µs", value) : std::string()};
    };
    return panel{
        .caption = fmt::format("{:.2f} → <b>{:.2f} µs</b>", latency[0]->of_layers[at],
                               latency[1]->of_layers[at]),
        .height = height,
        .what = "Mean latency",
        .attributes = fmt::format("data-chart=\"latency\" data-comparison=\"{}\" data-layer=\"{}\" "
                                  "data-full=\"{}\"",
                                  comparison, p.layer_ids[at], full),
        .bars = [&, at, bar] {
          rank_bars(out, p.ranks, p.layer_ids[at], "latency", bar,
                    lines_of(latency, at, p.ranks, full));
        }};
  });
}

}  // namespace

void write_latency_section(std::ostream& out, outcome const& o, index_t comparison,
                           std::string_view title) {
  auto const& c = o.comparisons[static_cast<std::size_t>(comparison)];
  if (!c.before.latency || !c.after.latency) {
    return;
  }
  latency_pair const latency{&*c.before.latency, &*c.after.latency};
  section(
      out, fmt::format("latency-{}", comparison), title,
      fmt::format("Mean latency of each rank over {}, by the latency curves: a bar for every "
                  "rank, before on the left and after on the right. A layer ends when its slowest "
                  "rank does; lines and figures show the mean of that rank’s latency, and the "
                  "table is over every layer in every step. All panels have the same scale, from 0 "
                  "to {:.2f} µs.",
                  c.steps == 1 ? "one step" : count_text(c.steps) + " steps", full_height(latency)),
      [&] {
        statistics_table(out, latency);
        latency_panels(out, o.after, latency, comparison);
      });
}

}  // namespace examples

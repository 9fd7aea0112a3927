// SPDX-License-Identifier: Apache-2.0
/// @file
/// Building blocks shared by the charts of the report.
#pragma once

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"

namespace examples::report_parts {

/// Formats 1234567 as 1,234,567.
[[nodiscard]] inline std::string grouped(std::string digits) {
  std::size_t const end = std::min(digits.find('.'), digits.size());
  for (std::size_t i = end; i > 3; i -= 3) {
    digits.insert(i - 3, 1, ',');
  }
  return digits;
}

[[nodiscard]] inline std::string count_text(std::int64_t n) {
  return grouped(fmt::format("{}", n));
}

/// Returns the indices of `ids` that get a label on an axis: few enough for a narrow window, and at
/// round ids if the ids are consecutive.
[[nodiscard]] inline std::vector<std::size_t> ticks(std::vector<std::int64_t> const& ids) {
  auto const count = static_cast<std::int64_t>(ids.size());
  std::int64_t step = 1;
  for (int i = 0; count / step > 10; ++i) {
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;  // 1, 2, 5, 10, ...
  }
  std::int64_t const first = ids.back() - ids.front() + 1 == count ? ids.front() : 0;
  std::vector<std::size_t> result;
  for (std::int64_t i = 0; i < count; ++i) {
    if ((first + i) % step == 0) {
      result.push_back(static_cast<std::size_t>(i));
    }
  }
  return result;
}

/// Returns a width in per cent. Widths are in per cent and heights in pixels, so that charts fit
/// the window and text keeps its size.
[[nodiscard]] inline double percent(index_t i, index_t count) {
  return 100.0 * static_cast<double>(i) / static_cast<double>(count);
}

/// Writes a section of the page; `body` writes the content after the lead.
inline void section(std::ostream& out, std::string_view id, std::string_view title,
                    std::string_view lead, std::function<void()> const& body) {
  fmt::print(out, "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", id, title, lead);
  body();
  out << "</section>\n";
}

/// Opens a chart that is as wide as its container and `height` pixels high.
inline void open_svg(std::ostream& out, std::int64_t height, std::string_view label,
                     std::string_view attributes = "") {
  fmt::print(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" height=\"{}\" role=\"img\" "
             "aria-label=\"{}\"{}>\n",
             height, label, attributes);
}

/// Writes the title of the layer axis, below its labels.
inline void title_of_layers(std::ostream& out, int height) {
  fmt::print(out, "<text class=\"t\" x=\"50%\" y=\"{}\">layer of the model</text>\n", height + 36);
}

// ---- Before and after -------------------------------------------------------------------------

inline constexpr std::array<std::string_view, 2> side_names{"before", "after"};
inline constexpr std::array<std::size_t, 2> sides{0, 1};  // before, after
inline constexpr std::array<char, 2> side_classes{'b', 'a'};

inline void key_of_sides(std::ostream& out, std::string_view rest = "") {
  out << "<div class=\"key\">";
  for (std::size_t const side : sides) {
    fmt::print(
        out,
        "<span><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"12\" height=\"12\" "
        "aria-hidden=\"true\"><rect class=\"{}\" width=\"12\" height=\"12\"/></svg>{}</span>",
        side_classes[side], side_names[side]);
  }
  out << rest << "</div>\n";
}

/// Returns the entry of the key for a line in the charts.
[[nodiscard]] inline std::string key_of_line(std::string_view name) {
  return fmt::format(
      "<span><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"22\" height=\"12\" "
      "aria-hidden=\"true\"><line class=\"m\" x2=\"22\" y1=\"6\" y2=\"6\"/></svg>{}</span>",
      name);
}

/// Returns the position of the first bar of the plan after; a gap separates it from those before.
[[nodiscard]] inline index_t first_bar_after(index_t ranks) {
  return ranks + std::max<index_t>(1, ranks / 12);
}

[[nodiscard]] inline index_t bars_across(index_t ranks) { return first_bar_after(ranks) + ranks; }

struct rank_bar {
  double value = 0;
  double height = 0;       ///< of 100
  std::string title = {};  ///< tooltip; none if empty
};

/// Writes the bars of a layer, before on the left and after on the right, and then `in_front`. Each
/// bar is `bar(side, rank)`, with its value in the attribute data-`name`. The box is `bars_across`
/// by 100, with zero at the lower edge.
template <class Bar>
void rank_bars(std::ostream& out, index_t ranks, std::int64_t layer_id, std::string_view name,
               Bar const& bar, std::string_view in_front) {
  double const width = ranks <= 32 ? 0.84 : 1;  // narrow bars need no gap
  double const inset = (1 - width) / 2;
  out << "<g transform=\"scale(1 -1)\">\n";
  for (std::size_t const side : sides) {
    index_t const left = side == 0 ? 0 : first_bar_after(ranks);
    for (index_t rank = 0; rank < ranks; ++rank) {
      rank_bar const b = bar(side, rank);
      fmt::print(out,
                 "<rect class=\"{}\" x=\"{:.6g}\" width=\"{}\" height=\"{:.4f}\" data-layer=\"{}\" "
                 "data-rank=\"{}\" data-{}=\"{}\"",
                 side_classes[side], static_cast<double>(left + rank) + inset, width, b.height,
                 layer_id, rank, name, b.value);
      if (b.title.empty()) {
        out << "/>\n";
      } else {
        fmt::print(out, "><title>layer {}, rank {} {}: {}</title></rect>\n", layer_id, rank,
                   side_names[side], b.title);
      }
    }
  }
  out << in_front << "</g>";
}

/// A small chart of `rank_bars`, one of many.
struct panel {
  std::string caption;
  std::int64_t height;
  std::string_view what;  ///< "Load"
  std::string attributes;
  std::function<void()> bars;
};

/// Writes one panel `panel_of(row, titled)` for every layer, with tooltips if bars are not too
/// many.
template <class PanelOf>
void panels(std::ostream& out, plan const& p, PanelOf const& panel_of) {
  constexpr index_t most_titles = 20000;  // more would be most of the file
  bool const titled = 2 * p.layers * p.ranks <= most_titles;
  fmt::print(out,
             "<div class=\"panels\" style=\"grid-template-columns:"
             "repeat(auto-fill,minmax(min(100%,{}px),1fr))\">\n",
             std::clamp<index_t>(bars_across(p.ranks) * 5 / 2, 220, 1130));
  for (index_t row = 0; row < p.layers; ++row) {
    std::int64_t const layer_id = p.layer_ids[static_cast<std::size_t>(row)];
    panel const shown = panel_of(row, titled);
    fmt::print(out, "<figure><figcaption><b>layer {}</b><span>{}</span></figcaption>\n", layer_id,
               shown.caption);
    open_svg(
        out, shown.height,
        fmt::format("{} of every rank in layer {}, before and after", shown.what, layer_id),
        fmt::format(" class=\"crisp\" viewBox=\"0 -100 {} 100\" preserveAspectRatio=\"none\" {}",
                    bars_across(p.ranks), shown.attributes));
    shown.bars();
    out << "</svg></figure>\n";
  }
  out << "</div>\n";
}

}  // namespace examples::report_parts

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the charts of the report share.
#pragma once

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"

namespace examples::report_parts {

/// 1234567 as 1,234,567.
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

/// Where an axis of `ids` has labels: few enough for a narrow window, and at round ids where all
/// ids follow one another.
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

/// Widths are per cent, heights pixels: charts follow the window, and text keeps its size.
[[nodiscard]] inline double percent(index_t i, index_t count) {
  return 100.0 * static_cast<double>(i) / static_cast<double>(count);
}

/// A section of the page: `body` writes what follows the lead.
inline void section(std::ostream& out, std::string_view id, std::string_view title,
                    std::string_view lead, std::function<void()> const& body) {
  fmt::print(out, "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", id, title, lead);
  body();
  out << "</section>\n";
}

/// The begin of a chart as wide as its place and `height` pixels high.
inline void open_svg(std::ostream& out, std::int64_t height, std::string_view label,
                     std::string_view attributes = "") {
  fmt::print(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" height=\"{}\" role=\"img\" "
             "aria-label=\"{}\"{}>\n",
             height, label, attributes);
}

}  // namespace examples::report_parts

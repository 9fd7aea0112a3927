// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/detail/report.hpp>

#include <vector>

namespace plimsoll_test {

/// Copies the members of reports without the padding between them.
inline std::vector<double> report_values(
    std::vector<plimsoll::detail::problem_report> const& reports) {
  std::vector<double> values;
  for (auto const& [result, refused] : reports) {
    auto const& [what, side, where, got, also] = refused;
    values.insert(values.end(), {result.value, result.lower_bound, static_cast<double>(result.work),
                                 static_cast<double>(result.status), static_cast<double>(what),
                                 static_cast<double>(side), static_cast<double>(where), got,
                                 static_cast<double>(also)});
  }
  return values;
}

}  // namespace plimsoll_test

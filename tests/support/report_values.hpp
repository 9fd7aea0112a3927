// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/detail/report.hpp>

#include <initializer_list>
#include <vector>

namespace plimsoll_test {

/// Appends the members of a result and of its fault.
inline void add_report(std::vector<double>& values, std::initializer_list<double> result,
                       plimsoll::fault const& refused) {
  auto const& [what, side, where, got, also] = refused;
  values.insert(values.end(), result);
  values.insert(values.end(), {static_cast<double>(what), static_cast<double>(side),
                               static_cast<double>(where), got, static_cast<double>(also)});
}

/// Copies the members of reports without the padding between them.
inline std::vector<double> report_values(
    std::vector<plimsoll::detail::problem_report> const& reports) {
  std::vector<double> values;
  for (auto const& [result, refused] : reports) {
    add_report(values,
               {result.value, result.lower_bound, static_cast<double>(result.work),
                static_cast<double>(result.status)},
               refused);
  }
  return values;
}

}  // namespace plimsoll_test

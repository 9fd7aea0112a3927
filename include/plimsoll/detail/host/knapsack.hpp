// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `knapsack` refuses.
#pragma once

#include <string>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_knapsack_fault(refused_value const& of) {
  std::string const got = text(of.found().got, " in problem ", of.layer);
  switch (of.found().kind) {
    case fault_kind::capacity:
      of.fail("options.capacities", text("values from 0 to options.capacity, ", of.found().where),
              got);
    case fault_kind::option_count:
      of.fail("options.option_count", text("1 to ", of.found().also, " options of every class"),
              got + of.where("class"));
    case fault_kind::weight:
      of.fail("weights", "at least 0", got + of.where("class") + of.also("option"));
    case fault_kind::value:
      of.fail("values", "numbers below 2^960", got + of.where("class") + of.also("option"));
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about refused loads.
#pragma once

#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// `loads` is the name of the argument with the loads.
inline void throw_load_fault(refused_value const& refused, std::string_view loads = "loads") {
  switch (refused.found().kind) {
    case fault_kind::load:
      refused.fail(loads, "values from 0 to below 2^47",
                   refused.got() + refused.where("expert") + refused.also("step"));
    case fault_kind::total_load:
      refused.fail(loads, "a total below 2^47 per layer", refused.got() + refused.also("step"));
    case fault_kind::tokens:
      refused.fail(loads, "at most 2^31 - 1 tokens per layer", refused.got());
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

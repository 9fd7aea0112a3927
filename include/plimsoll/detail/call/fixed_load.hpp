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
inline void throw_load_fault(refused_value const& of, std::string_view loads = "loads") {
  switch (of.found().kind) {
    case fault_kind::load:
      of.fail(loads, "values from 0 to below 2^47",
              of.got() + of.where("expert") + of.also("step"));
    case fault_kind::total_load:
      of.fail(loads, "a total below 2^47 per layer", of.got() + of.also("step"));
    case fault_kind::tokens:
      of.fail(loads, "at most 2^31 - 1 tokens per layer", of.got());
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

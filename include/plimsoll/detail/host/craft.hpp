// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `craft` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/eplb.hpp>
#include <plimsoll/detail/host/slot_assignment.hpp>
#include <plimsoll/detail/report.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_craft_fault(refused_value const& of) {
  throw_slot_assignment_fault(of);
  throw_eplb_fault(of);
}

}}}  // namespace plimsoll::detail

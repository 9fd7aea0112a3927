// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `slot_assignment` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_slot_assignment_fault(refused_value const& of) {
  throw_topology_fault(of);
  if (of.found().kind == fault_kind::layer_slots) {
    of.fail("layer_slots", "at least 0 in every layer",
            text(of.found().got, " in layer ", of.found().where));
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `refine` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_refinement_fault(refused_value const& of) {
  throw_placement_fault(of);
  throw_map_fault(of);
  switch (of.found().kind) {
    case fault_kind::unusable_slot:
      of.fail("physical_to_logical", "-1 in slots of dead ranks and of no rank",
              of.got() + of.where("slot"));
    case fault_kind::off_node:
      of.fail("physical_to_logical",
              text("replicas on the node that lists their expert, node ", of.found().got),
              text("another node", of.in_layer(), of.where("expert")));
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

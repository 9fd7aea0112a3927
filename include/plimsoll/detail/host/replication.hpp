// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `replicate` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/fixed_load.hpp>
#include <plimsoll/detail/host/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_replication_fault(refused_value const& of) {
  throw_load_fault(of);
  throw_topology_fault(of);
  switch (of.found().kind) {
    case fault_kind::floor:
      of.fail("min_copies", "at least 1 for every expert", of.got() + of.where("expert"));
    case fault_kind::cap_below_floor:
      of.fail("max_copies", "at least min_copies for every expert", of.got() + of.where("expert"));
    case fault_kind::floors:
      of.fail("slots", text("at least ", of.found().got, " on live ranks, for all required copies"),
              text(of.found().also, of.in_layer(), of.where("node")));
    case fault_kind::floors_apart:
      of.fail("replica_anti_affinity",
              "slots for min_copies of every expert under the required rule",
              of.got() + of.where("node"));
    case fault_kind::caps:
      of.fail("max_copies", "a total of at least the slots", of.got() + of.where("node"));
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about refused maps of a placement.
#pragma once

#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// `lists` is the name of the argument with the replicas of every expert.
inline void throw_map_fault(refused_value const& of, std::string_view lists = {}) {
  throw_topology_fault(of);
  switch (of.found().kind) {
    case fault_kind::expert_id:
      of.fail("physical_to_logical", "-1 or an expert of the layer",
              of.got() + of.also("rank") + of.where("slot"));
    case fault_kind::stray_slot:
      of.fail("physical_to_logical", "-1 in slots that belong to no rank",
              of.got() + of.where("slot"));
    case fault_kind::missing_expert:
      of.fail("physical_to_logical", "at least 1 slot of every expert",
              of.got() + of.where("expert"));
    case fault_kind::miscounted:
      of.fail("replica_count", text(of.found().also, " copies, as in physical_to_logical"),
              of.got() + of.where("expert"));
    case fault_kind::shared_rank:
      of.fail("physical_to_logical", "at most 1 replica of an expert on a rank",
              of.got() + of.also("rank") + of.where("expert"));
    case fault_kind::shared_node:
      of.fail("physical_to_logical", "at most 1 replica of an expert on a node",
              of.got() + of.also("node") + of.where("expert"));
    case fault_kind::dead_rank:
      of.fail("physical_to_logical", "-1 in the slots of a rank that is not active",
              of.got() + of.also("rank") + of.where("slot"));
    case fault_kind::replica_offsets:
      of.fail("replica_offsets", "offsets that rise from 0 to at most the number of slots",
              of.got() + of.where("offset"));
    case fault_kind::replica_gap:
      of.fail(lists, "-1 only behind all slots of an expert",
              text("slot ", of.found().got, " behind a -1", of.in_layer(), of.where("expert")));
    case fault_kind::replica_slot:
      of.fail(lists, "slots from 0 to below the number of slots", of.got() + of.where("expert"));
    case fault_kind::replica_twice:
      of.fail(lists, "every slot once",
              text("slot ", of.found().got, " again", of.in_layer(), of.where("expert")));
    case fault_kind::replica_elsewhere:
      of.fail(lists, "slots that hold the expert",
              text("slot ", of.found().also, ", which holds ", of.got(), of.where("expert")));
    case fault_kind::replica_unlisted:
      of.fail(lists, "every slot that holds the expert",
              text("no slot ", of.got(), of.where("expert")));
    case fault_kind::replica_width:
      of.fail("logical_to_physical", text("at least ", of.found().also, " columns"),
              of.got() + of.where("expert"));
    case fault_kind::rank_gap:
      of.fail("rank_experts", "-1 only behind all experts of a rank",
              text("expert ", of.found().got, " behind a -1", of.in_layer(), of.where("rank")));
    case fault_kind::rank_entry:
      of.fail("rank_experts", "-1 or an expert", of.got() + of.where("rank"));
    case fault_kind::rank_width:
      of.fail("rank_experts", text("at least ", of.found().also, " columns"),
              of.got() + of.where("rank"));
    case fault_kind::rank_total:
      of.fail("physical_to_logical", text("at least ", of.found().also, " slots"), of.got());
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

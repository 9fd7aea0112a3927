// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of conversions between the forms of a placement, and of `validate`: checks of shapes
/// and options, and messages about refused maps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_maps_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline constexpr index_t slot_limit = 0x7fffffff;

/// Checks the shape `[layers, slots]` and returns the number of slots.
template <class T>
index_t expect_slots(std::string_view function, std::string_view argument, index_t layers,
                     matrix_ref<T> const& map) {
  expect_extent(function, argument, layers, map.extent(0), "layers");
  expect_between(function, argument, 1, slot_limit, map.extent(1), "slots");
  expect_elements(function, argument, map);
  return map.extent(1);
}

inline replica_source expect_replicas(std::string_view function,
                                      replica_lists_ref const& replicas) {
  auto const& offsets = replicas.replica_offsets;
  expect_between(function, "replicas.replica_offsets", 2, expert_limit + 1, offsets.extent(1),
                 "offsets (experts + 1)");
  expect_elements(function, "replicas.replica_offsets", offsets);
  expect_slots(function, "replicas.replica_slots", offsets.extent(0), replicas.replica_slots);
  return {offsets, replicas.replica_slots, offsets.extent(1) - 1};
}

inline ranked_source expect_ranked(std::string_view function, placement_ref const& placement,
                                   index_t experts, std::string const& argument = "placement") {
  auto const& map = placement.physical_to_logical;
  expect_slots(function, argument + ".physical_to_logical", map.extent(0), map);
  expect_between(function, argument + ".ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(function, argument + ".rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  return ranked_source_of(placement, experts);
}

inline void expect_validatable(std::string_view function, placement_ref const& placement,
                               validation_options const& options) {
  auto const& counts = placement.replica_count;
  expect_ranked(function, placement, counts.extent(1));
  expect_extent(function, "placement.replica_count", placement.physical_to_logical.extent(0),
                counts.extent(0), "layers");
  expect_between(function, "placement.replica_count", 1, expert_limit, counts.extent(1), "experts");
  expect_elements(function, "placement.replica_count", counts);
  static_cast<void>(with_ranks_of(function, options.on, placement.ranks));
}

/// Checks that a placement has the shape of the argument `lists` with the replicas of every expert.
inline void expect_comparable(std::string_view function, placement_ref const& placement,
                              index_t layers, index_t experts, std::string_view lists) {
  expect_extent(function, lists, placement.physical_to_logical.extent(0), layers, "layers");
  expect_extent(function, "placement.replica_count", experts, placement.replica_count.extent(1),
                "experts");
}

inline void throw_resize_fault(refused_value const& of) {
  switch (of.found().kind) {
    case fault_kind::rank_offsets:
      of.fail(of.report.result.value == 0 ? "from.rank_offsets" : "rank_offsets",
              "offsets that rise from 0 to at most the number of slots",
              of.got() + of.where("rank"));
    case fault_kind::expert_id:
      of.fail("from.physical_to_logical", "-1 or an expert of the layer",
              of.got() + of.where("slot"));
    case fault_kind::stray_slot:
      of.fail("from.physical_to_logical", "-1 in slots that belong to no rank",
              of.got() + of.where("slot"));
    case fault_kind::source_rank:
      of.fail("source_ranks", text("-1 or a rank below the ", of.found().also, " of from"),
              text(of.found().got, " for rank ", of.found().where));
    case fault_kind::source_twice:
      of.fail("source_ranks", "every rank of from at most once",
              text("rank ", of.found().where, " ", of.found().got, " times"));
    case fault_kind::rank_room:
      of.fail("rank_offsets",
              text("a slot of rank ", of.found().also, " for every expert that it holds"),
              text("none for expert ", of.got(), of.where("slot")));
    default:
      break;
  }
}

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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placements and their options, without the functions that make them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Read-only view of a placement, the input of other primitives. Arrays are in the policy's memory.
struct placement_ref {
  /// `[layers, slots]`: expert in each slot, slots ordered by rank; -1 in empty slots.
  matrix_ref<std::int32_t const> physical_to_logical = {};
  /// `[layers, experts]`: number of copies of each expert.
  matrix_ref<std::int32_t const> replica_count = {};
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots; slots past the
  /// last offset belong to no rank. Empty: slots are spread evenly, rank r begins at
  /// floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
};

/// Ranks, nodes and constraints of a placement. Arrays are in the policy's memory.
struct placement_options {
  /// Ranks of the placement; the slots of dead ranks stay empty.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots; slots past the
  /// last offset belong to no rank. Empty: slots are spread evenly, rank r begins at
  /// floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Keeps replicas of one expert on different ranks or nodes.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Soft or hard constraint: `preferred` gives way if slots run out, `required` is an error then.
  strictness anti_affinity_strength = strictness::preferred;
  /// Node lists, `[layers, experts]` and `[layers, nodes + 1]`, as `place_groups` writes them: the
  /// experts of each node. Replicas of an expert stay on the ranks of its node. Empty: any rank may
  /// hold any expert.
  matrix_ref<std::int32_t const> node_experts = {};
  matrix_ref<std::int32_t const> node_offsets = {};
};

}}  // namespace plimsoll

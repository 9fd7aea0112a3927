// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placements and their options, without the functions that make them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
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
  /// Number of ranks.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots; slots past the
  /// last offset belong to no rank. Empty: slots are spread evenly, rank r begins at
  /// floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};

  /// Returns the view of one layer, for objects that an engine makes layer by layer; it is their
  /// layer 0.
  /// @throws invalid_input if there is no such layer
  [[nodiscard]] placement_ref of_layer(index_t layer) const {
    detail::expect_between("placement_ref::of_layer", "layer", 0, physical_to_logical.extent(0) - 1,
                           layer, "as layer");
    auto const row = [layer](matrix_ref<std::int32_t const> matrix) {
      if (matrix.data != nullptr) {
        matrix.data += layer * matrix.strides[0];
      }
      matrix.extents[0] = matrix.extents[0] > 0 ? 1 : 0;
      return matrix;
    };
    return {row(physical_to_logical), row(replica_count), ranks, row(rank_offsets)};
  }
};

/// Ranks, nodes and constraints of a placement. Arrays are in the policy's memory.
struct placement_options {
  /// Ranks: number, nodes, liveness and speeds. The slots of dead ranks stay empty, and the load of
  /// a rank is divided by its speed.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots; slots past the
  /// last offset belong to no rank. Empty: slots are spread evenly, rank r begins at
  /// floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Keeps replicas of one expert on different ranks or nodes.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Soft or hard constraint: `preferred` gives way if slots run out, `required` is an error then.
  strictness anti_affinity_strength = strictness::preferred;
  /// Exponent of the loads to plan with, above 0 and at most 1: below 1, every load is replaced by
  /// load^load_exponent, so that a load that was large by chance counts for less. Certificates are
  /// in that unit. About 0.85 helps if the plan is for later steps that are split optimally.
  double load_exponent = 1.0;
  /// `[layers, experts]`: experts of each node, node by node, as `place_groups` writes them.
  /// Replicas of an expert stay on the ranks of its node. Empty: any rank may hold any expert.
  matrix_ref<std::int32_t const> node_experts = {};
  /// `[layers, nodes + 1]`: start of each node's experts in `node_experts`.
  matrix_ref<std::int32_t const> node_offsets = {};
};

}}  // namespace plimsoll

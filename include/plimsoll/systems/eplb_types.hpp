// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of EPLB.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Hierarchical or global load balancing, in the terms of DeepSeek's EPLB.
enum class eplb_policy : std::int32_t {
  automatic,     ///< hierarchical if the nodes divide the groups, as DeepSeek's EPLB chooses
  hierarchical,  ///< groups to nodes, then replicas to the ranks of each node
  global         ///< replicas to any rank; groups are ignored
};

/// Part of the plan that `refine` improves after EPLB.
enum class eplb_refinement : std::int32_t {
  none,     ///< nothing
  packing,  ///< the placement; replica counts stay
  joint     ///< placement and replica counts together
};

/// Ranks, nodes, groups and constraints of EPLB. Arrays are in the policy's memory.
struct eplb_options {
  /// Ranks: number, nodes, liveness and speeds. Dead ranks get no expert, and the load of a rank is
  /// divided by its speed; the reference has neither.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, as in `placement_options`. Empty: slots are
  /// spread evenly, rank r begins at floor(r * slots / ranks), as in the reference.
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Number of expert groups, for group-limited routing; divides the number of experts.
  index_t groups = 1;
  /// Hierarchical or global balancing, or the choice between them that the reference makes.
  eplb_policy policy = eplb_policy::automatic;
  /// Part of the plan that `refine` improves afterwards: nothing, the placement, or also the
  /// replica counts.
  eplb_refinement refine = eplb_refinement::none;
  /// Exponent of the loads to plan with, as in `placement_options`; 1 in the reference.
  double load_exponent = 1.0;
  /// Keeps replicas of one expert on different ranks or nodes; the reference does not.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Soft or hard constraint, as in `placement_options`.
  strictness anti_affinity_strength = strictness::preferred;

  /// Returns whether these options keep each group of experts on one node.
  [[nodiscard]] constexpr bool is_hierarchical() const {
    return policy == eplb_policy::hierarchical ||
           (policy == eplb_policy::automatic && groups > 1 && groups % on.nodes == 0);
  }
};

}}  // namespace plimsoll

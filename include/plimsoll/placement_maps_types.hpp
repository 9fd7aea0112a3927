// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replica lists, and the options of `validate`, without the functions that convert placements.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Slots of every expert as lists in CSR form, in the policy's memory.
struct replica_lists_ref {
  /// `[layers, experts + 1]`: start of each expert's list, rising from 0 to at most slots.
  matrix_ref<std::int32_t const> replica_offsets = {};
  /// `[layers, slots]`: the lists. Outputs have rising slots in each list and -1 after the last
  /// list. Inputs may have any order; entries after the last list are not read.
  matrix_ref<std::int32_t const> replica_slots = {};
};

/// Additional conditions that `validate` checks.
struct validation_options {
  /// Ranks of the placement: a dead rank must hold no expert. `on.ranks` is 0 or that of the
  /// placement; speeds are not read.
  rank_set on = {};
  /// Place that must not hold two replicas of an expert: a rank or a node; `none` for no
  /// restriction.
  anti_affinity replica_anti_affinity = anti_affinity::none;
};

}}  // namespace plimsoll

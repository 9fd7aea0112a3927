// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replica lists, and the options of `validate`, without the functions that convert placements.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
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
  /// Requires that replicas of one expert are on different ranks or nodes.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Number of nodes. Ranks are numbered node by node: node n begins at rank
  /// floor(n * ranks / nodes).
  index_t nodes = 1;
  /// `[ranks]`, in the policy's memory: 0 marks a rank that must hold no expert. Empty: every rank
  /// may hold experts.
  vector_ref<std::uint8_t const> active = {};
};

}}  // namespace plimsoll

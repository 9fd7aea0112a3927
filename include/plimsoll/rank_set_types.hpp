// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of an expert-parallel group, as all options describe them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Ranks of an expert-parallel group, their nodes, liveness and speeds. Arrays are in the policy's
/// memory.
struct rank_set {
  /// Number of ranks, 1 to 32767. A call that takes a placement also accepts 0: the number of ranks
  /// of the placement.
  index_t ranks = 0;
  /// Number of nodes, 1 to ranks. Ranks are numbered node by node: node n begins at rank
  /// floor(n * ranks / nodes).
  index_t nodes = 1;
  /// `[ranks]`: 0 marks a dead rank, which gets no expert and no token. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: speed of each rank, in any unit, 2^-64 to 2^64; a live rank must be at least 2^-16
  /// as fast as the fastest live one. Empty: all ranks have speed 1.
  vector_ref<double const> speeds = {};
};

}}  // namespace plimsoll

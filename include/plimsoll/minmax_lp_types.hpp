// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and optional arrays of `minmax_lp`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The objective of a split.
enum class split_objective : std::int32_t {
  min_peak,      ///< minimises the peak: the load of the most loaded rank
  lexicographic  ///< minimises the peak, then the next highest loads: the most even rank loads
};

/// The ranks, and when solving stops. Arrays are in the policy's memory.
struct minmax_lp_options {
  /// Ranks of the placement; the slots of dead ranks get no load. Nodes are not read.
  rank_set on = {};
  /// The gap between the peak and its lower bound, relative to the bound, at which a split is good
  /// enough. 0: optimal splits only.
  double tolerance = 1e-6;
  /// The most sweeps and augmenting paths of a layer, at least 1.
  index_t max_iterations = index_t{1} << 20;
  split_objective objective = split_objective::min_peak;
};

/// Optional arrays of a step, in the policy's memory.
struct minmax_lp_arrays {
  /// `[layers, ranks]`: the load already on each rank, in the unit of the loads. Empty: none.
  matrix_ref<double const> base_load = {};
  /// Output, `[layers, ranks]`: 1 for the bottleneck ranks, else 0. These ranks prove the lower
  /// bound: their load cannot move to any other rank. Empty: not written.
  matrix_ref<std::uint8_t> bottleneck = {};
};

}}  // namespace plimsoll

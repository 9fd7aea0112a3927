// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, inputs and outputs of `minmax_lp`, without the object that uses them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The objective of a split.
enum class split_objective : std::int32_t {
  min_peak,      ///< minimizes the peak: the load of the most loaded rank
  lexicographic  ///< minimizes the peak, then the next highest loads: the most even rank loads
};

/// The ranks, the objective, and when solving stops. Arrays are in the policy's memory.
struct minmax_lp_options {
  /// The ranks of the placement. Dead ranks get no load, and a rank's load is divided by its speed.
  /// `on.ranks` is that of the placement or 0; only `lplb` reads `on.nodes`.
  rank_set on = {};
  /// The gap between the peak and its lower bound, relative to the bound, at which a split is good
  /// enough. 0: optimal splits only. `lexicographic` does not read it.
  double tolerance = 1e-6;
  /// The most sweeps and augmenting paths of a layer, at least 1.
  index_t max_iterations = index_t{1} << 20;
  /// Room for the placements of later updates: the most slots of a layer, all ranks together. 0: as
  /// many as the placement has.
  index_t max_slots = 0;
  /// Minimizes the peak alone or, if `lexicographic`, also the loads of the ranks below the peak.
  split_objective objective = split_objective::min_peak;
};

/// Optional inputs of one step, in the policy's memory. A null view leaves an input out.
struct minmax_lp_inputs {
  /// `[layers, ranks]`: the load already on each rank, in the unit of the loads.
  matrix_ref<double const> base_load = {};
};

/// Optional outputs of one step, in the policy's memory; null views are not written.
struct minmax_lp_outputs {
  /// `[layers, ranks]`: 1 for the bottleneck ranks, else 0. These ranks prove the lower bound:
  /// their load cannot move to any other rank.
  matrix_ref<std::uint8_t> bottleneck = {};
};

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of GEM.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Use of the slots beyond one for every expert.
enum class spare_slot_use : std::int32_t {
  stay_free,     ///< the search may move experts into them
  hold_replicas  ///< `replicate` fills them, by the loads summed over all steps
};

/// Ranks with their slots, and search limits of GEM. Arrays are in the policy's memory.
struct gem_options {
  /// Ranks to place on; the slots of dead ones stay empty. Nodes are not read. Speeds are refused,
  /// since the curves have them.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, as in `swap_search_options`. Empty: slots are
  /// spread evenly.
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Number of searches from different starts, at least 1.
  index_t restarts = 30;
  /// Largest relative change of a replica's total load in all starts but the first, from 0 to below
  /// 1.
  double noise = 0.2;
  /// Seed of the noise.
  std::uint64_t seed = 0;
  /// A search ends after a swap that lowers the score by less than this fraction of it, 0 to 1.
  double min_gain = 0.001;
  /// Statistic of the step latencies to minimize: `total` or `quantile`, as in
  /// `swap_search_options`.
  latency_objective objective = latency_objective::total;
  /// Fraction of the steps for `latency_objective::quantile`, above 0, at most 1.
  double quantile = 0.95;
  /// Use of the slots beyond one for every expert: the search may move experts into them
  /// (`stay_free`), or `replicate` gives them to the experts with the largest loads
  /// (`hold_replicas`). The paper has none.
  spare_slot_use spare_slots = spare_slot_use::stay_free;
};

}}  // namespace plimsoll

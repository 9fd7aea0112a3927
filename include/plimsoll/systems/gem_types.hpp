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
  /// As in `swap_search_options`.
  rank_set on = {};
  matrix_ref<std::int32_t const> rank_offsets = {};
  index_t restarts = 30;
  double noise = 0.2;
  std::uint64_t seed = 0;
  double min_gain = 0.001;
  latency_objective objective = latency_objective::total;
  double quantile = 0.95;
  /// Use of spare slots. The paper has none: one slot for every expert.
  spare_slot_use spare_slots = spare_slot_use::stay_free;
};

}}  // namespace plimsoll

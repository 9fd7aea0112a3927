// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `swap_search`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Statistic of the step latencies that a search minimizes.
enum class latency_objective : std::int32_t {
  total,    ///< their sum: mean latency
  quantile  ///< one of them: tail latency
};

/// Ranks with their slots, replica counts, and search limits. Arrays are in the policy's memory.
struct swap_search_options {
  /// Ranks to place on; the slots of dead ones stay empty. Nodes are not read. Speeds are refused,
  /// since the cost has them.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots. Empty: slots
  /// are spread evenly, rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// `[layers, experts]`: number of copies of each expert, which share its load evenly. Empty: one
  /// copy of each.
  matrix_ref<std::int32_t const> replica_count = {};
  /// Number of searches from different starts, at least 1. The first start uses the loads as given.
  index_t restarts = 30;
  /// Largest relative change of a replica's total load in the other starts, from 0 to below 1. The
  /// changes are drawn uniformly.
  double noise = 0.2;
  /// Seed of the noise and of the perturbations.
  std::uint64_t seed = 0;
  /// A search ends after a swap that lowers the score by less than this fraction of it, 0 to 1.
  double min_gain = 0.001;
  /// Largest number of swaps of a search, including those of its perturbations.
  std::int64_t max_swaps = INT32_MAX;
  /// Largest number of consecutive plateau moves: swaps that keep the score but shorten the longer
  /// latency of their two ranks. They help if several ranks are slowest in a step. The paper has
  /// none.
  std::int64_t max_plateau_moves = 0;
  /// Largest number of rounds of iterated local search on the best search of each layer. A round
  /// makes a few random swaps and descends again; it is undone if the score has risen. The rounds
  /// end when the score reaches the lower bound; layers of more than 64 slots have none. 0 as in
  /// the paper.
  index_t max_perturbations = 64;
  /// Statistic of the step latencies to minimize: `total`, their sum, or `quantile`, the lowest
  /// time that at least the fraction `quantile` of the steps do not exceed.
  latency_objective objective = latency_objective::total;
  /// Fraction of the steps for `latency_objective::quantile`, above 0, at most 1.
  double quantile = 0.95;
};

}}  // namespace plimsoll

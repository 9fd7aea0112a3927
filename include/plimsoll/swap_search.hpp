// SPDX-License-Identifier: Apache-2.0
/// @file
/// `swap_search` places replicas to minimize the latencies of recorded steps, each that of its
/// slowest rank.
#pragma once

#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/swap_search.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Places the replicas of every layer to minimize the replayed latency of recorded steps:
/// greedy start, swaps, and restarts from other starts.
///
/// The score of a placement is the sum over the steps of the largest cost(rank, tokens of the rank
/// in the step) of any rank, or a quantile over the steps instead of the sum. A start takes the
/// replicas in order of falling load, summed over all steps. Each goes to the rank where the score
/// of the replicas placed so far stays lowest; among several such ranks, to the one with the
/// shortest total time. (A start minimizes the sum even if the score is a quantile.) Ranks without
/// usable slots take no time. Then the search repeatedly makes the swap of two replicas on
/// different ranks, or the move into a free slot, that lowers the score most. It ends when no swap
/// lowers the score, or after a swap that lowers it by less than `min_gain`. It evaluates only
/// swaps that can be the best: one of the two ranks is the slowest of some step, and removing both
/// would gain more than the best swap found so far. Finally, if the layer has at most 64 slots, up
/// to `max_perturbations` rounds of iterated local search improve its best placement. Their
/// descents go on to the last gain, however small. When no swap lowers the score, they try every
/// way to fill the slots of two ranks that together have at most 12.
///
/// Source: GEM (arXiv 2605.19945), algorithms 2 to 4. Extensions: ranks with different numbers of
/// slots, free slots, replicas, dead ranks, quantiles, a lower bound. Copies of an expert share a
/// rank only if a start finds no other free slot.
///
/// @param loads `[steps, layers, experts]`: the trace, in the policy's memory; at least one step;
///   int32, uint32, int64, float, double or generated; each at least 0, the total of a layer over
///   all steps below 2^47
/// @param cost callable as cost(rank, tokens) -> double where the policy runs: `latency_curves`,
///   `latency_table::cost()`, `token_cost` or any other; at least 0, not falling as tokens rise
/// @param options ranks with their slots, replica counts, and search limits
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: expert in each slot, -1 in
///   empty slots; at most 65535 slots
/// @param[out] restart_scores `[layers, restarts]` double: the score of every search; for the best
///   one, its score after the perturbations; optional
/// @return per layer: value = the score; lower_bound = a bound for all placements of these
///   replicas: each step takes at least the time of an idle rank, of the heaviest replica on the
///   fastest rank, and of all ranks together if tokens could be divided at will; status optimal if
///   both are equal, else feasible; work = swaps of all searches
/// @throws invalid_input for shapes and options; for values, naming layer, step and expert or rank;
///   the output is then unspecified
/// @complexity O(slots ranks steps) costs for a start; for a swap, O(steps (slots / ranks)^2) costs
///   for each pair of ranks that is evaluated, at most steps * ranks pairs; in perturbations up to
///   924 steps costs for each pair of ranks with at most 12 slots
/// @workspace a table of costs, 8 bytes per rank and number of tokens, at most 16 MiB; 1 KiB per
///   step for each layer in flight that is perturbed; 8 bytes per layer, expert and step; 4 per
///   slot of every restart; for each problem in flight 16 per rank and step, 52 per step, 8 per
///   slot and 60 per rank, on a device only if that exceeds the shared memory of a block; 4 bytes
///   per slot of every layer if the map is int64
/// @stream synchronizes once
/// @determinism the same bits under every policy and number of threads, for a given seed; ties go
///   to the ranks whose removal would gain most, then to the lowest rank and slot
template <execution_policy P, class Loads, latency_cost Cost, class Placement, class Scores>
std::vector<certificate> swap_search(P const& policy, Loads const& loads, Cost const& cost,
                                     swap_search_options const& options,
                                     Placement&& physical_to_logical, Scores&& restart_scores) {
  detail::checked_call call("swap_search", {{"restarts", options.restarts}});
  auto const load = PLIMSOLL_LOADS(call, "swap_search", loads, "[steps, layers, experts]");
  auto const map = PLIMSOLL_OUTPUT_IDS(call, "swap_search", physical_to_logical, "[layers, slots]");
  matrix_ref<double> const scores =
      PLIMSOLL_OUTPUT(double, call, "swap_search", restart_scores, "[layers, restarts]");
  detail::expect_swap_search(call, load, cost, options, map);
  return detail::run_swap_search(call, detail::resolve(policy), load, cost, options, map, scores);
}

template <execution_policy P, class Loads, latency_cost Cost, class Placement>
std::vector<certificate> swap_search(P const& policy, Loads const& loads, Cost const& cost,
                                     swap_search_options const& options,
                                     Placement&& physical_to_logical) {
  detail::checked_call call("swap_search");
  auto const load = PLIMSOLL_LOADS(call, "swap_search", loads, "[steps, layers, experts]");
  auto const map = PLIMSOLL_OUTPUT_IDS(call, "swap_search", physical_to_logical, "[layers, slots]");
  detail::expect_swap_search(call, load, cost, options, map);
  return detail::run_swap_search(call, detail::resolve(policy), load, cost, options, map, {});
}

/// @brief Searches as the call with output arrays, and returns the placement in memory of the
/// policy.
///
/// @param slots number of slots of every layer, at least one per expert, at most 65535
/// @return the placement with copies of `options.replica_count` and `options.rank_offsets`, and the
///   certificates; the workspace includes the arrays that it keeps
template <execution_policy P, class Loads, latency_cost Cost>
placement<P> swap_search(P const& policy, Loads const& loads, Cost const& cost, index_t slots,
                         swap_search_options const& options) {
  detail::checked_call call("swap_search");
  auto const load = PLIMSOLL_LOADS(call, "swap_search", loads, "[steps, layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  auto const context = detail::resolve(policy);
  detail::expect_slots(call, experts, slots);
  detail::expect_searchable(call, load.extent(0), layers, experts, slots, options);
  detail::expect_cost(call, cost, options.on.ranks);
  auto result = detail::allocate_placement(policy, layers, experts, slots, options.on.ranks,
                                           options.rank_offsets);
  detail::enqueue_counts(context, options.replica_count, result.replica_count.view());
  result.certificates = detail::run_swap_search(call, context, load, cost, options,
                                                result.physical_to_logical.view(), {});
  return result;
}

PLIMSOLL_EXPECT_ON(swap_search, (Loads const& loads, Other const& cost), (loads, cost))
PLIMSOLL_EXPECT_ON(swap_search, (Loads const& loads, Other const& cost, index_t slots),
                   (loads, cost, slots))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

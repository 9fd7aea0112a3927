// SPDX-License-Identifier: Apache-2.0
/// @file
/// `swap_search` places replicas to minimise the latencies of recorded steps, each that of its
/// slowest rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/swap_search.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/latency.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Statistic of the step latencies that a search minimises.
enum class latency_objective : std::int32_t {
  total,    ///< their sum: mean latency
  quantile  ///< one of them: tail latency
};

/// Ranks with their slots, replica counts, and search limits. Arrays are in the policy's memory.
struct swap_search_options {
  /// Number of ranks, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots. Empty: slots
  /// are spread evenly, rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// `[ranks]`: 0 marks a dead rank, whose slots stay empty. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
  /// `[layers, experts]`: number of copies of each expert, which share its load evenly. Empty: one
  /// copy of each.
  matrix_ref<std::int32_t const> replica_count = {};
  /// Number of searches from different starts, at least 1. The first start uses the loads as given.
  index_t restarts = 30;
  /// Largest relative change of a replica's total load in the other starts, which is random; from 0
  /// to below 1.
  double noise = 0.2;
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
  latency_objective objective = latency_objective::total;
  /// For latency_objective::quantile: fraction of steps that take no longer, above 0, at most 1.
  double quantile = 0.95;
};

namespace detail {

inline void expect_searchable(std::string_view name, index_t steps, index_t layers, index_t experts,
                              index_t slots, swap_search_options const& options) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_between(name, "options.ranks", 1, rank_limit, options.ranks, "ranks");
  expect_between(name, "physical_to_logical", experts, expert_limit, slots,
                 "slots (at least one per expert)");
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.ranks);
  if (options.active.data != nullptr) {
    expect_extent(name, "options.active", options.ranks, options.active.extent(0), "ranks");
  }
  if (options.replica_count.data != nullptr) {
    expect_extent(name, "options.replica_count", layers, options.replica_count.extent(0), "layers");
    expect_extent(name, "options.replica_count", experts, options.replica_count.extent(1),
                  "experts");
  }
  expect_between(name, "options.restarts", 1, 1 << 24, options.restarts, "restarts");
  expect_between(name, "options.max_swaps", 0, INT32_MAX, options.max_swaps, "swaps");
  expect_between(name, "options.max_plateau_moves", 0, INT32_MAX, options.max_plateau_moves,
                 "swaps");
  expect_between(name, "options.max_perturbations", 0, 1 << 24, options.max_perturbations,
                 "perturbations");
  expect_number(name, "options.min_gain", 0, 1, options.min_gain);
  if (!(options.noise >= 0 && options.noise < 1)) {
    fail(name, "options.noise", "a number from 0 to below 1", text(options.noise));
  }
  if (!(options.quantile > 0 && options.quantile <= 1)) {
    fail(name, "options.quantile", "a number above 0, at most 1", text(options.quantile));
  }
}

inline step_objective objective_of(swap_search_options const& options, index_t steps) {
  double const within = std::ceil(options.quantile * static_cast<double>(steps));
  return {options.objective == latency_objective::total, steps - static_cast<index_t>(within)};
}

/// Number of token counts per rank whose costs are tabulated, for a table of at most 16 MiB.
inline index_t search_table_width(index_t ranks) {
  return std::min(index_t{1} << 16, (index_t{1} << 21) / ranks);
}

/// Enqueues all kernels of a search. `reports` has one element per layer.
template <class Context, class Loads, class Cost>
void enqueue_swap_search(Context const& context, Loads const& load, Cost const& cost,
                         swap_search_options const& options, matrix_ref<std::int32_t> placement,
                         matrix_ref<double> restart_scores, problem_report* reports) {
  index_t const steps = load.extent(0);
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  index_t const slots = placement.extent(1);
  index_t const restarts = options.restarts;
  buffer<search_layer, Context> const known(context, layers);
  buffer<search_units, Context> const units(context, 1);
  buffer<double, Context> const shares(context, layers * (experts + 1) * steps);
  buffer<double, Context> const totals(context, layers * steps);
  buffer<std::int64_t, Context> const bounds(context, layers * steps);
  buffer<std::uint64_t, Context> const use(context, layers * experts);
  buffer<std::int32_t, Context> const expert_of(context, layers * slots);
  buffer<std::int32_t, Context> const found(context, layers * restarts * slots);
  buffer<std::int64_t, Context> const scores(context, layers * restarts);
  buffer<std::int32_t, Context> const swaps(context, layers * restarts);
  index_t const width = search_table_width(options.ranks);
  buffer<std::int64_t, Context> const table(context, options.ranks * width);
  topology const where{{options.rank_offsets, slots, options.ranks}, 1, options.active};
  step_objective const objective = objective_of(options, steps);
  search_price<Cost> const prices{cost, units.data(), table.data(), width};

  launch(context, layers,
         search_input_body<Loads, Cost>{load, options.replica_count, where, cost, known.data(),
                                        shares.data(), use.data(), expert_of.data(), totals.data(),
                                        reports});
  launch(context, 1, search_units_body{known.data(), layers, steps, width, units.data()});
  search_table_body<Cost> const tabulate{prices};
  launch(context, options.ranks * tabulate.parts(), tabulate);
  launch(context, layers * steps,
         search_bound_body<Cost>{where, prices, experts, steps, known.data(), shares.data(),
                                 totals.data(), bounds.data()});
  swap_search_body<Cost> const search{where,
                                      prices,
                                      objective,
                                      experts,
                                      steps,
                                      restarts,
                                      options.seed,
                                      options.noise,
                                      options.min_gain,
                                      options.max_swaps,
                                      options.max_plateau_moves,
                                      known.data(),
                                      shares.data(),
                                      use.data(),
                                      expert_of.data(),
                                      found.data(),
                                      {scores.data(), layers, restarts},
                                      {swaps.data(), layers, restarts}};
  launch(context, layers * restarts, search);
  if (options.max_perturbations > 0 && slots <= search_perturbation_body<Cost>::most_slots) {
    launch(context, layers,
           search_perturbation_body<Cost>{search, bounds.data(), options.max_perturbations});
  }
  launch(context, layers,
         search_result_body<Cost>{where,
                                  cost,
                                  known.data(),
                                  units.data(),
                                  objective,
                                  experts,
                                  steps,
                                  shares.data(),
                                  bounds.data(),
                                  expert_of.data(),
                                  found.data(),
                                  {scores.data(), layers, restarts},
                                  {swaps.data(), layers, restarts},
                                  placement,
                                  restart_scores,
                                  reports});
}

inline namespace PLIMSOLL_DEVICE_ABI {

template <class P, class Loads, class Cost>
std::vector<certificate> swap_search(std::string_view name, P const& policy, Loads const& load,
                                     Cost const& cost, swap_search_options const& options,
                                     matrix_ref<std::int32_t> placement,
                                     matrix_ref<double> restart_scores) {
  index_t const layers = load.extent(1);
  expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  expect_searchable(name, load.extent(0), layers, load.extent(2), placement.extent(1), options);
  expect_cost(name, cost, options.ranks);
  auto const context = resolve(policy);
  buffer<problem_report, std::remove_const_t<decltype(context)>> const reports(context, layers);
  enqueue_swap_search(context, load, cost, options, placement, restart_scores, reports.data());
  return collect(name, reports, layers, throw_latency_fault);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Places the replicas of every layer to minimise the replayed latency of recorded steps:
/// greedy start, swaps, and restarts from other starts.
///
/// The score of a placement is the sum over the steps of the largest cost(rank, tokens of the rank
/// in the step) of any rank, or a quantile over the steps instead of the sum. A start takes the
/// replicas in order of falling load, summed over all steps. Each goes to the rank where the score
/// of the replicas placed so far stays lowest; among several such ranks, to the one with the
/// shortest total time. (A start minimises the sum even if the score is a quantile.) Ranks without
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
/// @param[out] physical_to_logical `[layers, slots]` int32: expert in each slot, -1 in empty slots;
///   at most 65535 slots
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
///   slot and 60 per rank, on a device only if that exceeds the shared memory of a block
/// @stream synchronises once
/// @determinism the same bits under every policy and number of threads, for a given seed; ties go
///   to the ranks whose removal would gain most, then to the lowest rank and slot
template <execution_policy P, load_tensor_view Loads, detail::latency_cost Cost,
          output_of<std::int32_t, 2> Placement, output_of<double, 2> Scores>
std::vector<certificate> swap_search(P const& policy, Loads const& loads, Cost const& cost,
                                     swap_search_options const& options,
                                     Placement&& physical_to_logical, Scores&& restart_scores) {
  constexpr char const* name = "swap_search";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<double> const scores = detail::argument<2>(name, "restart_scores", restart_scores);
  detail::expect_extent(name, "restart_scores", load.extent(1), scores.extent(0), "layers");
  detail::expect_extent(name, "restart_scores", options.restarts, scores.extent(1), "restarts");
  return detail::swap_search(name, policy, load, cost, options,
                             detail::argument<2>(name, "physical_to_logical", physical_to_logical),
                             scores);
}

template <execution_policy P, load_tensor_view Loads, detail::latency_cost Cost,
          output_of<std::int32_t, 2> Placement>
std::vector<certificate> swap_search(P const& policy, Loads const& loads, Cost const& cost,
                                     swap_search_options const& options,
                                     Placement&& physical_to_logical) {
  return detail::swap_search(
      "swap_search", policy, detail::argument<3>("swap_search", "loads", loads), cost, options,
      detail::argument<2>("swap_search", "physical_to_logical", physical_to_logical), {});
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Places replicas so that recorded steps end early, each as soon as its last rank is through.
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
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// What a search makes of the latencies of all steps.
enum class search_score : std::int32_t {
  total,    ///< their sum: mean latency
  quantile  ///< one of them: tail latency
};

/// Where `swap_search` may put replicas, and how long it goes on. Arrays lie in the policy's
/// memory.
struct swap_search_options {
  /// Ranks of every layer, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: where each rank's slots begin, rising from 0 to at most slots. Empty:
  /// evenly spread, rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// `[ranks]`: 0 for a rank that is dead; its slots stay empty. Empty: all live.
  vector_ref<std::uint8_t const> active = {};
  /// `[layers, experts]`: copies of every expert, which share its load evenly. Empty: one each.
  matrix_ref<std::int32_t const> replica_count = {};
  /// Searches from different starts, at least 1. The first start is that of the loads as they are.
  index_t restarts = 30;
  /// By how much of itself the use of a replica is changed at random in the other starts, from 0 to
  /// below 1.
  double noise = 0.2;
  std::uint64_t seed = 0;
  /// A search ends with a swap that lowers the score by less than this part of it, 0 to 1.
  double min_gain = 0.001;
  /// The most swaps of a search, those of its perturbations included.
  std::int64_t max_swaps = INT32_MAX;
  /// Swaps in a row that may keep the score, if they shorten the longer latency of the two ranks:
  /// a way out where several ranks are last. The paper has none.
  std::int64_t level_swaps = 0;
  /// Rounds of iterated local search on the best search of every layer: a few random swaps, a new
  /// descent, and back if the score has risen. They end at the lower bound, and are left out where
  /// a layer has more than 64 slots. 0: none, as in the paper.
  index_t max_perturbations = 64;
  search_score score = search_score::total;
  /// Of search_score::quantile: the part of steps that take no longer; above 0, to 1.
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
  expect_between(name, "options.level_swaps", 0, INT32_MAX, options.level_swaps, "swaps");
  expect_between(name, "options.max_perturbations", 0, 1 << 24, options.max_perturbations,
                 "perturbations");
  expect_number(name, "options.min_gain", 0, 1, options.min_gain);
  if (!(options.noise >= 0 && options.noise < 1)) {
    fail(name, "options.noise", "a number from 0 to below 1", text(options.noise));
  }
  if (!(options.quantile > 0 && options.quantile <= 1)) {
    fail(name, "options.quantile", "a number above 0, to 1", text(options.quantile));
  }
}

inline step_objective objective_of(swap_search_options const& options, index_t steps) {
  double const within = std::ceil(options.quantile * static_cast<double>(steps));
  return {options.score == search_score::total, steps - static_cast<index_t>(within)};
}

/// Numbers of tokens per rank whose costs are tabulated: 16 MiB at most.
inline index_t search_table_width(index_t ranks) {
  return std::min(index_t{1} << 16, (index_t{1} << 21) / ranks);
}

/// Takes one report of each layer.
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
                                      options.level_swaps,
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
  return collect(name, reports);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Places the replicas of every layer so that recorded steps, replayed, end as early as
/// possible: by swaps from a greedy start, and again from other starts.
///
/// Score of a placement = sum over the steps of max over the ranks of cost(rank, tokens of the rank
/// in the step). A start takes replicas by their use in all steps, the most used first, and puts
/// each where the score of those placed so far stays lowest; of several such ranks, where the rank
/// itself is busy for the shortest time. (For a quantile, too, a start minimises the sum.) Ranks
/// without usable slots take no time. Then of all swaps of two replicas on different ranks, and
/// moves into free slots, the one is made that lowers the score most, until none does or one lowers
/// it by less than `min_gain`. Only swaps that can be the best are evaluated: those with a rank
/// that is the last of some step, as long as its absence would gain more than the best one found.
/// Last, the best placement of a layer of at most 64 slots is improved by `max_perturbations`
/// rounds of iterated local search. Their descents go on to the last gain, however small, and when
/// no swap lowers the score, they try every way to fill the slots of two ranks that have at
/// most 12.
///
/// Source: GEM (arXiv 2605.19945), algorithms 2 to 4. Beyond the paper: ranks with different
/// numbers of slots, free slots, replicas, dead ranks, other scores, a lower bound. Copies of an
/// expert come together on a rank only where a start finds no other room.
///
/// @param loads `[steps, layers, experts]`: the trace, in the policy's memory; at least one step;
///   int32, uint32, int64, float, double or generated; each at least 0, all of a layer together
///   below 2^47
/// @param cost callable as cost(rank, tokens) -> double where the policy runs: `latency_curves`,
///   `latency_table::cost()`, `token_cost` or any other; at least 0, not falling as tokens rise
/// @param options ranks, and how long to search
/// @param[out] physical_to_logical `[layers, slots]` int32, the expert in every slot, -1 in empty
///   ones; at most 65535 slots
/// @param[out] restart_scores `[layers, restarts]` double, the score of every search; that of the
///   best one after its perturbations; may be left out
/// @return per layer: the score; what no placement can go below (in every step: the time of an idle
///   rank, of the heaviest replica on the fastest rank, and of all ranks together if tokens could
///   be divided at will); optimal where both are equal, else feasible; work = swaps of all searches
/// @throws invalid_input for shapes and options; for values, naming layer, step and expert or rank;
///   the output is then unspecified
/// @complexity a start O(slots ranks steps) costs; a swap O(steps (slots / ranks)^2) for each pair
///   of ranks that is looked at, at most steps * ranks of them; in perturbations up to 924 steps
///   costs for each pair of ranks with at most 12 slots
/// @workspace a table of costs, 8 bytes per rank and number of tokens, at most 16 MiB; 1 KiB per
/// step
///   for each layer in flight that is perturbed; 8 bytes per
///   layer, expert and step; 4 per slot of every restart; for each problem in flight 16 per rank
///   and step, 52 per step, 8 per slot and 44 per rank, on a device only where that exceeds the
///   shared memory of a block
/// @stream synchronises once
/// @determinism the same bits under every policy and number of threads, for a seed; ties go to the
///   ranks whose absence would gain most, then to the lowest rank and slot
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

}  // namespace plimsoll

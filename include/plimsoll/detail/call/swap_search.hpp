// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `swap_search`: checks shapes and options, and launches the bodies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/swap_search.hpp>
#include <plimsoll/detail/algorithm/swap_search_inputs.hpp>
#include <plimsoll/detail/algorithm/swap_search_perturbation.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the number of slots of a placement that is to be made.
inline void expect_slots(std::string_view name, index_t experts, index_t slots) {
  expect_between(name, "slots", experts, expert_limit, slots, "slots (at least one per expert)");
}

inline void expect_searchable(std::string_view name, index_t steps, index_t layers, index_t experts,
                              index_t slots, swap_search_options const& options) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_rank_set(name, options.on);
  expect_no_speeds(name, options.on, "the cost of a rank includes its speed");
  expect_between(name, "physical_to_logical", experts, expert_limit, slots,
                 "slots (at least one per expert)");
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  checked_call(name, {{"layers", layers}, {"experts", experts}})
      .expect_given("options.replica_count", options.replica_count, "[layers, experts]");
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
  expect_enumerator(name, "options.objective", latency_objective::quantile, options.objective);
  if (!(options.quantile > 0 && options.quantile <= 1)) {
    fail(name, "options.quantile", "a number above 0, at most 1", text(options.quantile));
  }
}

inline step_objective objective_of(swap_search_options const& options, index_t steps) {
  double const within = __builtin_ceil(options.quantile * static_cast<double>(steps));
  return {options.objective == latency_objective::total, steps - static_cast<index_t>(within)};
}

/// Number of token counts per rank whose costs are tabulated, for a table of at most 16 MiB.
inline index_t search_table_width(index_t ranks) {
  return std::min(index_t{1} << 16, (index_t{1} << 21) / ranks);
}

/// Returns the sizes and limits of a search, without arrays.
template <class Loads>
search_problem problem_of(Loads const& loads, swap_search_options const& options, index_t slots) {
  search_problem result{};
  result.where = {{options.rank_offsets, slots, options.on.ranks}, 1, options.on.active};
  result.objective = objective_of(options, loads.extent(0));
  result.layer_count = loads.extent(1);
  result.steps = loads.extent(0);
  result.experts = loads.extent(2);
  result.restarts = options.restarts;
  result.table_width = search_table_width(options.on.ranks);
  result.seed = options.seed;
  result.noise = options.noise;
  result.min_gain = options.min_gain;
  result.max_swaps = options.max_swaps;
  result.max_plateau_moves = options.max_plateau_moves;
  result.max_perturbations = options.max_perturbations;
  return result;
}

/// Enqueues all kernels of a search. `reports` has one element per layer.
template <class Context, class Loads, class Cost>
void enqueue_swap_search(Context const& context, Loads const& loads, Cost const& cost,
                         swap_search_options const& options, matrix_ref<std::int32_t> placement,
                         matrix_ref<double> restart_scores, problem_report* reports) {
  search_problem const sizes = problem_of(loads, options, placement.extent(1));
  buffer<std::byte, Context> const bytes(
      context, static_cast<index_t>(bytes_taken_by<search_problem>(sizes)));
  scratch memory(bytes.data());
  search_problem const problem = search_problem::in(memory, sizes);
  index_t const layers = problem.layer_count;

  launch(context, layers,
         search_input_body<Loads, Cost>{problem, loads, options.replica_count, cost, reports});
  launch(context, 1, search_units_body{problem});
  search_table_body<Cost> const tabulate{problem, cost};
  launch(context, options.on.ranks * tabulate.parts(), tabulate);
  launch(context, layers * problem.steps, search_bound_body<Cost>{problem, cost});

  swap_search_body<Cost> const search{problem, cost};
  launch(context, layers * problem.restarts, search);
  using perturbation = search_perturbation_body<Cost>;
  if (problem.max_perturbations > 0 && placement.extent(1) <= perturbation::most_slots) {
    launch(context, layers, perturbation{search});
  }
  launch(context, layers,
         search_result_body<Cost>{problem, cost, placement, restart_scores, reports});
}

/// Copies the replica counts of the options, or writes one copy of each expert if there are none.
template <class Context>
void enqueue_counts(Context const& context, matrix_ref<std::int32_t const> replica_count,
                    matrix_ref<std::int32_t> counts) {
  buffer<std::int32_t, Context> ones;
  if (replica_count.data == nullptr) {
    index_t const size = counts.extent(0) * counts.extent(1);
    ones = {context, std::vector<std::int32_t>(static_cast<std::size_t>(size), 1)};
    replica_count = {ones.data(), counts.extent(0), counts.extent(1)};
  }
  copy_rows(context, replica_count, counts);
}

/// Checks the shapes, options and costs of a search that writes `map`.
template <class Loads, class Cost, class Id>
void expect_swap_search(std::string_view name, Loads const& loads, Cost const& cost,
                        swap_search_options const& options, matrix_ref<Id> const& map) {
  expect_searchable(name, loads.extent(0), loads.extent(1), loads.extent(2), map.extent(1),
                    options);
  expect_cost(name, cost, options.on.ranks);
}

/// Searches. `physical_to_logical` holds int32 or int64.
template <class Context, class Loads, class Cost, class Id>
std::vector<certificate> run_swap_search(std::string_view name, Context const& context,
                                         Loads const& loads, Cost const& cost,
                                         swap_search_options const& options,
                                         matrix_ref<Id> physical_to_logical,
                                         matrix_ref<double> restart_scores) {
  int32_ids<Context, Id, 2> const map(context, physical_to_logical);
  return run_planning(
      name, context, loads.extent(1), 1, latency_names, [&](problem_report* reports) {
        enqueue_swap_search(context, loads, cost, options, map.view(), restart_scores, reports);
        map.store();
      });
}

}}}  // namespace plimsoll::detail

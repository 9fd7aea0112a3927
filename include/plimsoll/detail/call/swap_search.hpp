// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `swap_search`: checks shapes and options, and launches the bodies.
#pragma once

#include <algorithm>
#include <cmath>
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
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
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
  if (is_given(name, "options.replica_count", options.replica_count)) {
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

/// Arrays that the kernels of one search share.
template <class Context>
struct search_memory {
  index_t width;  ///< of the table
  buffer<search_layer, Context> known;
  buffer<search_units, Context> units;
  buffer<double, Context> shares;
  buffer<double, Context> totals;
  buffer<std::int64_t, Context> bounds;
  buffer<std::uint64_t, Context> use;
  buffer<std::int32_t, Context> expert_of;
  buffer<std::int32_t, Context> found;
  buffer<std::int64_t, Context> scores;
  buffer<std::int32_t, Context> swaps;
  buffer<std::int64_t, Context> table;

  search_memory(Context const& context, index_t steps, index_t layers, index_t experts,
                index_t slots, index_t restarts, index_t ranks)
      : width(search_table_width(ranks)),
        known(context, layers),
        units(context, 1),
        shares(context, layers * (experts + 1) * steps),
        totals(context, layers * steps),
        bounds(context, layers * steps),
        use(context, layers * experts),
        expert_of(context, layers * slots),
        found(context, layers * restarts * slots),
        scores(context, layers * restarts),
        swaps(context, layers * restarts),
        table(context, ranks * width) {}
};

/// Enqueues the kernels that prepare the layers for their restarts, tabulate costs, and bound the
/// latency of each step.
template <class Context, class Loads, class Cost>
void enqueue_search_inputs(Context const& context, Loads const& loads,
                           matrix_ref<std::int32_t const> replica_count, topology const& where,
                           search_price<Cost> const& prices, search_memory<Context> const& memory,
                           problem_report* reports) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  launch(context, layers,
         search_input_body<Loads, Cost>{.loads = loads,
                                        .replica_count = replica_count,
                                        .where = where,
                                        .cost = prices.cost,
                                        .layers = memory.known.data(),
                                        .shares = memory.shares.data(),
                                        .use = memory.use.data(),
                                        .expert_of = memory.expert_of.data(),
                                        .totals = memory.totals.data(),
                                        .reports = reports});
  launch(context, 1,
         search_units_body{memory.known.data(), layers, steps, prices.width, memory.units.data()});
  search_table_body<Cost> const tabulate{prices};
  launch(context, where.ranks() * tabulate.parts(), tabulate);
  launch(context, layers * steps,
         search_bound_body<Cost>{.where = where,
                                 .prices = prices,
                                 .experts = loads.extent(2),
                                 .steps = steps,
                                 .layers = memory.known.data(),
                                 .shares = memory.shares.data(),
                                 .totals = memory.totals.data(),
                                 .bounds = memory.bounds.data()});
}

/// Enqueues the kernels that search, and those that improve the best search of each layer. Returns
/// the body of the search.
template <class Context, class Loads, class Cost>
swap_search_body<Cost> enqueue_searches(Context const& context, Loads const& loads,
                                        swap_search_options const& options, topology const& where,
                                        search_price<Cost> const& prices,
                                        search_memory<Context> const& memory) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const restarts = options.restarts;
  swap_search_body<Cost> const search{.where = where,
                                      .prices = prices,
                                      .objective = objective_of(options, steps),
                                      .experts = loads.extent(2),
                                      .steps = steps,
                                      .restarts = restarts,
                                      .seed = options.seed,
                                      .noise = options.noise,
                                      .min_gain = options.min_gain,
                                      .max_swaps = options.max_swaps,
                                      .max_plateau_moves = options.max_plateau_moves,
                                      .layers = memory.known.data(),
                                      .shares = memory.shares.data(),
                                      .use = memory.use.data(),
                                      .expert_of = memory.expert_of.data(),
                                      .found = memory.found.data(),
                                      .scores = {memory.scores.data(), layers, restarts},
                                      .swaps = {memory.swaps.data(), layers, restarts}};
  launch(context, layers * restarts, search);
  if (options.max_perturbations > 0 &&
      where.ranges.slots <= search_perturbation_body<Cost>::most_slots) {
    launch(context, layers,
           search_perturbation_body<Cost>{search, memory.bounds.data(), options.max_perturbations});
  }
  return search;
}

/// Enqueues all kernels of a search. `reports` has one element per layer.
template <class Context, class Loads, class Cost>
void enqueue_swap_search(Context const& context, Loads const& loads, Cost const& cost,
                         swap_search_options const& options, matrix_ref<std::int32_t> placement,
                         matrix_ref<double> restart_scores, problem_report* reports) {
  index_t const layers = loads.extent(1);
  index_t const slots = placement.extent(1);
  search_memory<Context> const memory(context, loads.extent(0), layers, loads.extent(2), slots,
                                      options.restarts, options.on.ranks);
  topology const where{{options.rank_offsets, slots, options.on.ranks}, 1, options.on.active};
  search_price<Cost> const prices{cost, memory.units.data(), memory.table.data(), memory.width};
  enqueue_search_inputs(context, loads, options.replica_count, where, prices, memory, reports);
  swap_search_body<Cost> const search =
      enqueue_searches(context, loads, options, where, prices, memory);
  launch(context, layers,
         search_result_body<Cost>{.where = where,
                                  .cost = cost,
                                  .layers = search.layers,
                                  .units = prices.units,
                                  .objective = search.objective,
                                  .experts = search.experts,
                                  .steps = search.steps,
                                  .shares = search.shares,
                                  .bounds = memory.bounds.data(),
                                  .expert_of = search.expert_of,
                                  .found = search.found,
                                  .scores = search.scores,
                                  .swaps = search.swaps,
                                  .physical_to_logical = placement,
                                  .restart_scores = restart_scores,
                                  .reports = reports});
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
  expect_extent(name, "physical_to_logical", loads.extent(1), map.extent(0), "layers");
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
      name, context, loads.extent(1), 1, throw_latency_fault, [&](problem_report* reports) {
        enqueue_swap_search(context, loads, cost, options, map.view(), restart_scores, reports);
        map.store();
      });
}

}}}  // namespace plimsoll::detail

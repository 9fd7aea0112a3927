// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `gem` and `trace_length_latencies`: checks shapes and options, launches the bodies, and
/// names refused values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/history.hpp>
#include <plimsoll/detail/algorithm/latency.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/replication.hpp>
#include <plimsoll/detail/call/swap_search.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replication_types.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/systems/gem_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline swap_search_options search_options_of(gem_options const& options,
                                             matrix_ref<std::int32_t const> replica_count) {
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .replica_count = replica_count,
          .restarts = options.restarts,
          .noise = options.noise,
          .seed = options.seed,
          .min_gain = options.min_gain,
          .max_perturbations = 0,
          .objective = options.objective,
          .quantile = options.quantile};
}

/// Checks the shapes and options of a plan.
inline void expect_gem(std::string_view function, index_t steps, index_t layers, index_t experts,
                       index_t slots, gem_options const& options) {
  expect_searchable(function, steps, layers, experts, slots, search_options_of(options, {}));
  expect_enumerator(function, "options.spare_slots", spare_slot_use::hold_replicas,
                    options.spare_slots);
}

inline void expect_trace_lengths(std::string_view function, index_t steps, index_t planned_until,
                                 std::vector<index_t> const& lengths) {
  expect_between(function, "planned_until", 1, steps - 1, planned_until,
                 "steps (one must be left)");
  for (index_t const length : lengths) {
    expect_between(function, "lengths", 1, planned_until, length, "steps");
  }
}

inline replication_options replication_options_of(gem_options const& options) {
  return {.where = {.on = options.on, .rank_offsets = options.rank_offsets}};
}

/// Returns the number of reports of `enqueue_gem` per layer; the last are those of the search.
inline index_t gem_reports(gem_options const& options) {
  return options.spare_slots == spare_slot_use::hold_replicas ? 2 : 1;
}

/// Enqueues the replica counts and the search. `reports` has `gem_reports` rows, each with one
/// element per layer.
template <class Context, class Loads>
void enqueue_gem(Context const& context, Loads const& loads, latency_lookup const& cost,
                 gem_options const& options, matrix_ref<std::int32_t> placement,
                 matrix_ref<std::int32_t> counts, problem_report* reports) {
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  if (options.spare_slots == spare_slot_use::hold_replicas) {
    buffer<double, Context> const memory(context, layers * experts);
    matrix_ref<double> const sums(memory.data(), layers, experts);
    enqueue_sum_steps(context, loads, sums);
    enqueue_replicate(context, matrix_ref<double const>(sums), placement.extent(1),
                      replication_options_of(options), counts, reports);
    reports += layers;
  } else {
    enqueue_counts(context, {}, counts);
  }
  enqueue_swap_search(context, loads, cost, search_options_of(options, counts), placement, {},
                      reports);
}

/// Plans layers whose shapes and options the caller has checked. The outputs hold int32 or int64.
template <class Context, class Loads, class Id, class Count>
std::vector<certificate> run_gem(std::string_view function, Context const& context,
                                 Loads const& loads, latency_lookup const& cost,
                                 gem_options const& options, matrix_ref<Id> physical_to_logical,
                                 matrix_ref<Count> replica_count) {
  index_t const layers = loads.extent(1);
  int32_ids<Context, Id, 2> const placement(context, physical_to_logical);
  int32_ids<Context, Count, 2> const counts(context, replica_count);
  auto const all =
      run_planning(function, context, layers, gem_reports(options), [&](problem_report* reports) {
        enqueue_gem(context, loads, cost, options, placement.view(), counts.view(), reports);
        placement.store();
        counts.store();
      });
  return {all.end() - layers, all.end()};
}

/// Plans on traces of several lengths and replays the unseen steps under each plan. Writes the mean
/// latencies to `out`, `[lengths, layers]`.
template <class Context, class Loads>
void run_trace_lengths(std::string_view function, Context const& context, Loads const& loads,
                       latency_lookup const& cost, gem_options const& options, index_t slots,
                       index_t planned_until, std::vector<index_t> const& lengths,
                       matrix_ref<double> out) {
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  index_t const unseen = loads.extent(0) - planned_until;
  buffer<std::int32_t, Context> const map(context, layers * slots);
  buffer<std::int32_t, Context> const copies(context, layers * experts);
  buffer<double, Context> const latencies(context, unseen * layers);
  matrix_ref<std::int32_t> const placement(map.data(), layers, slots);
  matrix_ref<std::int32_t> const counts(copies.data(), layers, experts);
  matrix_ref<double> const of_step(latencies.data(), unseen, layers);
  placement_ref const plan{.physical_to_logical = placement,
                           .replica_count = counts,
                           .ranks = options.on.ranks,
                           .rank_offsets = options.rank_offsets};
  matrix_ref<double const> of_layer = of_step;
  std::swap(of_layer.extents[0], of_layer.extents[1]);
  std::swap(of_layer.strides[0], of_layer.strides[1]);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    run_gem(function, context, part_of(loads, {planned_until - lengths[i], lengths[i]}), cost,
            options, placement, counts);
    run_latencies(function, context, part_of(loads, {planned_until, unseen}), plan, cost,
                  {.of_step = of_step});
    launch(context, layers,
           step_means_body<matrix_ref<double const>>{of_layer, unseen,
                                                     rows_from(out, static_cast<index_t>(i))});
  }
}

}}}  // namespace plimsoll::detail

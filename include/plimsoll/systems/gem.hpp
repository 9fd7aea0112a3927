// SPDX-License-Identifier: Apache-2.0
/// @file
/// GEM: places experts so that ranks of unequal speed finish each step at about the same time.
/// Source: GEM (arXiv 2605.19945).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/host/gem.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>
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
  index_t ranks = 0;
  matrix_ref<std::int32_t const> rank_offsets = {};
  vector_ref<std::uint8_t const> active = {};
  index_t restarts = 30;
  double noise = 0.2;
  std::uint64_t seed = 0;
  double min_gain = 0.001;
  latency_objective objective = latency_objective::total;
  double quantile = 0.95;
  /// Use of spare slots. The paper has none: one slot for every expert.
  spare_slot_use spare_slots = spare_slot_use::stay_free;
};

namespace detail {

inline swap_search_options search_options_of(gem_options const& options,
                                             matrix_ref<std::int32_t const> replica_count) {
  return {.ranks = options.ranks,
          .rank_offsets = options.rank_offsets,
          .active = options.active,
          .replica_count = replica_count,
          .restarts = options.restarts,
          .noise = options.noise,
          .seed = options.seed,
          .min_gain = options.min_gain,
          .max_perturbations = 0,
          .objective = options.objective,
          .quantile = options.quantile};
}

template <class Context, class Loads>
std::vector<certificate> gem(std::string_view name, Context const& context, Loads const& load,
                             latency_lookup const& cost, gem_options const& options,
                             matrix_ref<std::int32_t> placement, matrix_ref<std::int32_t> counts) {
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  index_t const slots = placement.extent(1);
  swap_search_options const search = search_options_of(options, counts);
  expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  expect_extent(name, "replica_count", experts, counts.extent(1), "experts");
  expect_searchable(name, load.extent(0), layers, experts, slots, search);

  bool const replicates = options.spare_slots == spare_slot_use::hold_replicas;
  buffer<problem_report, Context> const reports(context, replicates ? 2 * layers : layers);
  if (replicates) {
    buffer<double, Context> const memory(context, layers * experts);
    matrix_ref<double> const sums(memory.data(), layers, experts);
    launch(context, layers * tiles_of(experts), sum_steps_body<Loads, double>{load, sums});
    replication_options how;
    how.where.ranks = options.ranks;
    how.where.rank_offsets = options.rank_offsets;
    how.where.active = options.active;
    enqueue_replicate(context, matrix_ref<double const>(sums), slots, how, counts, reports.data());
  } else {
    buffer<std::int32_t, Context> const ones(
        context, std::vector<std::int32_t>(static_cast<std::size_t>(layers * experts), 1));
    copy_rows(context, matrix_ref<std::int32_t const>(ones.data(), layers, experts), counts);
  }
  enqueue_swap_search(context, load, cost, search, placement, {},
                      reports.data() + (replicates ? layers : 0));
  auto const all = collect(name, reports, layers, throw_gem_fault);
  return {all.end() - layers, all.end()};
}

/// Generated loads from step `first` on.
template <class F>
struct steps_from {
  generated<F, 3> loads;
  index_t first;

  PLIMSOLL_HD auto operator()(index_t t, index_t l, index_t e) const {
    return loads(first + t, l, e);
  }
};

template <class T>
tensor_ref<T> steps_of(tensor_ref<T> loads, index_t first, index_t count) {
  loads.data += first * loads.strides[0];
  loads.extents[0] = count;
  return loads;
}
template <class F>
auto steps_of(generated<F, 3> const& loads, index_t first, index_t count) {
  return generate(steps_from<F>{loads, first}, count, loads.extent(1), loads.extent(2));
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Plans every layer as GEM does: `swap_search` over a short trace, with each rank's own
/// latency curve as the cost.
///
/// @param loads `[steps, layers, experts]`: the trace, as for `swap_search`, in the policy's
///   memory; 16 steps suffice in the paper, and `trace_length_latencies` measures how many suffice
///   for other models
/// @param curves latency curves of all ranks, in the policy's memory
/// @param options ranks with their slots, and search limits
/// @param[out] physical_to_logical `[layers, slots]` int32: expert in each slot, -1 in empty slots;
///   there may be more slots than experts, see `gem_options::spare_slots`
/// @param[out] replica_count `[layers, experts]` int32
/// @return per layer, the certificate of `swap_search`, in the unit of the curves
/// @throws invalid_input as `latency_table`, `replicate` and `swap_search`
/// @complexity as `swap_search`
/// @workspace as `latency_table` and `swap_search`; 8 bytes per expert of every layer
/// @stream synchronises
/// @determinism the same bits under every policy and number of threads, for a seed
template <execution_policy P, load_tensor_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 2> Counts>
std::vector<certificate> gem(P const& policy, Loads const& loads, latency_curves const& curves,
                             gem_options const& options, Placement&& physical_to_logical,
                             Counts&& replica_count) {
  auto const context = detail::resolve(policy);
  detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      "gem", context, curves, options.ranks, options.active);
  return detail::gem("gem", context, detail::argument<3>("gem", "loads", loads), pieces.lookup(),
                     options,
                     detail::argument<2>("gem", "physical_to_logical", physical_to_logical),
                     detail::argument<2>("gem", "replica_count", replica_count));
}

/// @brief Measures the latency of unseen steps under plans made from traces of several lengths; a
/// trace is long enough when more steps no longer lower it.
///
/// For each length n, plans with `gem` on the n steps before `planned_until`, and replays all steps
/// from there on.
///
/// @param loads `[steps, layers, experts]`, as for `gem`
/// @param curves as for `gem`
/// @param options as for `gem`
/// @param slots number of slots of every layer
/// @param planned_until number of steps that plans may use, 1 to steps - 1
/// @param lengths lengths of the traces, each 1 to planned_until
/// @param[out] latencies `[lengths, layers]` double: mean latency of an unseen step, in the unit of
///   the curves
/// @throws invalid_input as `gem`, and for steps outside the trace
/// @complexity one `gem` and one replay of the unseen steps for each length
/// @workspace as `gem`; 8 bytes per unseen step and layer
/// @stream synchronises
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, output_of<double, 2> Out>
void trace_length_latencies(P const& policy, Loads const& loads, latency_curves const& curves,
                            gem_options const& options, index_t slots, index_t planned_until,
                            std::vector<index_t> const& lengths, Out&& latencies) {
  constexpr char const* name = "trace_length_latencies";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<double> const out = detail::argument<2>(name, "latencies", latencies);
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  index_t const unseen = load.extent(0) - planned_until;
  detail::expect_between(name, "planned_until", 1, load.extent(0) - 1, planned_until,
                         "steps (one must be left)");
  for (index_t const length : lengths) {
    detail::expect_between(name, "lengths", 1, planned_until, length, "steps");
  }
  detail::expect_between(name, "slots", experts, expert_limit, slots,
                         "slots (at least one per expert)");
  detail::expect_extent(name, "latencies", static_cast<index_t>(lengths.size()), out.extent(0),
                        "lengths");
  detail::expect_extent(name, "latencies", layers, out.extent(1), "layers");
  detail::expect_searchable(name, planned_until, layers, experts, slots,
                            detail::search_options_of(options, {}));
  auto const context = detail::resolve(policy);
  using kept = std::remove_const_t<decltype(context)>;
  detail::latency_pieces<kept> const pieces(name, context, curves, options.ranks, options.active);
  detail::buffer<std::int32_t, kept> const map(context, layers * slots);
  detail::buffer<std::int32_t, kept> const copies(context, layers * experts);
  detail::buffer<double, kept> const steps(context, unseen * layers);
  matrix_ref<std::int32_t> const placement(map.data(), layers, slots);
  matrix_ref<std::int32_t> const counts(copies.data(), layers, experts);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    detail::gem(name, context, detail::steps_of(load, planned_until - lengths[i], lengths[i]),
                pieces.lookup(), options, placement, counts);
    detail::latencies(name, context, detail::steps_of(load, planned_until, unseen),
                      {.physical_to_logical = placement,
                       .replica_count = counts,
                       .ranks = options.ranks,
                       .rank_offsets = options.rank_offsets},
                      pieces.lookup(), {steps.data(), unseen, layers}, {});
    detail::launch(
        context, layers,
        detail::mean_steps_body{{steps.data(), unseen, layers}, static_cast<index_t>(i), out});
  }
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

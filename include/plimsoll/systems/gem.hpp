// SPDX-License-Identifier: Apache-2.0
/// @file
/// GEM: places experts so that ranks of unequal speed finish each step at about the same time.
/// Source: GEM (arXiv 2605.19945).
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/gem.hpp>
#include <plimsoll/detail/host/swap_search.hpp>
#include <plimsoll/detail/pipeline/gem.hpp>
#include <plimsoll/detail/pipeline/latency.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/systems/gem_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

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
  constexpr char const* name = "gem";
  auto const context = detail::resolve(policy);
  detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      name, context, curves, options.on.ranks, options.on.active);
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<std::int32_t> const placement =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const counts = detail::argument<2>(name, "replica_count", replica_count);
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", experts, counts.extent(1), "experts");
  detail::expect_searchable(name, load.extent(0), layers, experts, placement.extent(1),
                            detail::search_options_of(options, counts));
  return detail::run_gem(name, context, load, pieces.lookup(), options, placement, counts);
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
  detail::expect_trace_lengths(name, load.extent(0), planned_until, lengths);
  detail::expect_between(name, "slots", experts, expert_limit, slots,
                         "slots (at least one per expert)");
  detail::expect_extent(name, "latencies", static_cast<index_t>(lengths.size()), out.extent(0),
                        "lengths");
  detail::expect_extent(name, "latencies", layers, out.extent(1), "layers");
  detail::expect_searchable(name, planned_until, layers, experts, slots,
                            detail::search_options_of(options, {}));
  auto const context = detail::resolve(policy);
  detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      name, context, curves, options.on.ranks, options.on.active);
  detail::run_trace_lengths(name, context, load, pieces.lookup(), options, slots, planned_until,
                            lengths, out);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

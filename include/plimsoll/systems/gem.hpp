// SPDX-License-Identifier: Apache-2.0
/// @file
/// GEM: places experts so that ranks of unequal speed finish each step at about the same time.
/// Source: GEM (arXiv 2605.19945).
#pragma once

#include <iterator>
#include <type_traits>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/gem.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/swap_search.hpp>
#include <plimsoll/detail/dispatch.hpp>
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
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: expert in each slot, -1 in
///   empty slots; there may be more slots than experts, see `gem_options::spare_slots`
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @return per layer, the certificate of `swap_search`, in the unit of the curves
/// @throws invalid_input as `latency_table`, `replicate` and `swap_search`
/// @complexity as `swap_search`
/// @workspace as `latency_table` and `swap_search`; 8 bytes per expert of every layer;
///   4 bytes per element of an int64 output
/// @stream synchronizes
/// @determinism the same bits under every policy and number of threads, for a seed
template <execution_policy P, class Loads, class Placement, class Counts>
std::vector<certificate> gem(P const& policy, Loads const& loads, latency_curves const& curves,
                             gem_options const& options, Placement&& physical_to_logical,
                             Counts&& replica_count) {
  detail::checked_call call("gem");
  auto const load = PLIMSOLL_LOADS(call, "gem", loads, "[steps, layers, experts]");
  auto const placement = PLIMSOLL_OUTPUT_IDS(call, "gem", physical_to_logical, "[layers, slots]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "gem", replica_count, "[layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_gem(call, load.extent(0), layers, experts, placement.extent(1), options);

  auto const context = detail::resolve(policy);
  detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      call, context, curves, options.on.ranks, options.on.active);
  return detail::run_gem(call, context, load, pieces.lookup(), options, placement, counts);
}

/// @brief Plans every layer as the call with output arrays, and returns the placement in memory of
/// the policy.
///
/// @param slots number of slots of every layer, at least one per expert, at most 65535
/// @return the placement with a copy of `options.rank_offsets`, and the certificates; the workspace
///   includes the arrays that it keeps
template <execution_policy P, class Loads>
placement<P> gem(P const& policy, Loads const& loads, latency_curves const& curves, index_t slots,
                 gem_options const& options) {
  detail::checked_call call("gem");
  auto const load = PLIMSOLL_LOADS(call, "gem", loads, "[steps, layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_slots(call, experts, slots);
  detail::expect_gem(call, load.extent(0), layers, experts, slots, options);
  auto result = detail::allocate_placement(policy, layers, experts, slots, options.on.ranks,
                                           options.rank_offsets);
  result.certificates =
      gem(policy, load, curves, options, result.physical_to_logical, result.replica_count);
  return result;
}

PLIMSOLL_EXPECT_ON(gem, (Loads const& loads, latency_curves const& curves), (loads, curves))
PLIMSOLL_EXPECT_ON(gem, (Loads const& loads, latency_curves const& curves, index_t slots),
                   (loads, curves, slots))

/// @brief Measures the latency of unseen steps under plans made from traces of several lengths; a
/// trace is long enough when more steps no longer lower it.
///
/// For each length n, plans with `gem` on the n steps before `planned_until`, and replays all steps
/// from there on.
///
/// @param loads `[steps, layers, experts]`, as for `gem`
/// @param curves as for `gem`
/// @param slots number of slots of every layer
/// @param planned_until number of steps that plans may use, 1 to steps - 1
/// @param lengths lengths of the traces, each 1 to planned_until
/// @param options as for `gem`
/// @param[out] latencies `[lengths, layers]` double: mean latency of an unseen step, in the unit of
///   the curves
/// @throws invalid_input as `gem`, and for steps outside the trace
/// @complexity one `gem` and one replay of the unseen steps for each length
/// @workspace as `gem`; 8 bytes per unseen step and layer
/// @stream synchronizes
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Out>
void trace_length_latencies(P const& policy, Loads const& loads, latency_curves const& curves,
                            index_t slots, index_t planned_until,
                            std::vector<index_t> const& lengths, gem_options const& options,
                            Out&& latencies) {
  detail::checked_call call("trace_length_latencies", {{"lengths", std::ssize(lengths)}});
  auto const load =
      PLIMSOLL_LOADS(call, "trace_length_latencies", loads, "[steps, layers, experts]");
  matrix_ref<double> const out =
      PLIMSOLL_OUTPUT(double, call, "trace_length_latencies", latencies, "[lengths, layers]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_trace_lengths(call, load.extent(0), planned_until, lengths);
  detail::expect_slots(call, experts, slots);
  detail::expect_gem(call, planned_until, layers, experts, slots, options);

  auto const context = detail::resolve(policy);
  detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      call, context, curves, options.on.ranks, options.on.active);
  detail::run_trace_lengths(call, context, load, pieces.lookup(), options, slots, planned_until,
                            lengths, out);
}

PLIMSOLL_EXPECT_ON(trace_length_latencies,
                   (Loads const& loads, latency_curves const& curves, index_t slots,
                    index_t planned_until, std::vector<index_t> const& lengths),
                   (loads, curves, slots, planned_until, lengths))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

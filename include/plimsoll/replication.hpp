// SPDX-License-Identifier: Apache-2.0
/// @file
/// `replicate` chooses the number of copies of each expert.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/replication.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replication_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Owns replica counts, and the certificates of the call that made them.
template <unqualified_policy P, class Context = kept_context<P>>
struct replication {
  /// `[layers, experts]`, in the policy's memory: number of copies of each expert.
  array<std::int32_t, P, 2, Context> replica_count;
  /// `[layers]`, as `replicate` returns them.
  std::vector<certificate> certificates;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Distributes each layer's slots among its experts to minimize the largest load per copy.
///
/// Every expert starts with its minimum. Each further slot goes to the expert with the largest
/// load / copies among those below their maximum; ties go to the lowest id (with node lists: to the
/// first in the list). This is the rule of DeepSeek's EPLB and d'Hondt's apportionment. Experts of
/// a layer without load count as equally loaded. With required anti-affinity an expert is skipped
/// once no further copy of it can be placed. The counts are optimal among those allowed, except
/// that loads per copy which round to the same fixed-point number count as equal.
///
/// @param loads `[layers, experts]`, token copies, in the policy's memory; int32, uint32, int64,
///   float, double or generated; each at least 0, the total of a layer below 2^47
/// @param slots slots per layer, at least one per expert
/// @param options minima and maxima, and the ranks that will hold the copies
/// @param[out] replica_count `[layers, experts]` int32 or int64; the sum of a layer is `slots`, or
///   the number of slots that `options.where` makes usable
/// @return per layer: value = the largest load per copy; status optimal, with lower_bound equal to
///   value, if that is proven, else feasible, with value one unit of fixed point above lower_bound;
///   work = copies beyond the minima
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node,
///   in which case `replica_count` is unspecified
/// @complexity O(experts + (slots - experts) log experts) per layer; with required anti-affinity
///   O(experts (ranks + slots))
/// @workspace 20 bytes per expert and problem in flight (with required anti-affinity 24), 64 bytes
///   per layer, and 4 bytes for each int64 element, from the policy
/// @stream synchronizes once
/// @determinism the same bits under every policy; a load per copy is compared in 47-bit fixed
///   point (units of at most 2^-46 of the layer's total)
template <execution_policy P, class Loads, class Counts>
std::vector<certificate> replicate(P const& policy, Loads const& loads, index_t slots,
                                   replication_options const& options, Counts&& replica_count) {
  detail::checked_call call("replicate");
  auto const load = PLIMSOLL_LOADS(call, "replicate", loads, "[layers, experts]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "replicate", replica_count, "[layers, experts]");
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  detail::expect_replication_options(call, layers, experts, slots, options);

  auto const context = detail::resolve(policy);
  detail::int32_ids const out(context, counts);
  return detail::run_planning(call, context, layers, 1, [&](detail::problem_report* reports) {
    detail::enqueue_replicate(context, load, slots, options, out.view(), reports);
    out.store();
  });
}

/// @brief Distributes each layer's slots among its experts as the call with an output array, and
/// returns the counts in memory of the policy.
///
/// @return replica counts and certificates; the workspace includes 4 bytes per expert of every
///   layer that they keep
template <execution_policy P, class Loads>
replication<P> replicate(P const& policy, Loads const& loads, index_t slots,
                         replication_options const& options) {
  auto const load = PLIMSOLL_LOADS(unchecked, "replicate", loads, "[layers, experts]");
  replication<P> result{.replica_count = {policy, load.extent(0), load.extent(1)},
                        .certificates = {}};
  result.certificates = replicate(policy, load, slots, options, result.replica_count);
  return result;
}

PLIMSOLL_EXPECT_BRACES(rank_set, "{.where = {.on = {.ranks = ...}}}", replicate,
                       (Loads const& loads, index_t slots), (loads, slots))
PLIMSOLL_EXPECT_BRACES(placement_options, "{.where = {.on = ...}}", replicate,
                       (Loads const& loads, index_t slots), (loads, slots))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRAFT: gives each layer as many replicas as recorded steps show to be worth their memory.
/// Source: CRAFT, cost-aware expert replica allocation with fine-grained layerwise estimations
/// (algorithms 1 to 3).
#pragma once

#include <cstdint>
#include <utility>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/planning/craft.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/craft_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Returns the number of replicas that fit in `bytes_per_rank` on every rank, for use as
/// `craft_options::budget`.
inline index_t replica_budget(std::int64_t bytes_per_rank, std::int64_t expert_bytes,
                              index_t ranks) {
  constexpr char const* name = "replica_budget";
  detail::expect_between(name, "ranks", 1, rank_limit, ranks, "ranks");
  detail::expect_between(name, "bytes_per_rank", 0, INT64_MAX / ranks, bytes_per_rank, "bytes");
  detail::expect_between(name, "expert_bytes", 1, INT64_MAX, expert_bytes, "bytes");
  return bytes_per_rank / expert_bytes * ranks;
}

/// A placement in memory of a policy, and how the replicas of its layers were chosen.
template <unqualified_policy P, class Context = kept_context<P>>
struct craft_placement : placement<P, Context> {
  gain_estimate estimate;
  replica_allocation allocation;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Estimates the gain in balancedness from replicas in every layer: CRAFT's algorithm 1.
///
/// For every count r, `assign_slots` divides the E + r slots of every layer among the ranks,
/// `eplb` with these options fills them for the loads summed over the steps, and `replay` averages
/// the balancedness of the recorded steps, with the split of the options. The gain is this average
/// minus the one for r = 0.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory, as for `replay`; the total of a
///   layer over all steps below 2^47
/// @param options ranks, replica counts and the options of placement; the budget is not used
/// @return base and gains; a layer without load has gain 0
/// @throws invalid_input for wrong shapes and options; and for wrong loads, naming layer, step and
///   expert
/// @complexity O(steps layers (experts + counts slots)), and `eplb` for each count; two passes over
///   the loads; with the optimal split also `replay`'s for that split
/// @workspace that of `replay` and `eplb` for (counts + 1) times the layers; and for each of these,
///   4 bytes per slot, 12 bytes per expert and 4 bytes per rank. The loads are not copied
/// @stream synchronizes
/// @determinism the same bits under every policy
template <execution_policy P, class Loads>
gain_estimate estimate_gains(P const& policy, Loads const& loads, craft_options const& options) {
  detail::checked_call call("estimate_gains");
  auto const load = PLIMSOLL_LOADS(call, "estimate_gains", loads, "[steps, layers, experts]");
  auto const context = detail::resolve(policy);
  auto const how = detail::checked(call, context, options);
  return detail::estimate_gains(call, context, load, how, detail::make_sums(context, load, how));
}

PLIMSOLL_EXPECT_ON(estimate_gains, (Loads const& loads), (loads))

/// @brief Divides a budget of replicas among the layers (CRAFT's algorithm 2), and chooses the
/// budget if it is automatic.
///
/// `knapsack` finds the replica counts with the largest total gain within the budget; of equal
/// ones, those with fewer replicas in later layers. No layer gets replicas with a negative gain,
/// unless the budget must be used up.
///
/// The automatic budget is the knee of the curve of largest gain over replicas per rank: the point
/// furthest above the straight line between its ends. Up to there an additional replica gains more
/// than the average replica, beyond it less. (CRAFT's own rule, the largest gain per replica, picks
/// the smallest budget whenever additional replicas gain less and less.) The curve is always that
/// of the gain, whatever the objective.
///
/// @param estimate the result of `estimate_gains`, or numbers from elsewhere
/// @param options ranks, budget, objective, and use of the budget
/// @return replicas of every layer, their gains, and the curve
/// @throws invalid_input for wrong shapes and options; for a gain that is not a number; and for a
///   budget that must be used up and cannot be
/// @complexity O(layers counts C), where C is layers times the largest count
/// @workspace as `knapsack` with a capacity of C
/// @stream synchronizes
/// @determinism the same bits under every policy
template <execution_policy P>
replica_allocation allocate_replicas(P const& policy, gain_estimate const& estimate,
                                     craft_options const& options) {
  return detail::allocate_replicas("allocate_replicas", detail::resolve(policy), estimate, options);
}

PLIMSOLL_EXPECT_ON(allocate_replicas, (gain_estimate const& estimate), (estimate))

/// @brief Plans every layer as CRAFT does: `estimate_gains`, `allocate_replicas`, and then, for the
/// replicas of each layer, `assign_slots` and `eplb` on the summed loads.
///
/// Layers get different numbers of slots. Within a layer, the slots of two ranks differ by at most
/// one, and so do their totals over all layers; the totals are equal if the number of ranks divides
/// the number of all slots.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory, as for `estimate_gains`
/// @param options ranks, budget, and the options of placement
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64, where slots is at least the
///   number of experts plus the largest replica count: the expert in every slot; -1 beyond the
///   slots of the layer
/// @param[out] rank_offsets `[layers, ranks + 1]` int32 or int64: the first slot of each rank
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @return the estimate, the allocation, and the certificates of the placement
/// @throws invalid_input as `estimate_gains`, `allocate_replicas` and `eplb`
/// @complexity as `estimate_gains` and `allocate_replicas`
/// @workspace as `estimate_gains` and `allocate_replicas`; 4 bytes per element of an int64 output
/// @stream synchronizes
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Placement, class Offsets, class Counts>
craft_plan craft(P const& policy, Loads const& loads, craft_options const& options,
                 Placement&& physical_to_logical, Offsets&& rank_offsets, Counts&& replica_count) {
  auto const context = detail::resolve(policy);
  auto const how = detail::checked("craft", context, options);
  detail::checked_call call("craft", {{"ranks", how.on.ranks}});
  auto const load = PLIMSOLL_LOADS(call, "craft", loads, "[steps, layers, experts]");
  auto const placement = PLIMSOLL_OUTPUT_IDS(call, "craft", physical_to_logical, "[layers, slots]");
  auto const offsets = PLIMSOLL_OUTPUT_IDS(call, "craft", rank_offsets, "[layers, ranks + 1]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "craft", replica_count, "[layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_budget(call, how);
  detail::expect_between(call, "physical_to_logical", experts + how.replica_counts.back(),
                         0x7fffffff, placement.extent(1),
                         "slots (experts and the largest replica count)");
  detail::expect_plannable(call, layers, experts, placement.extent(1),
                           detail::eplb_options_of(how, {}));

  auto const sums = detail::make_sums(context, load, how);
  craft_plan plan;
  plan.estimate = detail::estimate_gains(call, context, load, how, sums);
  plan.allocation = detail::allocate_replicas(call, context, plan.estimate, how);
  plan.certificates =
      detail::plan_layers(call, context, matrix_ref<double const>(sums.data(), layers, experts),
                          plan.allocation.replicas, how, placement, offsets, counts);
  return plan;
}

/// @brief Plans every layer as the call with output arrays, and returns the placement in memory of
/// the policy.
///
/// @return the placement, whose map has as many slots as experts and the largest replica count
///   together; the estimate and the allocation. The workspace includes the arrays that it keeps
template <execution_policy P, class Loads>
craft_placement<P> craft(P const& policy, Loads const& loads, craft_options const& options) {
  detail::checked_call call("craft");
  auto const load = PLIMSOLL_LOADS(call, "craft", loads, "[steps, layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  auto const how = detail::checked(call, detail::resolve(policy), options);
  craft_placement<P> result{
      {.physical_to_logical = {policy, layers, experts + how.replica_counts.back()},
       .replica_count = {policy, layers, experts},
       .rank_offsets = {policy, layers, how.on.ranks + 1},
       .ranks = how.on.ranks,
       .certificates = {}},
      {},
      {}};
  craft_plan found = craft(policy, load, how, result.physical_to_logical, result.rank_offsets,
                           result.replica_count);
  result.certificates = std::move(found.certificates);
  result.estimate = std::move(found.estimate);
  result.allocation = std::move(found.allocation);
  return result;
}

PLIMSOLL_EXPECT_ON(craft, (Loads const& loads), (loads))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

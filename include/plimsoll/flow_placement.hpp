// SPDX-License-Identifier: Apache-2.0
/// @file
/// `place_by_flow` replicates and places experts for steps to come, in which tokens are split
/// among the copies anew; `certify` proves how good a plan is for recorded steps.
#pragma once

#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/flow_placement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A placement in memory of a policy, and what each layer's plan leaves out. It has no
/// certificates.
template <unqualified_policy P, class Context = kept_context<P>>
struct flow_plan : placement<P, Context> {
  std::vector<flow_placement_report> reports;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Chooses copies and ranks of experts so that steps to come can be split evenly over the
/// ranks, by how the experts' loads vary together in recorded steps.
///
/// A plan that packs the mean of recorded loads tightly is no better than others a few steps later.
/// This one keeps every rank a way out instead: with the optimal split, a rank that is overloaded
/// in a step passes tokens to the other ranks that hold the same experts, its partners, and these
/// to theirs.
///
/// 1. Every load is raised to the power of `load_exponent`, every step is scaled to the same total,
///    and steps without load are left out. (Without any load, slot i holds expert i mod experts,
///    or, if a constraint forbids it, all experts count as equally loaded.) More than 16 steps are
///    averaged in 16 blocks of consecutive steps.
/// 2. Every expert gets one copy. Each further slot goes to the expert with the largest load per
///    copy while that exceeds half the load of an average rank; then to the heaviest expert with
///    one copy; and if all have two, to the largest load per copy. No expert gets more copies than
///    ranks.
/// 3. Experts are placed in order of falling load per copy, each copy on the rank whose load, in
///    the steps in which the expert is busy, is lowest. With `split_rule::optimal`, the load of an
///    average rank counts 0.3 more for each fault: the rank has its share of copies of replicated
///    experts already; it is a partner of a rank that holds the expert; partners connect it with
///    one already. Thus partners are many, different, and connect all ranks. For each copy on
///    another node it counts 0.03 more.
///
/// 4. Slots that uneven ranks leave get further copies, each of the expert with the largest load
///    per copy that is not on the rank; but not with `max_partners`.
///
/// With `options.in_use`, the plan is aligned with the plan in use. With `options.keep_bonus`, the
/// score of a rank that holds the expert already is lower by the bonus, and an expert with fewer
/// copies than in use comes earlier in step 2.
///
/// Two copies of an expert are never on one rank, so that slots above the number of experts stay
/// empty. With a history of one step, loads cannot be seen to vary together, and the plan balances
/// that step.
///
/// Source: this library. The order of placement is that of LPT, as in DeepSeek's EPLB.
///
/// @param loads `[steps, layers, experts]`: tokens of recorded steps, in the policy's memory; at
///   least one step; int32, uint32, int64, float, double or generated; each at least 0, the total
///   of a layer below 2^47 in every step
/// @param options ranks with their slots, the split in use, and the bound on partners
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: expert in each slot, -1 in
///   empty slots; at most 65535 slots. May be the array of `options.in_use`
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @return per layer: the steps without load, and the slots of live ranks that stay empty
/// @throws invalid_input for shapes and options; for values, naming layer, step and expert or rank;
///   if the slots of live ranks cannot hold one copy of each expert. The outputs are then
///   unspecified
/// @complexity O(steps experts + experts (log experts + ranks) + copies ranks) per layer;
///   O(copies^2 ranks) for the copies of one expert if `max_partners` is below ranks - 1; with
///   `in_use` that of `align`, too
/// @workspace for each problem in flight 92 bytes per expert and 100 per rank, with the optimal
///   split or a bound on partners one bit per pair of ranks, with a bonus 28 bytes per slot and 8
///   per expert, with a `load_exponent` below 1 another 8 per expert; 48 bytes per layer; 4 for
///   each int64 element; with `in_use` 4 bytes per slot and that of `align`
/// @stream synchronizes once; with `in_use` also as `align`
/// @determinism the same bits under every policy; ties go to the lowest expert and rank
template <execution_policy P, class Loads, class Placement, class Counts>
std::vector<flow_placement_report> place_by_flow(P const& policy, Loads const& loads,
                                                 flow_placement_options const& options,
                                                 Placement&& physical_to_logical,
                                                 Counts&& replica_count) {
  detail::checked_call call("place_by_flow");
  auto const load = PLIMSOLL_LOADS(call, "place_by_flow", loads, "[steps, layers, experts]");
  auto const map =
      PLIMSOLL_OUTPUT_IDS(call, "place_by_flow", physical_to_logical, "[layers, slots]");
  auto const copies =
      PLIMSOLL_OUTPUT_IDS(call, "place_by_flow", replica_count, "[layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_flow_placement(call, load.extent(0), layers, experts, map.extent(1), options,
                                "physical_to_logical");

  return detail::run_flow_placement(call, detail::resolve(policy), load, options, map, copies);
}

/// @brief Plans every layer as the call with output arrays, and returns the placement in memory of
/// the policy.
///
/// @param slots number of slots of every layer, at least one per expert, at most 65535
/// @return the placement with a copy of `options.rank_offsets`, and the reports; the workspace
///   includes the arrays that it keeps
template <execution_policy P, class Loads>
flow_plan<P> place_by_flow(P const& policy, Loads const& loads, index_t slots,
                           flow_placement_options const& options) {
  detail::checked_call call("place_by_flow");
  auto const load = PLIMSOLL_LOADS(call, "place_by_flow", loads, "[steps, layers, experts]");
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_flow_placement(call, load.extent(0), layers, experts, slots, options, "slots");
  flow_plan<P> result{detail::allocate_placement(policy, layers, experts, slots, options.on.ranks,
                                                 options.rank_offsets),
                      {}};
  result.reports =
      detail::run_flow_placement(call, detail::resolve(policy), load, options,
                                 result.physical_to_logical.view(), result.replica_count.view());
  return result;
}

PLIMSOLL_EXPECT_ON(place_by_flow, (Loads const& loads), (loads))
PLIMSOLL_EXPECT_ON(place_by_flow, (Loads const& loads, index_t slots), (loads, slots))

/// @brief Proves how good a plan is for recorded steps whose tokens are split optimally.
///
/// @param loads `[steps, layers, experts]`, as for `place_by_flow`
/// @param placement any plan, in the policy's memory; a live rank holds every expert
/// @param options liveness and speeds of the ranks
/// @return per layer: value = the sum over the steps of the smallest possible peak under this plan
///   (as `minmax_lp` with a tolerance of 0); lower_bound = the sum over the steps of a bound for
///   all plans with these slots. The j heaviest experts use at most j ranks, plus one for each
///   extra slot. Their load, divided by the summed speed of that many of the fastest ranks, bounds
///   the peak; the bound is the largest over all j, and at least the mean. status optimal if value
///   and bound are equal in every step, else feasible; work = sweeps and augmenting paths of all
///   steps
/// @throws invalid_input for shapes; for values, naming layer and expert, rank or slot
/// @complexity per step, that of `minmax_lp::solve` and O(experts log experts + ranks)
/// @workspace as `minmax_lp`; 8 bytes per rank; 72 per step and layer; 24 per expert for each
///   problem in flight
/// @stream synchronizes
/// @determinism the same bits under every policy
template <execution_policy P, class Loads>
std::vector<certificate> certify(P const& policy, Loads const& loads,
                                 placement_ref const& placement,
                                 certify_options const& options = {}) {
  detail::checked_call call("certify");
  auto const load = PLIMSOLL_LOADS(call, "certify", loads, "[steps, layers, experts]");
  detail::expect_between(call, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::expect_extent(call, "placement.physical_to_logical", load.extent(1),
                        placement.physical_to_logical.extent(0), "layers");
  detail::expect_extent(call, "placement.replica_count", load.extent(2),
                        placement.replica_count.extent(1), "experts");
  return detail::run_certify(call, detail::resolve(policy), load, placement, options.on);
}

PLIMSOLL_EXPECT_ON(certify, (Loads const& loads, placement_ref const& placement),
                   (loads, placement))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

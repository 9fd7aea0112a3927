// SPDX-License-Identifier: Apache-2.0
/// @file
/// `place` assigns replicas of experts to the slots of ranks; `place_groups` assigns groups of
/// experts to nodes.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/placement.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Assigns every replica to a slot greedily, heaviest first, to keep the load of the most
/// loaded rank low.
///
/// Each replica of an expert weighs load / copies. Replicas are placed in order of falling weight,
/// each on the rank with a free slot that is least loaded with it (ties: the lowest rank), as in
/// DeepSeek's EPLB. Among replicas of equal weight, all first copies precede all second copies and
/// so on, each time in order of rising expert (with node lists: in the order of the list). If every
/// rank has exactly one slot and all are used, replicas keep the order in which `replicate` creates
/// them, as in EPLB (not with speeds or anti-affinity).
///
/// With speeds, the load of a rank is divided by its speed. Anti-affinity narrows the choice of
/// ranks first. With either, all replicas of an expert are placed one after another. Required
/// anti-affinity is satisfied whenever any placement of the counts satisfies it: a replica without
/// an allowed free slot displaces others along the shortest augmenting path to a free slot.
///
/// In a layer without load slot i holds expert i mod experts, if the counts are those and no
/// constraint forbids it; else its experts count as equally loaded. Its value and bound are 0.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param replica_count `[layers, experts]` int32 or int64, 1 to 32767 each; their sum is at most
///   the number of slots of live ranks (with node lists: on each node)
/// @param options ranks with their slots, nodes, speeds, and constraints
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64; -1 in slots left empty
/// @return per layer: value = load (over speed) of the most loaded rank; lower_bound, for these
///   replica counts = the largest of the mean over ranks with slots, the heaviest replica, the
///   lightest pair of replicas that must share a rank, and, if all slots are filled, the least load
///   of the rank with the heaviest replica and of the rank with the most slots; status optimal if
///   value and bound are equal, else feasible; work = replicas placed
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node;
///   for required anti-affinity that no placement of the counts satisfies. `physical_to_logical` is
///   then unspecified
/// @complexity O(experts log experts + slots log ranks) per layer; with speeds or anti-affinity
///   O(experts log experts + slots ranks), plus O(experts slots) for each replica that displaces
///   others
/// @workspace 16 bytes per expert and 24 per rank for each problem in flight (with anti-affinity up
///   to 8 and 20 more), 64 bytes per layer, and 4 bytes for each int64 element, from the policy
/// @stream synchronizes once
/// @determinism the same bits under every policy; weights are 47-bit fixed point, load / copies
///   rounded down; a cost is one correctly rounded division by the speed
template <execution_policy P, class Loads, class Counts, class Placement>
std::vector<certificate> place(P const& policy, Loads const& loads, Counts const& replica_count,
                               placement_options const& options, Placement&& physical_to_logical) {
  detail::checked_call call("place");
  auto const load = PLIMSOLL_LOADS(call, "place", loads, "[layers, experts]");
  auto const counts = PLIMSOLL_IDS(call, "place", replica_count, "[layers, experts]");
  auto const placement = PLIMSOLL_OUTPUT_IDS(call, "place", physical_to_logical, "[layers, slots]");
  index_t const layers = load.extent(0);
  detail::expect_placeable(call, layers, load.extent(1), placement.extent(1), options);

  auto const context = detail::resolve(policy);
  detail::int32_ids const copies(context, counts);
  detail::int32_ids const out(context, placement);
  return detail::run_planning(call, context, layers, 1, [&](detail::problem_report* reports) {
    copies.load();
    detail::enqueue_place(context, load, copies.view(), options, out.view(), reports);
    out.store();
  });
}

/// @brief Assigns every replica to a slot as the call with an output array, and returns the
/// placement in memory of the policy.
///
/// @param slots number of slots of every layer
/// @return the placement with copies of `replica_count` and `options.rank_offsets`, and the
///   certificates; the workspace includes the arrays that it keeps
template <execution_policy P, class Loads, class Counts>
placement<P> place(P const& policy, Loads const& loads, Counts const& replica_count, index_t slots,
                   placement_options const& options) {
  detail::checked_call call("place");
  auto const load = PLIMSOLL_LOADS(call, "place", loads, "[layers, experts]");
  auto const counts = PLIMSOLL_IDS(call, "place", replica_count, "[layers, experts]");
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  detail::expect_placeable(call, layers, experts, slots, options, "options", "slots");
  auto result = detail::allocate_placement(policy, layers, experts, slots, options.on.ranks,
                                           options.rank_offsets);
  detail::copy_ids(detail::resolve(policy), counts, result.replica_count.view());
  result.certificates =
      place(policy, load, result.replica_count, options, result.physical_to_logical);
  return result;
}

PLIMSOLL_EXPECT_ON(place, (Loads const& loads, Other const& counts), (loads, counts))
PLIMSOLL_EXPECT_ON(place, (Loads const& loads, Other const& counts, index_t slots),
                   (loads, counts, slots))

/// @brief Assigns each group of experts to one node, so that tokens routed to a group cross to one
/// node only: the first step of DeepSeek's hierarchical EPLB.
///
/// Expert e belongs to group floor(e * groups / experts). Groups are placed in order of falling
/// load (ties: the lowest group), each on the node that is least loaded with it, per unit of speed
/// of its live ranks with slots. The capacity of a node is its share of the groups in proportion to
/// its slots, rounded up, but no more groups than its slots hold. If these capacities do not hold
/// all groups, the capacity of each node is the number of groups that its slots hold. If all nodes
/// have equal speed and a capacity of exactly one group, and no capacity is left over, groups keep
/// their order. `replicate`, `place` and `refine` take the resulting lists as options.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param groups number of groups; divides the number of experts
/// @param slots slots of every layer, at least one per expert
/// @param options ranks with their slots, nodes, speeds; anti-affinity and node lists are ignored
/// @param[out] node_experts `[layers, experts]` int32: experts of each node, node by node; within a
///   node group by group, in the order of placement
/// @param[out] node_offsets `[layers, nodes + 1]` int32: start of each node's experts
/// @return per layer: value = the largest load of a node per unit of speed (without speeds: per
///   live rank with slots); lower_bound for it; work = groups placed
/// @throws invalid_input for shapes and options; for values, naming layer and expert or rank; if
///   the slots of the nodes do not hold all groups. The outputs are then unspecified
/// @complexity O(experts + slots + groups log groups + groups nodes) per layer
/// @workspace 12 bytes per expert, 20 per group, 32 per node and 4 for each group that the slots
///   could hold, for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronizes once
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class NodeExperts, class NodeOffsets>
std::vector<certificate> place_groups(P const& policy, Loads const& loads, index_t groups,
                                      index_t slots, placement_options const& options,
                                      NodeExperts&& node_experts, NodeOffsets&& node_offsets) {
  detail::checked_call call("place_groups");
  auto const load = PLIMSOLL_LOADS(call, "place_groups", loads, "[layers, experts]");
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  placement_options where = options;
  where.node_experts = {};
  where.node_offsets = {};
  detail::expect_between(call, "loads", 1, expert_limit, experts, "experts");
  detail::expect_between(call, "slots", experts, 0x7fffffff, slots,
                         "slots (at least one per expert)");
  detail::expect_placeable(call, layers, experts, slots, where);
  detail::expect_groups(call, experts, groups);
  call.know({"nodes", options.on.nodes});
  matrix_ref<std::int32_t> const experts_of =
      PLIMSOLL_OUTPUT(int32, call, "place_groups", node_experts, "[layers, experts]");
  matrix_ref<std::int32_t> const offsets =
      PLIMSOLL_OUTPUT(int32, call, "place_groups", node_offsets, "[layers, nodes + 1]");

  auto const context = detail::resolve(policy);
  return detail::run_planning(call, context, layers, 1, [&](detail::problem_report* reports) {
    detail::enqueue_place_groups(context, load, groups, slots, where, experts_of, offsets, reports);
  });
}

PLIMSOLL_EXPECT_ON(place_groups, (Loads const& loads, index_t groups, index_t slots),
                   (loads, groups, slots))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

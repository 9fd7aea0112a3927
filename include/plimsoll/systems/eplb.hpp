// SPDX-License-Identifier: Apache-2.0
/// @file
/// EPLB: replicates the heavy experts, then spreads all replicas over the ranks.
/// Source: DeepSeek's EPLB (github.com/deepseek-ai/EPLB).
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/eplb.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Plans every layer as DeepSeek's EPLB does: `replicate`, then `place`; before them
/// `place_groups` if the policy is hierarchical, after them `refine` if `options.refine` asks for
/// it.
///
/// For every shape that the reference accepts, the result equals the reference's slot by slot,
/// provided that all compared loads (load / copies of experts, and sums on ranks) differ by more
/// than the rounding of float32. The reference rounds them to float32 and leaves the order of ties
/// to that rounding and to its sort. Here they are compared in 47-bit fixed point, load / copies
/// rounded down. Among ties, first copies precede second copies, then the lowest expert id and the
/// lowest rank win. Only one divisibility is required: groups must divide the experts. Ranks that
/// cannot have equally many slots differ by one slot, and nodes likewise by one rank.
///
/// @param loads `[layers, experts]`, token copies, in the policy's memory; int32, uint32, int64,
///   float, double or generated; each at least 0, the total of a layer below 2^47
/// @param options ranks, nodes, groups and constraints
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: expert in each slot, -1 in
///   empty slots (those of dead ranks, and those that required anti-affinity leaves unused)
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @return per layer, the certificate of `place`: the load of the most loaded rank, and a lower
///   bound for all placements of the same replicas (on the same nodes); with refinement, the
///   certificate of `refine`
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node;
///   if the allowed slots cannot hold one copy of each expert
/// @complexity O(experts log experts + slots log ranks) per layer; as `place` and `refine` with
///   speeds, anti-affinity or refinement
/// @workspace as the steps; 64 bytes per layer and step; 4 bytes for each int64 element;
///   hierarchical: 4 bytes per expert and node of every layer
/// @stream synchronizes once
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Placement, class Counts>
std::vector<certificate> eplb(P const& policy, Loads const& loads, eplb_options const& options,
                              Placement&& physical_to_logical, Counts&& replica_count) {
  detail::checked_call call("eplb");
  auto const load = PLIMSOLL_LOADS(call, "eplb", loads, "[layers, experts]");
  auto const placement = PLIMSOLL_OUTPUT_IDS(call, "eplb", physical_to_logical, "[layers, slots]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "eplb", replica_count, "[layers, experts]");
  detail::expect_plannable(call, load.extent(0), load.extent(1), placement.extent(1), options);

  return detail::run_eplb(call, detail::resolve(policy), load, options, placement, counts);
}

/// @brief Plans every layer as the call with output arrays, and returns the placement in memory of
/// the policy.
///
/// @param slots number of slots of every layer, at least one per expert
/// @return the placement with a copy of `options.rank_offsets`, and the certificates; the workspace
///   includes the arrays that it keeps
template <execution_policy P, class Loads>
placement<P> eplb(P const& policy, Loads const& loads, index_t slots, eplb_options const& options) {
  detail::checked_call call("eplb");
  auto const load = PLIMSOLL_LOADS(call, "eplb", loads, "[layers, experts]");
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  detail::expect_plannable(call, layers, experts, slots, options, "slots");
  auto result = detail::allocate_placement(policy, layers, experts, slots, options.on.ranks,
                                           options.rank_offsets);
  result.certificates =
      eplb(policy, load, options, result.physical_to_logical, result.replica_count);
  return result;
}

PLIMSOLL_EXPECT_ON(eplb, (Loads const& loads), (loads))
PLIMSOLL_EXPECT_ON(eplb, (Loads const& loads, index_t slots), (loads, slots))

/// @brief Computes the reference's three maps from the reference's arguments: loads, replicas,
/// groups, nodes and ranks.
///
/// Equals `eplb` with these options. The number of replicas is the number of slots in
/// `physical_to_logical`.
///
/// @param loads `[layers, experts]`, as for `eplb`
/// @param replicas number of slots of every layer
/// @param groups number of expert groups
/// @param nodes number of nodes
/// @param ranks number of ranks
/// @param[out] physical_to_logical `[layers, replicas]` int32 or int64 (the reference's type):
///   expert in each slot
/// @param[out] logical_to_physical `[layers, experts, width]` int32 or int64: each expert's slots,
///   rising, then -1; a width of replicas - experts + 1 holds any result
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @return as `eplb`
/// @throws invalid_input as `eplb`, and for an expert with more copies than `width`
/// @complexity as `eplb`, and O(slots + experts width) per layer
/// @workspace as `eplb`, and 4 bytes per slot and 8 per expert for each problem in flight
/// @stream synchronizes once
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Placement, class Inverse, class Counts>
std::vector<certificate> rebalance_experts(P const& policy, Loads const& loads, index_t replicas,
                                           index_t groups, index_t nodes, index_t ranks,
                                           Placement&& physical_to_logical,
                                           Inverse&& logical_to_physical, Counts&& replica_count) {
  detail::checked_call call("rebalance_experts", {{"replicas", replicas}});
  auto const load = PLIMSOLL_LOADS(call, "rebalance_experts", loads, "[layers, experts]");
  auto const placement =
      PLIMSOLL_OUTPUT_IDS(call, "rebalance_experts", physical_to_logical, "[layers, replicas]");
  auto const inverse = PLIMSOLL_OUTPUT_IDS(call, "rebalance_experts", logical_to_physical,
                                           "[layers, experts, width]");
  auto const counts =
      PLIMSOLL_OUTPUT_IDS(call, "rebalance_experts", replica_count, "[layers, experts]");
  eplb_options const options{.on = {.ranks = ranks, .nodes = nodes}, .groups = groups};
  detail::expect_plannable(call, load.extent(0), load.extent(1), replicas, options);
  detail::expect_between(call, "logical_to_physical", 1, detail::slot_limit, inverse.extent(2),
                         "as the width");

  return detail::run_rebalance(call, detail::resolve(policy), load, options, placement, inverse,
                               counts);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// EPLB: replicates the heavy experts, then spreads all replicas over the ranks.
/// Source: DeepSeek's EPLB (github.com/deepseek-ai/EPLB).
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/host/eplb.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Hierarchical or global load balancing, in the terms of DeepSeek's EPLB.
enum class eplb_policy : std::int32_t {
  automatic,     ///< hierarchical if the nodes divide the groups, as DeepSeek's EPLB chooses
  hierarchical,  ///< groups to nodes, then replicas to the ranks of each node
  global         ///< replicas to any rank; groups are ignored
};

/// Part of the plan that `refine` improves after EPLB.
enum class eplb_refinement : std::int32_t {
  none,     ///< nothing
  packing,  ///< the placement; replica counts stay
  joint     ///< placement and replica counts together
};

/// Ranks, nodes, groups and constraints of EPLB. Arrays are in the policy's memory.
struct eplb_options {
  /// Number of ranks, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`, as in `placement_options`: first slot of each rank. Empty: slots are
  /// spread evenly, rank r begins at floor(r * slots / ranks), as in the reference.
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Number of nodes, 1 to ranks: node n begins at rank floor(n * ranks / nodes).
  index_t nodes = 1;
  /// Number of expert groups, for group-limited routing; divides the number of experts.
  index_t groups = 1;
  eplb_policy policy = eplb_policy::automatic;
  eplb_refinement refine = eplb_refinement::none;
  /// As in `placement_options`; the reference has none of them.
  vector_ref<std::uint8_t const> active = {};
  vector_ref<double const> speeds = {};
  anti_affinity replica_anti_affinity = anti_affinity::none;
  strictness anti_affinity_strength = strictness::preferred;

  /// Returns whether these options keep each group of experts on one node.
  [[nodiscard]] constexpr bool is_hierarchical() const {
    return policy == eplb_policy::hierarchical ||
           (policy == eplb_policy::automatic && groups > 1 && groups % nodes == 0);
  }
};

namespace detail {

inline placement_options placement_options_of(eplb_options const& options) {
  return {.ranks = options.ranks,
          .rank_offsets = options.rank_offsets,
          .nodes = options.nodes,
          .active = options.active,
          .speeds = options.speeds,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength};
}

inline void expect_plannable(std::string_view name, index_t layers, index_t experts, index_t slots,
                             eplb_options const& options) {
  expect_replicable(name, "physical_to_logical", experts, slots);
  expect_placeable(name, layers, experts, slots, placement_options_of(options));
  if (options.policy != eplb_policy::global) {
    expect_groups(name, experts, options.groups);
  }
  if (options.is_hierarchical()) {
    expect_anti_affinity_on_a_node(name, "options", options.replica_anti_affinity);
  }
}

/// Returns the number of steps of EPLB, each of which writes one report per layer.
inline index_t eplb_steps(eplb_options const& options) {
  return 2 + options.is_hierarchical() + (options.refine != eplb_refinement::none);
}

/// Enqueues all steps without waiting for their reports. After a step has refused a layer, the
/// later steps read that layer's unspecified arrays; they check what they read, so this is
/// harmless.
template <class Context, class Loads>
void enqueue_eplb(Context const& context, Loads const& load, eplb_options const& options,
                  matrix_ref<std::int32_t> placement, matrix_ref<std::int32_t> counts,
                  problem_report* reports) {
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  index_t const slots = placement.extent(1);
  placement_options where = placement_options_of(options);
  index_t step = 0;
  auto const next = [&] { return reports + layers * step++; };
  buffer<std::int32_t, Context> lists;
  if (options.is_hierarchical()) {
    lists = buffer<std::int32_t, Context>(context, layers * (experts + options.nodes + 1));
    matrix_ref<std::int32_t> const node_experts(lists.data(), layers, experts);
    matrix_ref<std::int32_t> const node_offsets(lists.data() + layers * experts, layers,
                                                options.nodes + 1);
    enqueue_place_groups(context, load, options.groups, slots, where, node_experts, node_offsets,
                         next());
    where.node_experts = node_experts;
    where.node_offsets = node_offsets;
  }
  enqueue_replicate(context, load, slots, {.where = where}, counts, next());
  enqueue_place(context, load, counts, where, placement, next());
  if (options.refine != eplb_refinement::none) {
    refinement_options how;
    how.max_trials = options.refine == eplb_refinement::joint ? how.max_trials : 0;
    enqueue_refine(context, load, where, how, placement, counts, next());
  }
}

inline namespace PLIMSOLL_DEVICE_ABI {

template <class Policy, class Loads>
std::vector<certificate> eplb(std::string_view name, Policy const& policy, Loads const& load,
                              eplb_options const& options, matrix_ref<std::int32_t> placement,
                              matrix_ref<std::int32_t> counts,
                              tensor_ref<std::int32_t> const* inverse = nullptr) {
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  expect_plannable(name, layers, experts, placement.extent(1), options);
  expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  expect_extent(name, "replica_count", experts, counts.extent(1), "experts");
  if (inverse != nullptr) {
    expect_extent(name, "logical_to_physical", layers, inverse->extent(0), "layers");
    expect_extent(name, "logical_to_physical", experts, inverse->extent(1), "experts");
    expect_between(name, "logical_to_physical", 1, slot_limit, inverse->extent(2), "as the width");
  }

  auto const context = resolve(policy);
  index_t const planned = layers * eplb_steps(options);
  buffer<problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, planned + (inverse != nullptr ? layers : 0));
  enqueue_eplb(context, load, options, placement, counts, reports.data());
  if (inverse != nullptr) {
    map_body<slot_source> body{{placement, experts}, experts, {.logical_to_physical = *inverse}};
    body.reports = reports.data() + planned;
    launch(context, layers, body);
  }
  auto const all = collect(name, reports, layers, throw_eplb_fault);
  auto const end = all.begin() + planned;
  return {end - layers, end};
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

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
/// @param[out] physical_to_logical `[layers, slots]` int32: expert in each slot, -1 in empty slots
///   (those of dead ranks, and those that required anti-affinity leaves unused)
/// @param[out] replica_count `[layers, experts]` int32
/// @return per layer, the certificate of `place`: the load of the most loaded rank, and a lower
///   bound for all placements of the same replicas (on the same nodes); with refinement, the
///   certificate of `refine`
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node;
///   if the allowed slots cannot hold one copy of each expert
/// @complexity O(experts log experts + slots log ranks) per layer; as `place` and `refine` with
///   speeds, anti-affinity or refinement
/// @workspace as the steps; 64 bytes per layer and step; hierarchical: 4 bytes per expert and node
///   of every layer
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 2> Counts>
std::vector<certificate> eplb(P const& policy, Loads const& loads, eplb_options const& options,
                              Placement&& physical_to_logical, Counts&& replica_count) {
  return detail::eplb("eplb", policy, detail::argument<2>("eplb", "loads", loads), options,
                      detail::argument<2>("eplb", "physical_to_logical", physical_to_logical),
                      detail::argument<2>("eplb", "replica_count", replica_count));
}

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
/// @param[out] physical_to_logical `[layers, replicas]` int32: expert in each slot
/// @param[out] logical_to_physical `[layers, experts, width]` int32: each expert's slots, rising,
///   then -1; a width of replicas - experts + 1 holds any result
/// @param[out] replica_count `[layers, experts]` int32
/// @return as `eplb`
/// @throws invalid_input as `eplb`, and for an expert with more copies than `width`
/// @complexity as `eplb`, and O(slots + experts width) per layer
/// @workspace as `eplb`, and 4 bytes per slot and 8 per expert for each problem in flight
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 3> Inverse, output_of<std::int32_t, 2> Counts>
std::vector<certificate> rebalance_experts(P const& policy, Loads const& loads, index_t replicas,
                                           index_t groups, index_t nodes, index_t ranks,
                                           Placement&& physical_to_logical,
                                           Inverse&& logical_to_physical, Counts&& replica_count) {
  constexpr char const* name = "rebalance_experts";
  matrix_ref<std::int32_t> const placement =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  tensor_ref<std::int32_t> const inverse =
      detail::argument<3>(name, "logical_to_physical", logical_to_physical);
  detail::expect_extent(name, "physical_to_logical", replicas, placement.extent(1), "replicas");
  return detail::eplb(name, policy, detail::argument<2>(name, "loads", loads),
                      {.ranks = ranks, .nodes = nodes, .groups = groups}, placement,
                      detail::argument<2>(name, "replica_count", replica_count), &inverse);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// EPLB: replicate the heavy experts, then spread all replicas over the ranks.
/// Source: DeepSeek's EPLB (github.com/deepseek-ai/EPLB).
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// Whether groups of experts stay on a node.
enum class eplb_policy : std::int32_t {
  automatic,     ///< hierarchical where the nodes divide the groups, as DeepSeek's EPLB chooses
  hierarchical,  ///< groups to nodes, then replicas to the ranks of each node
  global         ///< replicas to any rank; groups are ignored
};

/// What is improved after EPLB.
enum class refinement : std::int32_t {
  none,     ///< nothing
  packing,  ///< where replicas are; their counts stay
  joint     ///< both together
};

/// What EPLB is told besides the loads. Arrays lie in the policy's memory.
struct eplb_options {
  /// Ranks, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`, as in `placement_options`: where each rank's slots begin. Empty: evenly
  /// spread, rank r begins at floor(r * slots / ranks), as in the reference.
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Nodes, 1 to ranks: node n begins at rank floor(n * ranks / nodes).
  index_t nodes = 1;
  /// Groups of experts, which routers pick first; divides the experts.
  index_t groups = 1;
  eplb_policy policy = eplb_policy::automatic;
  refinement refine = refinement::none;
  /// As in `placement_options`; the reference knows none of them.
  vector_ref<std::uint8_t const> active = {};
  vector_ref<double const> speeds = {};
  sharing replicas_meet = sharing::allowed;
  strictness meeting_rule = strictness::preferred;

  /// Whether these options keep groups of experts to nodes.
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
          .replicas_meet = options.replicas_meet,
          .meeting_rule = options.meeting_rule};
}

inline void expect_plannable(std::string_view name, index_t layers, index_t experts, index_t slots,
                             eplb_options const& options) {
  expect_replicable(name, "physical_to_logical", experts, slots);
  expect_placeable(name, layers, experts, slots, placement_options_of(options));
  if (options.policy != eplb_policy::global) {
    expect_groups(name, experts, options.groups);
  }
  if (options.is_hierarchical()) {
    expect_meetings_on_a_node(name, "options", options.replicas_meet);
  }
}

/// Steps of EPLB, each of which reports on every layer.
inline index_t eplb_steps(eplb_options const& options) {
  return 2 + options.is_hierarchical() + (options.refine != refinement::none);
}

/// Every step reports for itself. One whose input was refused reads what it finds, without harm.
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
  if (options.refine != refinement::none) {
    refinement_options how;
    how.trials = options.refine == refinement::joint ? how.trials : 0;
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
  auto const all = collect(name, reports, layers, "logical_to_physical");
  auto const end = all.begin() + planned;
  return {end - layers, end};
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Plans every layer as DeepSeek's EPLB does: `replicate`, then `place`; where groups of
/// experts keep to nodes, `place_groups` before; where asked for, `refine` after.
///
/// The result equals the reference's slot by slot, for every shape that the reference takes, where
/// all shares (load over copies) and all sums of ranks that are compared differ by more than
/// float32's rounding: the reference rounds shares and sums to float32 and leaves ties to that and
/// to its sort. Here they are compared in 47-bit fixed point, shares rounded down; in ties first
/// copies come before second ones, then the lowest id, and the lowest rank. Nothing has to divide
/// anything but groups the experts: ranks and nodes that cannot be alike differ by one.
///
/// @param loads `[layers, experts]`, token copies, in the policy's memory; int32, uint32, int64,
///   float, double or generated; each at least 0, the total of a layer below 2^47
/// @param options ranks, and what else is known about them
/// @param[out] physical_to_logical `[layers, slots]` int32, the expert in every slot, -1 in empty
///   ones (dead ranks', and what a required rule about sharing leaves)
/// @param[out] replica_count `[layers, experts]` int32
/// @return per layer, the certificate of `place`: the load of the most loaded rank, and what no
///   other placement of the same replicas (on the same nodes) can go below; with `refine`, that of
///   `refine`
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node;
///   for slots that do not hold one of each expert where they must be
/// @complexity O(experts log experts + slots log ranks) per layer; as `place` and `refine` with
///   speeds, rules or refinement
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

/// @brief The reference's call, argument by argument: loads, replicas, groups, nodes and ranks
/// make three maps.
///
/// As `eplb` with these options. The number of replicas is that of slots in `physical_to_logical`.
///
/// @param loads `[layers, experts]`, as for `eplb`
/// @param replicas slots of every layer
/// @param groups groups of experts; @param nodes nodes; @param ranks ranks
/// @param[out] physical_to_logical `[layers, replicas]` int32, the expert in every slot
/// @param[out] logical_to_physical `[layers, experts, width]` int32, each expert's slots, rising,
///   then -1; a width of replicas - experts + 1 holds any result
/// @param[out] replica_count `[layers, experts]` int32
/// @return as `eplb`
/// @throws invalid_input as `eplb`; for an expert with more copies than `width`
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

}  // namespace plimsoll

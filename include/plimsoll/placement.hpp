// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which expert every slot holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// A placement as other primitives read it. All parts lie in the policy's memory.
struct placement_ref {
  /// `[layers, slots]`: the expert in every slot, slots ordered by rank; -1 in an empty one.
  matrix_ref<std::int32_t const> physical_to_logical = {};
  /// `[layers, experts]`: copies of every expert.
  matrix_ref<std::int32_t const> replica_count = {};
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: where each rank's slots begin, from 0 to slots. Empty: evenly spread,
  /// rank r begins at floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
};

/// What experts are put on, and under which rules. Arrays lie in the policy's memory.
struct placement_options {
  /// Ranks of every layer, 1 to 32767.
  index_t ranks = 0;
  /// `[layers, ranks + 1]`: where each rank's slots begin, rising from 0 to at most slots; slots
  /// past the last offset belong to no rank. Empty: evenly spread, rank r begins at floor(r * slots
  /// / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Nodes, 1 to ranks. Ranks are numbered node by node: node n begins at rank
  /// floor(n * ranks / nodes).
  index_t nodes = 1;
  /// `[ranks]`: 0 for a rank that is dead; its slots stay empty. Empty: all live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: how fast each rank works, in any unit, 2^-64 to 2^64; a living rank at least 2^-16
  /// as fast as the fastest. Empty: all alike, speed 1.
  vector_ref<double const> speeds = {};
  /// Where two replicas of one expert should not meet.
  sharing replicas_meet = sharing::allowed;
  /// Whether that may be broken where there is no room.
  strictness meeting_rule = strictness::preferred;
  /// `[layers, experts]` and `[layers, nodes + 1]`, as `place_groups` makes them: the experts of
  /// every node, to whose ranks their replicas keep. Empty: any rank may hold any expert.
  matrix_ref<std::int32_t const> node_experts = {};
  matrix_ref<std::int32_t const> node_offsets = {};
};

namespace detail {

inline void expect_rank_offsets(std::string_view function, std::string_view argument,
                                matrix_ref<std::int32_t const> const& offsets, index_t layers,
                                index_t ranks) {
  if (offsets.data != nullptr) {
    expect_extent(function, argument, layers, offsets.extent(0), "layers");
    expect_extent(function, argument, ranks + 1, offsets.extent(1), "offsets (ranks + 1)");
  }
}

/// An expert's replicas cannot avoid each other's node where lists keep them to one.
inline void expect_meetings_on_a_node(std::string_view function, std::string_view argument,
                                      sharing replicas_meet) {
  if (replicas_meet == sharing::not_on_a_node) {
    fail(function, text(argument, ".replicas_meet"),
         "allowed or not_on_a_rank, since lists keep an expert to one node", "not_on_a_node");
  }
}

/// Checks what all that put experts on ranks share; `argument` tells the options.
inline void expect_placeable(std::string_view function, index_t layers, index_t experts,
                             index_t slots, placement_options const& options,
                             std::string const& argument = "options") {
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_between(function, text(argument, ".ranks"), 1, rank_limit, options.ranks, "ranks");
  expect_between(function, "physical_to_logical", experts, 0x7fffffff, slots,
                 "slots (at least one per expert)");
  expect_rank_offsets(function, text(argument, ".rank_offsets"), options.rank_offsets, layers,
                      options.ranks);
  expect_between(function, text(argument, ".nodes"), 1, options.ranks, options.nodes,
                 "nodes (at most one per rank)");
  if (options.active.data != nullptr) {
    expect_extent(function, text(argument, ".active"), options.ranks, options.active.extent(0),
                  "ranks");
  }
  if (options.speeds.data != nullptr) {
    expect_extent(function, text(argument, ".speeds"), options.ranks, options.speeds.extent(0),
                  "ranks");
  }
  bool const lists = options.node_experts.data != nullptr;
  if (lists != (options.node_offsets.data != nullptr)) {
    fail(function, text(argument, ".node_experts"), "node_experts and node_offsets, or neither",
         lists ? "no node_offsets" : "no node_experts");
  }
  if (lists) {
    expect_extent(function, text(argument, ".node_experts"), layers, options.node_experts.extent(0),
                  "layers");
    expect_extent(function, text(argument, ".node_experts"), experts,
                  options.node_experts.extent(1), "experts");
    expect_extent(function, text(argument, ".node_offsets"), layers, options.node_offsets.extent(0),
                  "layers");
    expect_extent(function, text(argument, ".node_offsets"), options.nodes + 1,
                  options.node_offsets.extent(1), "offsets (nodes + 1)");
    expect_meetings_on_a_node(function, argument, options.replicas_meet);
  }
}

inline topology topology_of(placement_options const& options, index_t slots) {
  return topology{{options.rank_offsets, slots, options.ranks},
                  options.nodes,
                  options.active,
                  options.speeds,
                  options.node_experts,
                  options.node_offsets};
}

inline sharing_rule rule_of(placement_options const& options) {
  return sharing_rule{options.replicas_meet, options.replicas_meet != sharing::allowed &&
                                                 options.meeting_rule == strictness::required};
}

template <class Context, class Loads>
void enqueue_place(Context const& context, Loads const& loads,
                   matrix_ref<std::int32_t const> replica_count, placement_options const& options,
                   matrix_ref<std::int32_t> physical_to_logical, problem_report* reports) {
  launch(context, loads.extent(0),
         placement_body<Loads>{loads, replica_count,
                               topology_of(options, physical_to_logical.extent(1)),
                               rule_of(options), physical_to_logical, reports});
}

inline void expect_groups(std::string_view function, index_t experts, index_t groups) {
  expect_between(function, "groups", 1, experts, groups, "groups");
  if (experts % groups != 0) {
    fail(function, "groups", text("a number that divides ", experts, " experts"), text(groups));
  }
}

template <class Context, class Loads>
void enqueue_place_groups(Context const& context, Loads const& loads, index_t groups, index_t slots,
                          placement_options const& options, matrix_ref<std::int32_t> node_experts,
                          matrix_ref<std::int32_t> node_offsets, problem_report* reports) {
  launch(context, loads.extent(0),
         group_placement_body<Loads>{loads, groups, topology_of(options, slots), node_experts,
                                     node_offsets, reports});
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Puts every replica into a slot so that the most loaded rank carries as little as greedy
/// placement can make it.
///
/// Each of an expert's replicas weighs load / copies. Replicas in the order of falling weight go to
/// the rank with a free slot that they leave least loaded (then the lowest rank), as in DeepSeek's
/// EPLB. Of experts that weigh the same, first copies come before second ones and so on, each time
/// by rising expert (with node lists: in the order of the list). Where every rank has exactly one
/// slot and all are used, replicas stay in the order of their making, as EPLB leaves them.
///
/// With speeds load is divided by the speed of its rank. A rule about replicas that meet narrows
/// the choice of ranks first. With either, an expert's replicas come one after another. A required
/// rule is kept whenever the counts can be placed under it at all: replicas that found no room then
/// move others along the shortest chain that makes some.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param replica_count `[layers, experts]` int32, 1 to 32767 each, together at most the slots of
///   living ranks (with node lists: of every node)
/// @param options ranks, their slots, nodes, speeds, and rules
/// @param[out] physical_to_logical `[layers, slots]` int32; -1 in slots left empty
/// @return per layer: the load (over speed) of the most loaded rank; a bound for these replica
///   counts: the largest of the mean over ranks with slots, the heaviest replica, the lightest pair
///   of replicas that must share a rank, and, where all slots are filled, what the company of the
///   heaviest replica and the rank with the most slots must carry; status optimal where they meet,
///   else feasible; work = replicas placed
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank or node,
///   and for a required rule that the counts cannot be placed under; `physical_to_logical` is then
///   unspecified
/// @complexity O(experts log experts + slots log ranks) per layer; O(experts log experts +
///   slots ranks) with speeds or a rule, and O(experts slots) more for each replica that has to
///   make room
/// @workspace 16 bytes per expert and 16 per rank for each problem in flight (a rule: up to 8 and
/// 20
///   more), and 64 bytes per layer, from the policy
/// @stream synchronises once
/// @determinism the same bits under every policy; weights are 47-bit fixed point, load / copies
///   rounded down, and costs one correctly rounded division by the speed
template <execution_policy P, load_matrix_view Loads, view_of<std::int32_t, 2> Counts,
          output_of<std::int32_t, 2> Placement>
std::vector<certificate> place(P const& policy, Loads const& loads, Counts const& replica_count,
                               placement_options const& options, Placement&& physical_to_logical) {
  constexpr char const* name = "place";
  auto const load = detail::argument<2>(name, "loads", loads);
  matrix_ref<std::int32_t const> const counts =
      detail::argument<2>(name, "replica_count", replica_count);
  matrix_ref<std::int32_t> const placement =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  index_t const layers = load.extent(0);
  detail::expect_placeable(name, layers, load.extent(1), placement.extent(1), options);
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", load.extent(1), counts.extent(1), "experts");
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  detail::enqueue_place(context, load, counts, options, placement, reports.data());
  return detail::collect(name, reports);
}

/// @brief Puts groups of experts on nodes, so that no token of a group crosses nodes: the first
/// step of DeepSeek's hierarchical EPLB.
///
/// Expert e belongs to group floor(e * groups / experts). Groups in the order of falling load (then
/// the lowest) go to the node with room that they leave least loaded, per speed of its living
/// ranks. Every node has room for its share of the groups by slots, rounded up; only where the
/// shares that fit do not suffice, for as many as its slots hold. Where nodes are alike and have
/// room for one group each, with none to spare, groups stay in order. `replicate`, `place` and
/// `refine` take the lists.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param groups divides the experts
/// @param slots slots of every layer, at least one per expert
/// @param options ranks, their slots, nodes, speeds; rules and lists are not looked at
/// @param[out] node_experts `[layers, experts]` int32, the experts of every node, node by node; of
/// a
///   node, group by group in the order of placing
/// @param[out] node_offsets `[layers, nodes + 1]` int32, where each node's experts begin
/// @return per layer: the largest load per speed (per living rank where there are no speeds) of a
///   node, a bound for it, and work = groups placed
/// @throws invalid_input for shapes and options; for values, naming layer and expert or rank, and
///   where the nodes' slots do not hold all groups; the outputs are then unspecified
/// @complexity O(experts + slots + groups log groups + groups nodes) per layer
/// @workspace 8 bytes per expert, 24 per group, 36 per node and 4 for each group that the slots
///   could hold, for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> NodeExperts,
          output_of<std::int32_t, 2> NodeOffsets>
std::vector<certificate> place_groups(P const& policy, Loads const& loads, index_t groups,
                                      index_t slots, placement_options const& options,
                                      NodeExperts&& node_experts, NodeOffsets&& node_offsets) {
  constexpr char const* name = "place_groups";
  auto const load = detail::argument<2>(name, "loads", loads);
  matrix_ref<std::int32_t> const experts_of =
      detail::argument<2>(name, "node_experts", node_experts);
  matrix_ref<std::int32_t> const offsets = detail::argument<2>(name, "node_offsets", node_offsets);
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  placement_options where = options;
  where.node_experts = {};
  where.node_offsets = {};
  detail::expect_between(name, "loads", 1, expert_limit, experts, "experts");
  detail::expect_between(name, "slots", experts, 0x7fffffff, slots,
                         "slots (at least one per expert)");
  detail::expect_placeable(name, layers, experts, slots, where);
  detail::expect_groups(name, experts, groups);
  detail::expect_extent(name, "node_experts", layers, experts_of.extent(0), "layers");
  detail::expect_extent(name, "node_experts", experts, experts_of.extent(1), "experts");
  detail::expect_extent(name, "node_offsets", layers, offsets.extent(0), "layers");
  detail::expect_extent(name, "node_offsets", options.nodes + 1, offsets.extent(1),
                        "offsets (nodes + 1)");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  detail::enqueue_place_groups(context, load, groups, slots, where, experts_of, offsets,
                               reports.data());
  return detail::collect(name, reports);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace plimsoll

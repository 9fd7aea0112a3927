// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts a placement between its forms; `validate` checks one.
///
/// | form | arrays, all int32 |
/// |---|---|
/// | slot map | `physical_to_logical[layers, slots]`, -1 in an empty slot |
/// | replica lists | `replica_offsets[layers, experts + 1]`, `replica_slots[layers, slots]` |
/// | padded inverse | `logical_to_physical[layers, experts, width]`, padded with -1 |
/// | lists per rank | `rank_experts[layers, ranks, width]`, padded with -1 |
/// | counts | `replica_count[layers, experts]` |
///
/// Every conversion checks its input, so an invalid map never reaches another form.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Slots of every expert as lists in CSR form, in the policy's memory.
struct replica_lists_ref {
  /// `[layers, experts + 1]`: start of each expert's list, rising from 0 to at most slots.
  matrix_ref<std::int32_t const> replica_offsets = {};
  /// `[layers, slots]`: the lists. Outputs have rising slots in each list and -1 after the last
  /// list. Inputs may have any order; entries after the last list are not read.
  matrix_ref<std::int32_t const> replica_slots = {};
};

/// Additional conditions that `validate` checks.
struct validation_options {
  /// Requires that replicas of one expert are on different ranks or nodes.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Number of nodes. Ranks are numbered node by node: node n begins at rank
  /// floor(n * ranks / nodes).
  index_t nodes = 1;
  /// `[ranks]`, in the policy's memory: 0 marks a rank that must hold no expert. Empty: every rank
  /// may hold experts.
  vector_ref<std::uint8_t const> active = {};
};

namespace detail {

inline namespace PLIMSOLL_DEVICE_ABI {

/// Runs `body` on every layer and throws for the first layer with a fault.
template <class P, class Body>
void run_map(std::string_view name, P const& policy, index_t layers, Body body,
             std::string_view lists = {}) {
  auto const context = resolve(policy);
  buffer<problem_report, std::remove_const_t<decltype(context)>> const reports(context, layers);
  body.reports = reports.data();
  launch(context, layers, body);
  collect(name, reports, layers, [=](refused_value const& of) { throw_map_fault(of, lists); });
}

}  // namespace PLIMSOLL_DEVICE_ABI

inline constexpr index_t slot_limit = 0x7fffffff;

/// Checks the shape `[layers, slots]` and returns the number of slots.
template <class T>
index_t expect_slots(std::string_view name, std::string_view argument, index_t layers,
                     matrix_ref<T> const& map) {
  expect_extent(name, argument, layers, map.extent(0), "layers");
  expect_between(name, argument, 1, slot_limit, map.extent(1), "slots");
  expect_elements(name, argument, map);
  return map.extent(1);
}

inline replica_source expect_replicas(std::string_view name, replica_lists_ref const& replicas) {
  auto const& offsets = replicas.replica_offsets;
  expect_between(name, "replicas.replica_offsets", 2, expert_limit + 1, offsets.extent(1),
                 "offsets (experts + 1)");
  expect_elements(name, "replicas.replica_offsets", offsets);
  expect_slots(name, "replicas.replica_slots", offsets.extent(0), replicas.replica_slots);
  return {offsets, replicas.replica_slots, offsets.extent(1) - 1};
}

inline ranked_source expect_ranked(std::string_view name, placement_ref const& placement,
                                   index_t experts) {
  auto const& map = placement.physical_to_logical;
  index_t const layers = map.extent(0);
  index_t const slots = expect_slots(name, "placement.physical_to_logical", layers, map);
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, layers,
                      placement.ranks);
  return {{map, experts}, {placement.rank_offsets, slots, placement.ranks}};
}

inline namespace PLIMSOLL_DEVICE_ABI {

/// Compares replica lists with the slot map of a placement.
template <class P, class Source>
void validate_lists(P const& policy, placement_ref const& placement, index_t layers,
                    index_t experts, Source const& source, std::string_view lists) {
  constexpr char const* name = "validate";
  auto const& map = placement.physical_to_logical;
  expect_extent(name, lists, map.extent(0), layers, "layers");
  expect_extent(name, "placement.replica_count", experts, placement.replica_count.extent(1),
                "experts");
  run_map(name, policy, layers, map_body<Source>{source, experts, {.expected = map}}, lists);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Counts the slots of every expert: slot map to counts.
///
/// @param physical_to_logical `[layers, slots]` int32: an expert, or -1 for an empty slot
/// @param[out] replica_count `[layers, experts]` int32
/// @throws invalid_input for shapes; for an id that is neither -1 nor an expert, naming layer and
///   slot, in which case the output is unspecified
/// @complexity O(slots + experts) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, view_of<std::int32_t, 2> Map, output_of<std::int32_t, 2> Counts>
void count_replicas(P const& policy, Map const& physical_to_logical, Counts&& replica_count) {
  constexpr char const* name = "count_replicas";
  matrix_ref<std::int32_t const> const map =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const counts = detail::argument<2>(name, "replica_count", replica_count);
  index_t const layers = map.extent(0);
  index_t const experts = counts.extent(1);
  detail::expect_slots(name, "physical_to_logical", layers, map);
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_between(name, "replica_count", 1, expert_limit, experts, "experts");
  detail::run_map(
      name, policy, layers,
      detail::map_body<detail::slot_source>{{map, experts}, experts, {.replica_count = counts}});
}

/// @brief Lists the slots of every expert: slot map to replica lists.
///
/// @param physical_to_logical `[layers, slots]` int32: an expert, or -1 for an empty slot
/// @param[out] replica_offsets `[layers, experts + 1]` int32: start of each list
/// @param[out] replica_slots `[layers, slots]` int32: the lists, slots rising in each; -1 after the
///   last list
/// @throws invalid_input as `count_replicas`
/// @complexity O(slots + experts) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, view_of<std::int32_t, 2> Map, output_of<std::int32_t, 2> Offsets,
          output_of<std::int32_t, 2> Slots>
void slots_to_replicas(P const& policy, Map const& physical_to_logical, Offsets&& replica_offsets,
                       Slots&& replica_slots) {
  constexpr char const* name = "slots_to_replicas";
  matrix_ref<std::int32_t const> const map =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const offsets =
      detail::argument<2>(name, "replica_offsets", replica_offsets);
  matrix_ref<std::int32_t> const lists = detail::argument<2>(name, "replica_slots", replica_slots);
  index_t const layers = map.extent(0);
  index_t const slots = detail::expect_slots(name, "physical_to_logical", layers, map);
  detail::expect_extent(name, "replica_offsets", layers, offsets.extent(0), "layers");
  detail::expect_between(name, "replica_offsets", 2, expert_limit + 1, offsets.extent(1),
                         "offsets (experts + 1)");
  detail::expect_extent(name, "replica_slots", layers, lists.extent(0), "layers");
  detail::expect_extent(name, "replica_slots", slots, lists.extent(1), "slots");
  index_t const experts = offsets.extent(1) - 1;
  detail::run_map(
      name, policy, layers,
      detail::map_body<detail::slot_source>{
          {map, experts}, experts, {.replica_offsets = offsets, .replica_slots = lists}});
}

/// @brief Finds the expert of every slot: replica lists to slot map.
///
/// @param replicas the lists, each in any order
/// @param[out] physical_to_logical `[layers, slots]` int32; -1 in slots that no list contains
/// @throws invalid_input for shapes; for offsets that do not rise from 0 to at most the number of
///   slots, a slot that does not exist, or a slot that is listed twice, naming layer and expert, in
///   which case the output is unspecified
/// @complexity O(slots + experts) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, output_of<std::int32_t, 2> Map>
void replicas_to_slots(P const& policy, replica_lists_ref const& replicas,
                       Map&& physical_to_logical) {
  constexpr char const* name = "replicas_to_slots";
  detail::replica_source const source = detail::expect_replicas(name, replicas);
  matrix_ref<std::int32_t> const map =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  index_t const layers = source.offsets.extent(0);
  detail::expect_extent(name, "physical_to_logical", layers, map.extent(0), "layers");
  detail::expect_extent(name, "physical_to_logical", source.slots(), map.extent(1), "slots");
  detail::run_map(name, policy, layers,
                  detail::map_body<detail::replica_source>{
                      source, source.experts, {.physical_to_logical = map}},
                  "replica_slots");
}

/// @brief Pads the replica lists to one width, the form that engines use.
///
/// @param replicas the lists, each in any order
/// @param[out] logical_to_physical `[layers, experts, width]` int32: each expert's slots, rising,
///   then -1
/// @throws invalid_input as `replicas_to_slots`, and for an expert with more copies than `width`
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, output_of<std::int32_t, 3> Padded>
void replicas_to_padded(P const& policy, replica_lists_ref const& replicas,
                        Padded&& logical_to_physical) {
  constexpr char const* name = "replicas_to_padded";
  detail::replica_source const source = detail::expect_replicas(name, replicas);
  tensor_ref<std::int32_t> const padded =
      detail::argument<3>(name, "logical_to_physical", logical_to_physical);
  index_t const layers = source.offsets.extent(0);
  detail::expect_extent(name, "logical_to_physical", layers, padded.extent(0), "layers");
  detail::expect_extent(name, "logical_to_physical", source.experts, padded.extent(1), "experts");
  detail::expect_between(name, "logical_to_physical", 1, detail::slot_limit, padded.extent(2),
                         "as the width");
  detail::run_map(name, policy, layers,
                  detail::map_body<detail::replica_source>{
                      source, source.experts, {.logical_to_physical = padded}},
                  "replica_slots");
}

/// @brief Removes the padding: padded inverse to replica lists.
///
/// @param logical_to_physical `[layers, experts, width]` int32: each expert's slots in any order,
///   then -1
/// @param[out] replica_offsets `[layers, experts + 1]` int32: start of each list
/// @param[out] replica_slots `[layers, slots]` int32: the lists, slots rising in each; -1 after the
///   last list
/// @throws invalid_input for shapes; for a slot after a -1, a slot that does not exist, or a slot
///   that is listed twice, naming layer and expert, in which case the outputs are unspecified
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, view_of<std::int32_t, 3> Padded, output_of<std::int32_t, 2> Offsets,
          output_of<std::int32_t, 2> Slots>
void padded_to_replicas(P const& policy, Padded const& logical_to_physical,
                        Offsets&& replica_offsets, Slots&& replica_slots) {
  constexpr char const* name = "padded_to_replicas";
  tensor_ref<std::int32_t const> const padded =
      detail::argument<3>(name, "logical_to_physical", logical_to_physical);
  matrix_ref<std::int32_t> const offsets =
      detail::argument<2>(name, "replica_offsets", replica_offsets);
  matrix_ref<std::int32_t> const lists = detail::argument<2>(name, "replica_slots", replica_slots);
  index_t const layers = padded.extent(0);
  index_t const experts = padded.extent(1);
  detail::expect_between(name, "logical_to_physical", 1, expert_limit, experts, "experts");
  detail::expect_extent(name, "replica_offsets", layers, offsets.extent(0), "layers");
  detail::expect_extent(name, "replica_offsets", experts + 1, offsets.extent(1),
                        "offsets (experts + 1)");
  index_t const slots = detail::expect_slots(name, "replica_slots", layers, lists);
  detail::run_map(
      name, policy, layers,
      detail::map_body<detail::padded_source>{
          {padded, slots}, experts, {.replica_offsets = offsets, .replica_slots = lists}},
      "logical_to_physical");
}

/// @brief Lists the experts of every rank in the order of its slots, without the empty slots.
///
/// @param placement the slot map, the number of ranks and the rank offsets; `replica_count` is not
///   read
/// @param[out] rank_experts `[layers, ranks, width]` int32: each rank's experts, then -1
/// @throws invalid_input for shapes; for offsets that do not rise from 0 to at most the number of
///   slots, an invalid expert id, a filled slot that belongs to no rank, or a rank with more
///   experts than `width`, naming layer, rank and slot, in which case the output is unspecified
/// @complexity O(slots + ranks * width) per layer
/// @workspace 4 bytes per slot for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, output_of<std::int32_t, 3> Lists>
void slots_to_ranks(P const& policy, placement_ref const& placement, Lists&& rank_experts) {
  constexpr char const* name = "slots_to_ranks";
  detail::ranked_source const source = detail::expect_ranked(name, placement, expert_limit);
  tensor_ref<std::int32_t> const lists = detail::argument<3>(name, "rank_experts", rank_experts);
  index_t const layers = placement.physical_to_logical.extent(0);
  detail::expect_extent(name, "rank_experts", layers, lists.extent(0), "layers");
  detail::expect_extent(name, "rank_experts", placement.ranks, lists.extent(1), "ranks");
  detail::expect_between(name, "rank_experts", 1, detail::slot_limit, lists.extent(2),
                         "as the width");
  detail::run_map(name, policy, layers, detail::slots_to_ranks_body{source, lists});
}

/// @brief Concatenates the ranks' lists into a slot map: every rank gets as many slots as its list
/// has experts.
///
/// @param rank_experts `[layers, ranks, width]` int32: each rank's experts, then -1
/// @param[out] physical_to_logical `[layers, slots]` int32; -1 after the last rank's slots
/// @param[out] rank_offsets `[layers, ranks + 1]` int32: first slot of each rank
/// @throws invalid_input for shapes; for an expert after a -1, an invalid expert id, or more
///   experts than slots, naming layer and rank, in which case the outputs are unspecified
/// @complexity O(slots + ranks * width) per layer
/// @workspace 8 bytes per rank for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronises once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, view_of<std::int32_t, 3> Lists, output_of<std::int32_t, 2> Map,
          output_of<std::int32_t, 2> Offsets>
void ranks_to_slots(P const& policy, Lists const& rank_experts, Map&& physical_to_logical,
                    Offsets&& rank_offsets) {
  constexpr char const* name = "ranks_to_slots";
  tensor_ref<std::int32_t const> const lists =
      detail::argument<3>(name, "rank_experts", rank_experts);
  matrix_ref<std::int32_t> const map =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const offsets = detail::argument<2>(name, "rank_offsets", rank_offsets);
  index_t const layers = lists.extent(0);
  index_t const ranks = lists.extent(1);
  detail::expect_between(name, "rank_experts", 1, rank_limit, ranks, "ranks");
  detail::expect_slots(name, "physical_to_logical", layers, map);
  detail::expect_extent(name, "rank_offsets", layers, offsets.extent(0), "layers");
  detail::expect_extent(name, "rank_offsets", ranks + 1, offsets.extent(1), "offsets (ranks + 1)");
  detail::run_map(name, policy, layers, detail::ranks_to_slots_body{lists, map, offsets});
}

/// @brief Checks a placement and throws for its first fault.
///
/// Faults are ordered by layer, then as in this list, then by rank, slot or expert: offsets that do
/// not rise from 0 to at most the number of slots; an id that is neither -1 nor an expert; an
/// expert in a slot that belongs to no rank; an expert without a slot; a replica count that differs
/// from the map; several replicas of one expert on one rank or node, if the options forbid it; an
/// expert on a rank that is not active.
///
/// @param placement the complete placement; `replica_count` gives the number of experts
/// @param options additional conditions
/// @throws invalid_input for shapes and options; for the first fault, naming layer and rank, node,
///   slot or expert
/// @complexity O(slots + experts + ranks) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronises once
/// @determinism the same fault under every policy
template <execution_policy P>
void validate(P const& policy, placement_ref const& placement,
              validation_options const& options = {}) {
  constexpr char const* name = "validate";
  index_t const layers = placement.physical_to_logical.extent(0);
  index_t const ranks = placement.ranks;
  auto const& counts = placement.replica_count;
  detail::ranked_source const source = detail::expect_ranked(name, placement, counts.extent(1));
  detail::expect_extent(name, "placement.replica_count", layers, counts.extent(0), "layers");
  detail::expect_between(name, "placement.replica_count", 1, expert_limit, counts.extent(1),
                         "experts");
  detail::expect_elements(name, "placement.replica_count", counts);
  detail::expect_between(name, "options.nodes", 1, ranks, options.nodes, "nodes");
  if (options.active.data != nullptr) {
    detail::expect_extent(name, "options.active", ranks, options.active.extent(0), "ranks");
  }
  bool const on_nodes = options.replica_anti_affinity == anti_affinity::node;
  index_t const groups = options.replica_anti_affinity == anti_affinity::none ? 0
                         : on_nodes                                           ? options.nodes
                                                                              : ranks;
  detail::run_map(
      name, policy, layers,
      detail::validation_body{source, counts, options.active, groups,
                              on_nodes ? fault_kind::shared_node : fault_kind::shared_rank});
}

/// @brief Compares a placement's slot map with its replica lists and throws for the first
/// difference.
///
/// Faults are ordered by layer, then as in this list, then by expert or slot: offsets that do not
/// rise from 0 to at most the number of slots; a listed slot that does not exist; a slot that is
/// listed twice; an id in the map that is neither -1 nor an expert; a listed slot that does not
/// hold the expert; a filled slot that is not listed. This overload does not check the rest of the
/// placement.
///
/// @param placement its slot map and number of experts are read
/// @param replicas the inverse; slots of an expert in any order
/// @throws invalid_input for shapes; for the first fault, naming layer, expert and slot
/// @complexity O(slots + experts) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism the same fault under every policy
template <execution_policy P, std::same_as<replica_lists_ref> Replicas>  // so that {} means options
void validate(P const& policy, placement_ref const& placement, Replicas const& replicas) {
  detail::replica_source const source = detail::expect_replicas("validate", replicas);
  detail::expect_extent("validate", "replicas.replica_slots",
                        placement.physical_to_logical.extent(1), source.slots(), "slots");
  detail::validate_lists(policy, placement, source.offsets.extent(0), source.experts, source,
                         "replica_slots");
}

/// @brief Compares a placement's slot map with its padded inverse and throws for the first
/// difference.
///
/// Faults are ordered as for replica lists, except that the first one is a slot after a -1.
///
/// @param placement its slot map and number of experts are read
/// @param logical_to_physical `[layers, experts, width]` int32: each expert's slots in any order,
///   then -1
/// @throws invalid_input for shapes; for the first fault, naming layer, expert and slot
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronises once
/// @determinism the same fault under every policy
template <execution_policy P, view_of<std::int32_t, 3> Padded>
void validate(P const& policy, placement_ref const& placement, Padded const& logical_to_physical) {
  tensor_ref<std::int32_t const> const padded =
      detail::argument<3>("validate", "logical_to_physical", logical_to_physical);
  index_t const experts = padded.extent(1);
  detail::expect_between("validate", "logical_to_physical", 1, expert_limit, experts, "experts");
  index_t const slots =
      detail::expect_slots("validate", "placement.physical_to_logical",
                           placement.physical_to_logical.extent(0), placement.physical_to_logical);
  detail::validate_lists(policy, placement, padded.extent(0), experts,
                         detail::padded_source{padded, slots}, "logical_to_physical");
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

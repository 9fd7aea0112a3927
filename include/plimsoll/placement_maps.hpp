// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts a placement between its forms, and to other ranks; `validate` checks one.
///
/// | form | arrays |
/// |---|---|
/// | slot map | `physical_to_logical[layers, slots]`, -1 in an empty slot |
/// | replica lists | `replica_offsets[layers, experts + 1]`, `replica_slots[layers, slots]` |
/// | padded inverse | `logical_to_physical[layers, experts, width]`, padded with -1 |
/// | lists per rank | `rank_experts[layers, ranks, width]`, padded with -1 |
/// | rows per rank | the same, with -1 also in empty slots: slot i of a rank is entry i |
/// | counts | `replica_count[layers, experts]` |
///
/// Each array of a conversion is int32 or int64, as the caller's engine has it; `placement_ref` and
/// `replica_lists_ref` refer to int32 arrays. An int64 array takes a temporary: 4 bytes per element
/// from the policy. Every conversion checks its input, so an invalid map never reaches another
/// form; a message shows an id beyond int32 as -2147483648.
#pragma once

#include <concepts>
#include <cstdint>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Counts the slots of every expert: slot map to counts.
///
/// @param physical_to_logical `[layers, slots]` int32 or int64: an expert, or -1 for an empty slot
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @throws invalid_input for shapes; for an id that is neither -1 nor an expert, naming layer and
///   slot, in which case the output is unspecified
/// @complexity O(slots + experts) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Map, class Counts>
void count_replicas(P const& policy, Map const& physical_to_logical, Counts&& replica_count) {
  detail::checked_call call("count_replicas");
  auto const map = PLIMSOLL_IDS(call, "count_replicas", physical_to_logical, "[layers, slots]");
  auto const counts =
      PLIMSOLL_OUTPUT_IDS(call, "count_replicas", replica_count, "[layers, experts]");
  detail::expect_slots(call, "physical_to_logical", map);
  detail::expect_between(call, "replica_count", 1, expert_limit, counts.extent(1), "experts");
  detail::slots_to_counts(call, detail::resolve(policy), map, counts);
}

/// @brief Lists the slots of every expert: slot map to replica lists.
///
/// @param physical_to_logical `[layers, slots]` int32 or int64: an expert, or -1 for an empty slot
/// @param[out] replica_offsets `[layers, experts + 1]` int32 or int64: start of each list
/// @param[out] replica_slots `[layers, slots]` int32 or int64: the lists, slots rising in each; -1
///   after the last list
/// @throws invalid_input as `count_replicas`
/// @complexity O(slots + experts) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Map, class Offsets, class Slots>
void slots_to_replicas(P const& policy, Map const& physical_to_logical, Offsets&& replica_offsets,
                       Slots&& replica_slots) {
  detail::checked_call call("slots_to_replicas");
  auto const map = PLIMSOLL_IDS(call, "slots_to_replicas", physical_to_logical, "[layers, slots]");
  auto const offsets =
      PLIMSOLL_OUTPUT_IDS(call, "slots_to_replicas", replica_offsets, "[layers, experts + 1]");
  auto const lists =
      PLIMSOLL_OUTPUT_IDS(call, "slots_to_replicas", replica_slots, "[layers, slots]");
  detail::expect_slots(call, "physical_to_logical", map);
  detail::expect_between(call, "replica_offsets", 2, expert_limit + 1, offsets.extent(1),
                         "offsets (experts + 1)");
  detail::slots_to_lists(call, detail::resolve(policy), map, offsets.extent(1) - 1, offsets, lists);
}

/// @brief Counts and lists the slots of every expert: the three arrays that TensorRT-LLM's kernels
/// read.
///
/// @param physical_to_logical `[layers, slots]` int32 or int64: an expert, or -1 for an empty slot
/// @param[out] replica_count `[layers, experts]` int32 or int64
/// @param[out] replica_offsets `[layers, experts]` or `[layers, experts + 1]` int32 or int64: start
///   of each list, and in the latter shape the end of the last
/// @param[out] replica_slots `[layers, slots]` int32 or int64: the lists, slots rising in each; -1
///   after the last list
/// @throws invalid_input as `count_replicas`
/// @complexity O(slots + experts) per layer
/// @workspace 4 bytes per slot and 8 per expert for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Map, class Counts, class Offsets, class Slots>
void slots_to_replicas(P const& policy, Map const& physical_to_logical, Counts&& replica_count,
                       Offsets&& replica_offsets, Slots&& replica_slots) {
  detail::checked_call call("slots_to_replicas");
  auto const map = PLIMSOLL_IDS(call, "slots_to_replicas", physical_to_logical, "[layers, slots]");
  auto const counts =
      PLIMSOLL_OUTPUT_IDS(call, "slots_to_replicas", replica_count, "[layers, experts]");
  auto const offsets =
      PLIMSOLL_OUTPUT_IDS(call, "slots_to_replicas", replica_offsets, "[layers, experts (+ 1)]");
  auto const lists =
      PLIMSOLL_OUTPUT_IDS(call, "slots_to_replicas", replica_slots, "[layers, slots]");
  detail::expect_slots(call, "physical_to_logical", map);
  index_t const experts = counts.extent(1);
  detail::expect_between(call, "replica_count", 1, expert_limit, experts, "experts");
  detail::expect_between(call, "replica_offsets", experts, experts + 1, offsets.extent(1),
                         "offsets (experts, or experts + 1)");
  detail::slots_to_lists(call, detail::resolve(policy), map, experts, offsets, lists, counts);
}

/// @brief Finds the expert of every slot: replica lists to slot map.
///
/// @param replicas the lists, each in any order
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64; -1 in slots that no list
///   contains
/// @throws invalid_input for shapes; for offsets that do not rise from 0 to at most the number of
///   slots, a slot that does not exist, or a slot that is listed twice, naming layer and expert, in
///   which case the output is unspecified
/// @complexity O(slots + experts) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Map>
void replicas_to_slots(P const& policy, replica_lists_ref const& replicas,
                       Map&& physical_to_logical) {
  detail::replica_source const source = detail::expect_replicas("replicas_to_slots", replicas);
  detail::checked_call call("replicas_to_slots",
                            {{"layers", source.offsets.extent(0)}, {"slots", source.slots()}});
  auto const map =
      PLIMSOLL_OUTPUT_IDS(call, "replicas_to_slots", physical_to_logical, "[layers, slots]");
  detail::lists_to_slots(call, detail::resolve(policy), source, map);
}

/// @brief Pads the replica lists to one width, the form that engines use.
///
/// @param replicas the lists, each in any order
/// @param[out] logical_to_physical `[layers, experts, width]` int32 or int64: each expert's slots,
///   rising, then -1
/// @throws invalid_input as `replicas_to_slots`, and for an expert with more copies than `width`
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Padded>
void replicas_to_padded(P const& policy, replica_lists_ref const& replicas,
                        Padded&& logical_to_physical) {
  detail::replica_source const source = detail::expect_replicas("replicas_to_padded", replicas);
  detail::checked_call call("replicas_to_padded",
                            {{"layers", source.offsets.extent(0)}, {"experts", source.experts}});
  auto const padded = PLIMSOLL_OUTPUT_IDS(call, "replicas_to_padded", logical_to_physical,
                                          "[layers, experts, width]");
  detail::expect_between(call, "logical_to_physical", 1, detail::slot_limit, padded.extent(2),
                         "as the width");
  detail::lists_to_padded(call, detail::resolve(policy), source, padded);
}

/// @brief Removes the padding: padded inverse to replica lists.
///
/// @param logical_to_physical `[layers, experts, width]` int32 or int64: each expert's slots in any
///   order, then -1
/// @param[out] replica_offsets `[layers, experts + 1]` int32 or int64: start of each list
/// @param[out] replica_slots `[layers, slots]` int32 or int64: the lists, slots rising in each; -1
///   after the last list
/// @throws invalid_input for shapes; for a slot after a -1, a slot that does not exist, or a slot
///   that is listed twice, naming layer and expert, in which case the outputs are unspecified
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Padded, class Offsets, class Slots>
void padded_to_replicas(P const& policy, Padded const& logical_to_physical,
                        Offsets&& replica_offsets, Slots&& replica_slots) {
  detail::checked_call call("padded_to_replicas");
  auto const padded =
      PLIMSOLL_IDS(call, "padded_to_replicas", logical_to_physical, "[layers, experts, width]");
  auto const offsets =
      PLIMSOLL_OUTPUT_IDS(call, "padded_to_replicas", replica_offsets, "[layers, experts + 1]");
  auto const lists =
      PLIMSOLL_OUTPUT_IDS(call, "padded_to_replicas", replica_slots, "[layers, slots]");
  detail::expect_between(call, "logical_to_physical", 1, expert_limit, padded.extent(1), "experts");
  detail::expect_slots(call, "replica_slots", lists);
  detail::padded_to_lists(call, detail::resolve(policy), padded, offsets, lists);
}

/// @brief Lists the experts of every rank in the order of its slots, without the empty slots.
///
/// @param placement the slot map, the number of ranks and the rank offsets; `replica_count` is not
///   read
/// @param[out] rank_experts `[layers, ranks, width]` int32 or int64: each rank's experts, then -1
/// @throws invalid_input for shapes; for offsets that do not rise from 0 to at most the number of
///   slots, an invalid expert id, a filled slot that belongs to no rank, or a rank with more
///   experts than `width`, naming layer, rank and slot, in which case the output is unspecified
/// @complexity O(slots + ranks * width) per layer
/// @workspace 4 bytes per slot for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Lists>
void slots_to_ranks(P const& policy, placement_ref const& placement, Lists&& rank_experts) {
  auto const lists =
      PLIMSOLL_OUTPUT_IDS(unchecked, "slots_to_ranks", rank_experts, "[layers, ranks, width]");
  detail::slots_to_rank_lists("slots_to_ranks", detail::resolve(policy), placement, false, lists);
}

/// @brief Copies every rank's slots to a row of its own, empty slots included, so that slot i of a
/// rank is entry i of its row: the other way of `copy_placement` from rows per rank.
///
/// @param placement the slot map, the number of ranks and the rank offsets; `replica_count` is not
///   read
/// @param[out] rank_experts `[layers, ranks, width]` int32 or int64: the expert in each slot of
///   each rank; -1 in empty slots, and behind the slots of a rank that has fewer than `width`
/// @throws invalid_input as `slots_to_ranks`; `width` must hold all slots of a rank
/// @complexity O(slots + ranks * width) per layer
/// @workspace 4 bytes per slot for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Rows>
void slots_to_rank_rows(P const& policy, placement_ref const& placement, Rows&& rank_experts) {
  auto const rows =
      PLIMSOLL_OUTPUT_IDS(unchecked, "slots_to_rank_rows", rank_experts, "[layers, ranks, width]");
  detail::slots_to_rank_lists("slots_to_rank_rows", detail::resolve(policy), placement, true, rows);
}

/// @brief Concatenates the ranks' lists into a slot map: every rank gets as many slots as its list
/// has experts.
///
/// @param rank_experts `[layers, ranks, width]` int32 or int64: each rank's experts, then -1
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64; -1 after the last rank's slots
/// @param[out] rank_offsets `[layers, ranks + 1]` int32 or int64: first slot of each rank
/// @throws invalid_input for shapes; for an expert after a -1, an invalid expert id, or more
///   experts than slots, naming layer and rank, in which case the outputs are unspecified
/// @complexity O(slots + ranks * width) per layer
/// @workspace 8 bytes per rank for each problem in flight, and 64 bytes per layer, from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Lists, class Map, class Offsets>
void ranks_to_slots(P const& policy, Lists const& rank_experts, Map&& physical_to_logical,
                    Offsets&& rank_offsets) {
  detail::checked_call call("ranks_to_slots");
  auto const lists = PLIMSOLL_IDS(call, "ranks_to_slots", rank_experts, "[layers, ranks, width]");
  auto const map =
      PLIMSOLL_OUTPUT_IDS(call, "ranks_to_slots", physical_to_logical, "[layers, slots]");
  auto const offsets =
      PLIMSOLL_OUTPUT_IDS(call, "ranks_to_slots", rank_offsets, "[layers, ranks + 1]");
  detail::expect_between(call, "rank_experts", 1, rank_limit, lists.extent(1), "ranks");
  detail::expect_slots(call, "physical_to_logical", map);
  detail::rank_lists_to_slots(call, detail::resolve(policy), lists, map, offsets);
}

/// @brief Moves a placement to other ranks: those that join begin empty, and those that are lost
/// leave with their replicas.
///
/// A rank that stays keeps the experts of its slots, in their order. So the result is the placement
/// in use from which `align`, `plan_within` and `plan_transfers` go on: a plan with as many ranks
/// and slots as the new one, in which experts may be missing.
///
/// @param from slot map, number of ranks and rank offsets; the number of experts is that of
///   `replica_count`, whose elements are not read. Experts may be missing
/// @param source_ranks `[ranks]` int32 or int64, in the policy's memory: the rank of `from` that
///   each rank was, or -1 for one that joins; a rank of `from` that no element names is lost
/// @param rank_offsets `[layers, ranks + 1]` int32, in the policy's memory: first slot of each
///   rank, rising from 0 to at most slots. Empty: slots are spread evenly, rank r begins at
///   floor(r * slots / ranks)
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: expert in each slot, -1 in
///   empty slots
/// @param[out] replica_count `[layers, experts]` int32 or int64: 0 for an expert whose replicas
///   were all lost
/// @throws invalid_input for shapes; for offsets that do not rise, an invalid expert id, a filled
///   slot that belongs to no rank, a rank that `from` does not have or that is named twice, and for
///   a rank with fewer slots than it needs for its experts, naming layer, rank and slot, in which
///   case the outputs are unspecified
/// @complexity O(slots + experts + ranks) per layer
/// @workspace 4 bytes per slot, expert and rank for each problem in flight, and 64 bytes per layer,
///   from the policy
/// @stream synchronizes once
/// @determinism integers only: the same bits under every policy
template <execution_policy P, class Ranks, class Map, class Counts>
void resize_placement(P const& policy, placement_ref const& from, Ranks const& source_ranks,
                      matrix_ref<std::int32_t const> const& rank_offsets, Map&& physical_to_logical,
                      Counts&& replica_count) {
  index_t const layers = from.physical_to_logical.extent(0);
  index_t const experts = from.replica_count.extent(1);
  detail::checked_call call("resize_placement", {{"layers", layers}, {"experts", experts}});
  detail::ranked_source const source = detail::expect_ranked(call, from, experts, "from");
  detail::expect_between(call, "from.replica_count", 1, expert_limit, experts, "experts");
  auto const ranks = PLIMSOLL_IDS(call, "resize_placement", source_ranks, "[ranks]");
  auto const map =
      PLIMSOLL_OUTPUT_IDS(call, "resize_placement", physical_to_logical, "[layers, slots]");
  auto const counts =
      PLIMSOLL_OUTPUT_IDS(call, "resize_placement", replica_count, "[layers, experts]");
  detail::expect_between(call, "source_ranks", 1, rank_limit, ranks.extent(0), "ranks");
  detail::expect_rank_offsets(call, "rank_offsets", rank_offsets, layers, ranks.extent(0));
  detail::expect_slots(call, "physical_to_logical", map);
  detail::resize_map(call, detail::resolve(policy), source, ranks,
                     {rank_offsets, map.extent(1), ranks.extent(0)}, map, counts);
}

/// @brief Moves a placement to other ranks as the call with output arrays, and returns it in memory
/// of the policy.
///
/// @param slots slots of every layer, over all ranks
/// @return the placement, with a copy of `rank_offsets`; it has no certificates
template <execution_policy P, class Ranks>
placement<P> resize_placement(P const& policy, placement_ref const& from, Ranks const& source_ranks,
                              index_t slots,
                              matrix_ref<std::int32_t const> const& rank_offsets = {}) {
  detail::checked_call call("resize_placement");
  auto const ranks = PLIMSOLL_IDS(call, "resize_placement", source_ranks, "[ranks]");
  index_t const layers = from.physical_to_logical.extent(0);
  detail::expect_between(call, "slots", 1, detail::slot_limit, slots, "slots");
  detail::expect_between(call, "source_ranks", 1, rank_limit, ranks.extent(0), "ranks");
  detail::expect_rank_offsets(call, "rank_offsets", rank_offsets, layers, ranks.extent(0));
  auto result = detail::allocate_placement(policy, layers, from.replica_count.extent(1), slots,
                                           ranks.extent(0), rank_offsets);
  resize_placement(policy, from, source_ranks, rank_offsets, result.physical_to_logical,
                   result.replica_count);
  return result;
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
/// @stream synchronizes once
/// @determinism the same fault under every policy
template <execution_policy P>
void validate(P const& policy, placement_ref const& placement,
              validation_options const& options = {}) {
  constexpr char const* name = "validate";
  detail::expect_validatable(name, placement, options);
  auto const context = detail::resolve(policy);
  index_t const layers = placement.physical_to_logical.extent(0);
  detail::run_planning(name, context, layers, 1, [&](detail::problem_report* reports) {
    detail::enqueue_validate(context, placement, options, reports);
  });
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
/// @stream synchronizes once
/// @determinism the same fault under every policy
template <execution_policy P, std::same_as<replica_lists_ref> Replicas>  // so that {} means options
void validate(P const& policy, placement_ref const& placement, Replicas const& replicas) {
  constexpr char const* name = "validate";
  detail::replica_source const source = detail::expect_replicas(name, replicas);
  index_t const layers = source.offsets.extent(0);
  detail::expect_extent(name, "replicas.replica_slots", placement.physical_to_logical.extent(1),
                        source.slots(), "slots");
  detail::expect_comparable(name, placement, layers, source.experts, "replica_slots");
  detail::compare_lists(name, detail::resolve(policy), source, placement.physical_to_logical);
}

/// @brief Compares a placement's slot map with its padded inverse and throws for the first
/// difference.
///
/// Faults are ordered as for replica lists, except that the first one is a slot after a -1.
///
/// @param placement its slot map and number of experts are read
/// @param logical_to_physical `[layers, experts, width]` int32 or int64: each expert's slots in any
///   order, then -1
/// @throws invalid_input for shapes; for the first fault, naming layer, expert and slot
/// @complexity O(slots + experts * width) per layer
/// @workspace 8 bytes per slot and 16 per expert for each problem in flight, and 64 bytes per
///   layer, from the policy
/// @stream synchronizes once
/// @determinism the same fault under every policy
template <execution_policy P, class Padded>
void validate(P const& policy, placement_ref const& placement, Padded const& logical_to_physical) {
  detail::checked_call call("validate");
  auto const padded =
      PLIMSOLL_IDS(call, "validate", logical_to_physical, "[layers, experts, width]");
  auto const& map = placement.physical_to_logical;
  index_t const experts = padded.extent(1);
  detail::expect_between(call, "logical_to_physical", 1, expert_limit, experts, "experts");
  detail::expect_slots(call, "placement.physical_to_logical", map);
  detail::expect_comparable(call, placement, padded.extent(0), experts, "logical_to_physical");
  detail::compare_padded(call, detail::resolve(policy), padded, map);
}

PLIMSOLL_EXPECT_ON(validate, (placement_ref const& placement), (placement))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of conversions between the forms of a placement, and of `validate`: checks shapes and
/// options, launches the bodies, waits for their reports, and names refused maps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_maps_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline constexpr index_t slot_limit = 0x7fffffff;

/// Checks the number of slots of a map `[layers, slots]`.
template <class T>
void expect_slots(std::string_view function, argument_name const& argument,
                  matrix_ref<T> const& map) {
  expect_between(function, argument, 1, slot_limit, map.extent(1), "slots");
  expect_elements(function, argument, map);
}

inline replica_source expect_replicas(std::string_view function,
                                      replica_lists_ref const& replicas) {
  auto const& offsets = replicas.replica_offsets;
  expect_between(function, "replicas.replica_offsets", 2, expert_limit + 1, offsets.extent(1),
                 "offsets (experts + 1)");
  expect_elements(function, "replicas.replica_offsets", offsets);
  expect_extent(function, "replicas.replica_slots", offsets.extent(0),
                replicas.replica_slots.extent(0), "layers");
  expect_slots(function, "replicas.replica_slots", replicas.replica_slots);
  return {offsets, replicas.replica_slots, offsets.extent(1) - 1};
}

inline ranked_source expect_ranked(std::string_view function, placement_ref const& placement,
                                   index_t experts, argument_name const& argument = "placement") {
  auto const& map = placement.physical_to_logical;
  expect_slots(function, argument + ".physical_to_logical", map);
  expect_between(function, argument + ".ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(function, argument + ".rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  return ranked_source_of(placement, experts);
}

inline void expect_validatable(std::string_view function, placement_ref const& placement,
                               validation_options const& options) {
  auto const& counts = placement.replica_count;
  expect_ranked(function, placement, counts.extent(1));
  expect_extent(function, "placement.replica_count", placement.physical_to_logical.extent(0),
                counts.extent(0), "layers");
  expect_between(function, "placement.replica_count", 1, expert_limit, counts.extent(1), "experts");
  expect_elements(function, "placement.replica_count", counts);
  static_cast<void>(with_ranks_of(function, options.on, placement.ranks));
  expect_enumerator(function, "options.replica_anti_affinity", anti_affinity::node,
                    options.replica_anti_affinity);
}

/// Checks that a placement has the shape of the argument `lists` with the replicas of every expert.
inline void expect_comparable(std::string_view function, placement_ref const& placement,
                              index_t layers, index_t experts, std::string_view lists) {
  auto const& map = placement.physical_to_logical;
  expect_elements(function, "placement.physical_to_logical", map);
  expect_extent(function, lists, map.extent(0), layers, "layers");
  expect_extent(function, "placement.replica_count", experts, placement.replica_count.extent(1),
                "experts");
}

/// Returns a caller's input ids, int32 or int64, for bodies that read int32.
template <class Context, class Id, int Rank>
int32_ids<Context, Id const, Rank> input_ids(Context const& context,
                                             array_ref<Id, Rank> const& ids) {
  return {context, ids};
}

/// Returns a caller's output ids, int32 or int64, for bodies that write int32.
template <class Context, class Id, int Rank>
int32_ids<Context, Id, Rank> output_ids(Context const& context, array_ref<Id, Rank> const& ids) {
  return {context, ids};
}

template <class Ids>
inline constexpr bool is_input = std::is_const_v<typename Ids::element>;

/// Runs `body` on every layer and throws for the first layer with a fault. `lists` is the name of
/// the argument with the replicas of every expert. Reads the inputs among `ids` before, and writes
/// the outputs after.
template <class Context, class Body, class... Ids>
void run_map(std::string_view function, Context const& context, index_t layers, Body body,
             std::string_view lists, Ids const&... ids) {
  run_planning(function, context, layers, 1, {{{"replica_slots", lists}}},
               [&](problem_report* reports) {
                 [[maybe_unused]] auto const load = [](auto const& view) {
                   if constexpr (is_input<std::remove_cvref_t<decltype(view)>>) {
                     view.load();
                   }
                 };
                 [[maybe_unused]] auto const store = [](auto const& view) {
                   if constexpr (!is_input<std::remove_cvref_t<decltype(view)>>) {
                     view.store();
                   }
                 };
                 (load(ids), ...);
                 body.reports = reports;
                 launch(context, layers, body);
                 (store(ids), ...);
               });
}

/// Converts a slot map to counts.
template <class Context, class Map, class Counts>
void slots_to_counts(std::string_view function, Context const& context, Map const& map,
                     Counts const& counts) {
  index_t const experts = counts.extent(1);
  auto const in = input_ids(context, map);
  auto const out = output_ids(context, counts);
  map_body<slot_source> const body{{in.view(), experts}, experts, {.replica_count = out.view()}};
  run_map(function, context, map.extent(0), body, {}, in, out);
}

/// Converts a slot map to replica lists, and to `counts` if they are given; then `offsets` may lack
/// the end of the last list.
template <class Context, class Map, class Offsets, class Slots, class... Counts>
void slots_to_lists(std::string_view function, Context const& context, Map const& map,
                    index_t experts, Offsets const& offsets, Slots const& slots,
                    Counts const&... counts) {
  static_assert(sizeof...(Counts) <= 1);
  auto const in = input_ids(context, map);
  auto const begin = output_ids(context, offsets);
  auto const listed = output_ids(context, slots);
  map_body<slot_source> body{{in.view(), experts},
                             experts,
                             {.replica_offsets = begin.view(), .replica_slots = listed.view()}};
  auto const run = [&](auto const&... copies) {
    ((body.out.replica_count = copies.view()), ...);
    run_map(function, context, map.extent(0), body, {}, in, begin, listed, copies...);
  };
  run(output_ids(context, counts)...);
}

/// Converts replica lists to a slot map.
template <class Context, class Map>
void lists_to_slots(std::string_view function, Context const& context, replica_source const& source,
                    Map const& map) {
  auto const out = output_ids(context, map);
  map_body<replica_source> const body{source, source.experts, {.physical_to_logical = out.view()}};
  run_map(function, context, map.extent(0), body, "replica_slots", out);
}

/// Converts replica lists to padded ones.
template <class Context, class Padded>
void lists_to_padded(std::string_view function, Context const& context,
                     replica_source const& source, Padded const& padded) {
  auto const out = output_ids(context, padded);
  map_body<replica_source> const body{source, source.experts, {.logical_to_physical = out.view()}};
  run_map(function, context, padded.extent(0), body, "replica_slots", out);
}

/// Converts padded replica lists to those in CSR form.
template <class Context, class Padded, class Offsets, class Slots>
void padded_to_lists(std::string_view function, Context const& context, Padded const& padded,
                     Offsets const& offsets, Slots const& slots) {
  auto const in = input_ids(context, padded);
  auto const begin = output_ids(context, offsets);
  auto const listed = output_ids(context, slots);
  map_body<padded_source> const body{
      {in.view(), slots.extent(1)},
      padded.extent(1),
      {.replica_offsets = begin.view(), .replica_slots = listed.view()}};
  run_map(function, context, padded.extent(0), body, "logical_to_physical", in, begin, listed);
}

/// Converts a slot map to lists per rank, with or without the empty slots.
template <class Context, class Lists>
void slots_to_rank_lists(std::string_view function, Context const& context,
                         placement_ref const& placement, bool keeps_empty,
                         Lists const& rank_experts) {
  ranked_source const source = expect_ranked(function, placement, expert_limit);
  expect_extent(function, "rank_experts", placement.physical_to_logical.extent(0),
                rank_experts.extent(0), "layers");
  expect_extent(function, "rank_experts", placement.ranks, rank_experts.extent(1), "ranks");
  expect_between(function, "rank_experts", 1, slot_limit, rank_experts.extent(2), "as the width");
  auto const out = output_ids(context, rank_experts);
  run_map(function, context, rank_experts.extent(0),
          slots_to_ranks_body{source, out.view(), keeps_empty}, {}, out);
}

/// Converts lists per rank to a slot map.
template <class Context, class Lists, class Map, class Offsets>
void rank_lists_to_slots(std::string_view function, Context const& context,
                         Lists const& rank_experts, Map const& map, Offsets const& rank_offsets) {
  auto const in = input_ids(context, rank_experts);
  auto const out = output_ids(context, map);
  auto const begin = output_ids(context, rank_offsets);
  run_map(function, context, rank_experts.extent(0),
          ranks_to_slots_body{in.view(), out.view(), begin.view()}, {}, in, out, begin);
}

/// Writes the map and the counts of a placement on other ranks.
template <class Context, class Ranks, class Map, class Counts>
void resize_map(std::string_view function, Context const& context, ranked_source const& source,
                Ranks const& source_ranks, slot_ranges const& ranges, Map const& map,
                Counts const& counts) {
  auto const in = input_ids(context, source_ranks);
  auto const out = output_ids(context, map);
  auto const copies = output_ids(context, counts);
  resize_placement_body body{source, in.view(), ranges, out.view(), copies.view()};
  run_planning(function, context, map.extent(0), 1,
               {{{"rank_offsets", "from.rank_offsets", "rank_offsets"},
                 {"physical_to_logical", "from.physical_to_logical"}}},
               [&](problem_report* reports) {
                 in.load();
                 body.reports = reports;
                 launch(context, map.extent(0), body);
                 out.store();
                 copies.store();
               });
}

/// Compares replica lists with a slot map.
template <class Context>
void compare_lists(std::string_view function, Context const& context, replica_source const& source,
                   matrix_ref<std::int32_t const> const& map) {
  run_map(function, context, map.extent(0),
          map_body<replica_source>{source, source.experts, {.expected = map}}, "replica_slots");
}

/// Compares padded replica lists with a slot map.
template <class Context, class Padded>
void compare_padded(std::string_view function, Context const& context, Padded const& padded,
                    matrix_ref<std::int32_t const> const& map) {
  auto const in = input_ids(context, padded);
  map_body<padded_source> const body{
      {in.view(), map.extent(1)}, padded.extent(1), {.expected = map}};
  run_map(function, context, padded.extent(0), body, "logical_to_physical", in);
}

/// Enqueues `validate`, one report per layer.
template <class Context>
void enqueue_validate(Context const& context, placement_ref const& placement,
                      validation_options const& options, problem_report* reports) {
  auto const& counts = placement.replica_count;
  bool const on_nodes = options.replica_anti_affinity == anti_affinity::node;
  index_t const groups = options.replica_anti_affinity == anti_affinity::none ? 0
                         : on_nodes                                           ? options.on.nodes
                                                                              : placement.ranks;
  launch(context, placement.physical_to_logical.extent(0),
         validation_body{ranked_source_of(placement, counts.extent(1)), counts, options.on.active,
                         groups, on_nodes ? fault_kind::shared_node : fault_kind::shared_rank,
                         reports});
}

}}}  // namespace plimsoll::detail

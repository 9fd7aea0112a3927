// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of conversions between the forms of a placement, and of `validate`. A conversion
/// waits for its reports and throws.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/pipeline/ids.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_maps_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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
  run_planning(
      function, context, layers, 1,
      [lists](refused_value const& of) { throw_map_fault(of, lists); },
      [&](problem_report* reports) {
        [[maybe_unused]] auto const load = [](auto const& of) {
          if constexpr (is_input<std::remove_cvref_t<decltype(of)>>) {
            of.load();
          }
        };
        [[maybe_unused]] auto const store = [](auto const& of) {
          if constexpr (!is_input<std::remove_cvref_t<decltype(of)>>) {
            of.store();
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

/// Converts a slot map to replica lists.
template <class Context, class Map, class Offsets, class Slots>
void slots_to_lists(std::string_view function, Context const& context, Map const& map,
                    Offsets const& offsets, Slots const& slots) {
  index_t const experts = offsets.extent(1) - 1;
  auto const in = input_ids(context, map);
  auto const begin = output_ids(context, offsets);
  auto const listed = output_ids(context, slots);
  map_body<slot_source> const body{
      {in.view(), experts},
      experts,
      {.replica_offsets = begin.view(), .replica_slots = listed.view()}};
  run_map(function, context, map.extent(0), body, {}, in, begin, listed);
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

/// Converts a slot map to lists per rank.
template <class Context, class Lists>
void slots_to_rank_lists(std::string_view function, Context const& context,
                         ranked_source const& source, Lists const& rank_experts) {
  auto const out = output_ids(context, rank_experts);
  run_map(function, context, rank_experts.extent(0), slots_to_ranks_body{source, out.view()}, {},
          out);
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
  run_planning(function, context, map.extent(0), 1, throw_resize_fault,
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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `round_split`, `divide_quotas` and `dispatch`: checks shapes, launches the bodies, and
/// names refused values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/quota.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the part of a placement that `round_split` and `divide_quotas` share.
inline slot_ranges ranges_of(checked_call& call, placement_ref const& placement) {
  auto const& map = placement.physical_to_logical;
  call.expect("placement.physical_to_logical", map, "[layers, slots]");
  expect_between(call, "placement.physical_to_logical", 1, 0x7fffffff, map.extent(1), "slots");
  expect_elements(call, "placement.physical_to_logical", map);
  expect_between(call, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(call, "placement.rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  return {placement.rank_offsets, map.extent(1), placement.ranks};
}

template <class Context, class Loads>
void enqueue_quota(Context const& context, Loads const& loads,
                   matrix_ref<std::int32_t const> physical_to_logical, slot_ranges const& ranges,
                   matrix_ref<double const> split, matrix_ref<std::int32_t> quotas,
                   vector_ref<quota_report> reports) {
  launch(context, loads.extent(0),
         quota_body<Loads>{.loads = loads,
                           .physical_to_logical = physical_to_logical,
                           .ranges = ranges,
                           .split = split,
                           .quotas = quotas,
                           .reports = reports});
}

template <class Context>
void enqueue_source_quotas(Context const& context, vector_ref<std::int32_t const> quotas,
                           matrix_ref<std::int32_t const> counts,
                           vector_ref<std::int32_t const> expert_of, slot_ranges const& ranges,
                           index_t nodes, matrix_ref<std::int32_t> source_quotas) {
  index_t const experts = counts.extent(1);
  buffer<std::byte, Context> const memory(
      context, static_cast<index_t>(bytes_taken_by<source_quotas_body>(experts, ranges.slots)));
  scratch arrays(memory.data());
  source_quotas_body body = source_quotas_body::in(arrays, experts, ranges.slots);
  body.expert_of = expert_of;
  body.where = {.ranges = ranges, .nodes = nodes};
  body.quotas = quotas;
  body.counts = counts;
  body.source_quotas = source_quotas;
  for (bool const listing : {true, false}) {
    body.listing = listing;
    launch(context, body.problems(), body);
  }
}

/// Returns the body of `dispatch` with its arrays in `memory`. The caller sets the lists of slots.
template <class Id, class Expert, class Slot>
dispatch_body<Id, Slot, Expert> dispatch_body_of(
    matrix_ref<Id const> ids, vector_ref<Expert const> expert_of,
    vector_ref<std::int32_t const> quotas, dispatch_options const& options, matrix_ref<Slot> slots,
    vector_ref<dispatch_counters> counters, scratch& memory) {
  auto body = dispatch_body<Id, Slot, Expert>::in(memory, ids.extent(0) * ids.extent(1),
                                                  options.experts, expert_of.extent(0));
  body.ids = ids;
  body.expert_of = expert_of;
  body.quotas = quotas;
  body.chosen = slots;
  body.counters = counters;
  body.sampled = options.method == dispatch_method::sampled;
  body.seed = options.seed;
  body.subsequence = options.subsequence;
  body.first_token = options.first_token;
  return body;
}

/// Returns whether each tile itself adds up the counts of the tiles before it, which saves a
/// launch. On a GPU this is faster up to 64 tiles; on the host, which runs tiles in sequence,
/// never.
template <class Context>
bool tiles_add_up(tile_counts const& tiles) {
  return runs_on_device<Context> && tiles.tiles() <= 64 && tiles.columns <= 1026;
}

template <class Context, class Body>
void enqueue_dispatch(Context const& context, Body body) {
  body.tiles.by_tile = tiles_add_up<Context>(body.tiles);
  using phase = typename Body::phase;
  for (phase const now : {phase::count, phase::scan, phase::assign}) {
    if (now != phase::scan || !body.tiles.by_tile) {
      body.now = now;
      launch(context, body.problems(), body);
    }
  }
}

template <class Context, class Id, class Expert, class Slot>
void enqueue_dispatch(Context const& context, matrix_ref<Id const> ids,
                      vector_ref<Expert const> expert_of, vector_ref<std::int32_t const> quotas,
                      dispatch_options const& options, matrix_ref<Slot> slots,
                      vector_ref<dispatch_counters> counters) {
  index_t const copies = ids.extent(0) * ids.extent(1);
  index_t const listed = expert_of.extent(0);
  using body_type = dispatch_body<Id, Slot, Expert>;
  buffer<std::byte, Context> const memory(
      context, static_cast<index_t>(bytes_taken_by<slot_lists>(options.experts, listed) +
                                    bytes_taken_by<body_type>(copies, options.experts, listed)));
  scratch arrays(memory.data());
  slot_lists const lists = slot_lists::in(arrays, options.experts, listed);
  auto body = dispatch_body_of(ids, expert_of, quotas, options, slots, counters, arrays);
  body.lists = lists;
  enqueue_dispatch(context, body);
}

}}}  // namespace plimsoll::detail

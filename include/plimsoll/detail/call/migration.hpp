// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `migration`: checks of shapes and options, and messages about refused placements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_migrated(std::string_view function, argument_name const& argument,
                            placement_ref const& placement) {
  auto const& map = placement.physical_to_logical;
  auto const& counts = placement.replica_count;
  expect_slots(function, argument + ".physical_to_logical", map);
  expect_between(function, argument + ".ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(function, argument + ".rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  expect_extent(function, argument + ".replica_count", map.extent(0), counts.extent(0), "layers");
  expect_between(function, argument + ".replica_count", 1, expert_limit, counts.extent(1),
                 "experts");
}

struct placement_shape {
  index_t layers;
  index_t slots;
  index_t experts;
  index_t ranks;
};
inline placement_shape shape_of(placement_ref const& placement) {
  auto const& map = placement.physical_to_logical;
  return {map.extent(0), map.extent(1), placement.replica_count.extent(1), placement.ranks};
}

/// Words for the extents of a shape in messages. Views of literals, so that a check allocates
/// nothing.
struct shape_words {
  std::string_view layers;
  std::string_view slots;
  std::string_view experts;
  std::string_view ranks;
};

inline void expect_shape(std::string_view function, argument_name const& argument,
                         placement_shape const& shape, placement_ref const& placement,
                         shape_words const& words = {"layers", "slots", "experts", "ranks"}) {
  placement_shape const got = shape_of(placement);
  expect_extent(function, argument + ".physical_to_logical", shape.layers, got.layers,
                words.layers);
  expect_extent(function, argument + ".physical_to_logical", shape.slots, got.slots, words.slots);
  expect_extent(function, argument + ".replica_count", shape.experts, got.experts, words.experts);
  expect_extent(function, argument + ".ranks", shape.ranks, got.ranks, words.ranks);
}

/// Checks that two placements are of one model and on the same ranks. `argument` names the rank
/// set.
inline migration_pair expect_migration(std::string_view function, placement_ref const& from,
                                       placement_ref const& to, rank_set const& on,
                                       argument_name const& argument = "options.on") {
  expect_migrated(function, "from", from);
  expect_migrated(function, "to", to);
  expect_shape(
      function, "to", shape_of(from), to,
      {"layers, as in from", "slots, as in from", "experts, as in from", "ranks, as in from"});
  rank_set const ranks = with_ranks_of(function, on, to.ranks, argument);
  return {.from = from.physical_to_logical,
          .to = to.physical_to_logical,
          .where = {.ranges = {to.rank_offsets, to.physical_to_logical.extent(1), ranks.ranks},
                    .nodes = ranks.nodes,
                    .active = ranks.active,
                    .speeds = ranks.speeds},
          .from_offsets = from.rank_offsets,
          .expert_count = to.replica_count.extent(1)};
}

/// The same for `align` and what counts its changes.
inline migration_pair expect_alignment(std::string_view function, placement_ref const& from,
                                       placement_ref const& to, alignment_options const& options) {
  expect_enumerator(function, "options.relabel", relabeling::all_layers, options.relabel);
  return expect_migration(function, from, to, options.on);
}

/// Checks `expert_bytes`: the bytes of `experts` experts must be below 2^63.
inline void expect_expert_bytes(std::string_view function, std::int64_t bytes,
                                index_t experts = 1) {
  expect_between(function, "options.expert_bytes", 1,
                 std::numeric_limits<std::int64_t>::max() / std::max<index_t>(experts, 1), bytes,
                 "bytes");
}

inline void expect_move_price(std::string_view function, double price) {
  if (!(price >= 0 && price <= 1)) {
    fail(function, "options.move_price", "0 to 1", text(price));
  }
}

inline migration_pair expect_plan_within(std::string_view function, index_t layers, index_t experts,
                                         placement_ref const& from, placement_ref const& to,
                                         placement_options const& where,
                                         migration_options const& options) {
  migration_pair const pair = expect_migration(function, from, to, where.on, "where.on");
  expect_extent(function, "loads", pair.layers(), layers, "layers, as in from");
  expect_extent(function, "loads", pair.experts(), experts, "experts, as in from");
  if (where.rank_offsets.data != nullptr) {
    fail(function, "where.rank_offsets", "none, since those of from apply", "offsets");
  }
  placement_options ranks = where;
  ranks.on.ranks = from.ranks;
  expect_placeable(function, layers, experts, pair.slots(), ranks, "where",
                   "from.physical_to_logical");
  expect_between(function, "options.max_moves", 0, unlimited, options.max_moves, "moves");
  expect_between(function, "options.max_moves_per_layer", 0, unlimited, options.max_moves_per_layer,
                 "moves");
  expect_between(function, "options.max_bytes", 0, unlimited, options.max_bytes, "bytes");
  expect_between(function, "options.max_bytes_per_layer", 0, unlimited, options.max_bytes_per_layer,
                 "bytes");
  expect_expert_bytes(function, options.expert_bytes);
  expect_move_price(function, options.move_price);
  expect_enumerator(function, "options.split", split_rule::optimal, options.split);
  expect_enumerator(function, "options.judge_on", judged_steps::all, options.judge_on);
  expect_enumerator(function, "options.candidates", migration_candidates::single_changes,
                    options.candidates);
  expect_keep_bonus(function, options.keep_bonus);
  bool const is_bound_to_nodes =
      where.node_experts.data != nullptr || (where.replica_anti_affinity == anti_affinity::node &&
                                             where.anti_affinity_strength == strictness::required);
  if (options.candidates == migration_candidates::one_bonus && is_bound_to_nodes) {
    fail(function, "options.candidates", "all, with node lists or required anti-affinity of nodes",
         "one_bonus");
  }
  return pair;
}

inline void expect_move_cost(std::string_view function, move_cost const& of) {
  auto const expect_positive = [&](std::string_view argument, double got) {
    if (!(got > 0 && got <= std::numeric_limits<double>::max())) {
      fail(function, argument, "a number above 0", text(got));
    }
  };
  expect_positive("of.expert_bytes", static_cast<double>(of.expert_bytes));
  expect_positive("of.seconds_per_byte", of.seconds_per_byte);
  expect_positive("of.layer_seconds", of.layer_seconds);
  expect_positive("of.steps", static_cast<double>(of.steps));
}

inline migration_pair expect_transfers(std::string_view function, placement_ref const& from,
                                       placement_ref const& to, transfer_options const& options) {
  migration_pair const pair = expect_migration(function, from, to, options.on);
  expect_no_speeds(function, options.on, "a transfer takes as long on every rank");
  expect_enumerator(function, "options.rounds", round_rule::send_and_receive, options.rounds);
  expect_expert_bytes(function, options.expert_bytes, pair.layers() * pair.slots());
  auto const expect_bandwidth = [&](std::string_view argument, double got) {
    if (!(got > 0 && got <= std::numeric_limits<double>::max())) {
      fail(function, argument, "a number above 0", text(got));
    }
  };
  expect_bandwidth("options.bandwidths.local_copy", options.bandwidths.local_copy);
  expect_bandwidth("options.bandwidths.same_node", options.bandwidths.same_node);
  expect_bandwidth("options.bandwidths.across_nodes", options.bandwidths.across_nodes);
  expect_bandwidth("options.bandwidths.from_host", options.bandwidths.from_host);
  return pair;
}

/// Names of arguments in messages about two placements.
inline constexpr fault_names migration_names{
    {{"rank_offsets", "from.rank_offsets", "to.rank_offsets"},
     {"physical_to_logical", "from.physical_to_logical", "to.physical_to_logical"},
     {"replica_count", "from.physical_to_logical", "to.physical_to_logical"}}};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and report of `place_by_flow`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Ranks with their slots, and the split of later steps. Arrays are in the policy's
/// memory.
struct flow_placement_options {
  /// Ranks: number, nodes, liveness and speeds. The slots of dead ranks stay empty, and the load of
  /// a rank is divided by its speed. Among ranks of nearly equal load, copies of an expert go to
  /// one node.
  rank_set on = {};
  /// `[layers, ranks + 1]`: first slot of each rank, rising from 0 to at most slots; slots past the
  /// last offset belong to no rank. Empty: slots are spread evenly, rank r begins at
  /// floor(r * slots / ranks).
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Split of an expert's tokens among its copies in every step: `optimal`, as by `minmax_lp`, or
  /// `even`.
  split_rule split = split_rule::optimal;
  /// Largest number of partners of a rank, 0 to 32767: ranks that hold a copy of the same expert,
  /// with which it exchanges tokens or weights. A copy that would give a rank more is not made.
  index_t max_partners = rank_limit;
  /// `[layers, slots]`: the plan in use, expert in each slot, -1 in empty slots, with the slots of
  /// ranks as in `rank_offsets`. The new plan gets the rank labels and slots with which the fewest
  /// experts move from it, as by `align`. Experts may be missing, and what dead ranks hold cannot
  /// be read and counts as no copy. Empty: there is none.
  matrix_ref<std::int32_t const> in_use = {};
  /// Preference for the ranks and counts of `in_use`, at least 0: the load, in loads of an average
  /// rank, by which a rank that holds the expert already seems lighter. An expert with fewer copies
  /// than in use also seems 2 times as heavy when copies are given, 1 + keep_bonus times from a
  /// bonus of 1 on, at most 5. 0 plans as without `in_use`.
  double keep_bonus = 0;
  /// Plans with load^load_exponent in every step, above 0 and at most 1: a load that was large by
  /// chance counts for less.
  double load_exponent = 1.0;
};

/// Ranks of the plan that `certify` takes.
struct certify_options {
  /// Liveness and speeds of the ranks; `on.ranks` is that of the placement or 0. Nodes are not
  /// read.
  rank_set on = {};
};

/// Steps and slots that the plan of one layer does not use.
struct flow_placement_report {
  /// Number of steps without load, which the plan does not consider.
  index_t idle_steps = 0;
  /// Number of slots of live ranks that stay empty.
  index_t empty_slots = 0;
};

}}  // namespace plimsoll

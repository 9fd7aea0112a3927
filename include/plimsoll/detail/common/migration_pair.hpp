// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement in use and a new one, as bodies of `migration` take them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Two placements of the same shape on the same ranks. Slots are memory of a rank, so the ranges of
/// slots are equal in both.
struct migration_pair {
  matrix_ref<std::int32_t const> from;               ///< `[layers, slots]`
  matrix_ref<std::int32_t const> to;                 ///< `[layers, slots]`
  topology where;                                    ///< with the ranges of `to`
  matrix_ref<std::int32_t const> from_offsets = {};  ///< `[layers, ranks + 1]` or empty
  index_t expert_count = 0;

  [[nodiscard]] PLIMSOLL_HD index_t layers() const { return to.extent(0); }
  [[nodiscard]] PLIMSOLL_HD index_t slots() const { return where.ranges.slots; }
  [[nodiscard]] PLIMSOLL_HD index_t experts() const { return expert_count; }
  [[nodiscard]] PLIMSOLL_HD index_t ranks() const { return where.ranks(); }

  /// Finds the rank of every slot; -1 for slots of no rank. The ranges have been checked.
  template <class Team>
  PLIMSOLL_HD void find_ranks(Team& team, index_t layer, std::int32_t* rank_of) const {
    topology const layout = where;
    team.for_each(slots(), [=](index_t slot) { rank_of[slot] = -1; });
    team.for_each(ranks(), [=](index_t r) {
      for (index_t slot = layout.begin(layer, r); slot < layout.ranges.end(layer, r); ++slot) {
        rank_of[slot] = static_cast<std::int32_t>(r);
      }
    });
  }

  /// Checks a layer: ranges of slots, speeds, ids, and that `to` fills only slots of live ranks, or
  /// leaves those of dead ranks as they are. Writes `rank_of`, `[slots]`, and counts the slots of
  /// each expert on live ranks in `from_copies` and `to_copies`, both `[experts]`.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, index_t layer, std::int32_t* rank_of,
                                    std::int32_t* from_copies, std::int32_t* to_copies) const {
    problem_report outcome = refuse_ranks(team, layer);
    if (outcome.refused) {
      return outcome;
    }
    find_ranks(team, layer, rank_of);
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2 && !outcome.refused; ++k) {
      outcome = refuse_map(team, layer, rank_of, k == 1);
      outcome.refused.side = fault_side{k};
    }
    if (outcome.refused) {
      return outcome;
    }
    count_live(team, row_of(from, layer), rank_of, from_copies);
    count_live(team, row_of(to, layer), rank_of, to_copies);
    index_t const experts = expert_count;
    index_t const missing =
        team.min(experts, [=](index_t e) { return to_copies[e] == 0 ? e : experts; });
    if (missing < experts) {
      outcome = refusal(fault_kind::missing_expert, missing, 0);
      outcome.refused.side = fault_side::to;
    }
    return outcome;
  }

 private:
  [[nodiscard]] PLIMSOLL_HD slot_ranges ranges_of(matrix_ref<std::int32_t const> offsets) const {
    slot_ranges result = where.ranges;
    result.offsets = offsets;
    return result;
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse_ranks(Team& team, index_t layer) const {
    index_t const n = ranks();
    problem_report outcome;
    PLIMSOLL_NO_UNROLL
    for (int k = 0; k < 2; ++k) {
      slot_ranges const ranges = ranges_of(k == 0 ? from_offsets : where.ranges.offsets);
      index_t const rank = ranges.first_fault(team, layer);
      if (rank < n) {
        outcome = refusal(fault_kind::rank_offsets, rank, ranges.end(layer, rank));
        outcome.refused.side = fault_side{k};
        return outcome;
      }
    }
    slot_ranges const before = ranges_of(from_offsets);
    slot_ranges const after = where.ranges;
    index_t const differs =
        team.min(n, [=](index_t r) { return before.end(layer, r) == after.end(layer, r) ? n : r; });
    if (differs < n) {
      return refusal(fault_kind::other_offsets, differs, after.end(layer, differs),
                     before.end(layer, differs));
    }
    if (where.active.data != nullptr &&
        team.count(n, [this](index_t r) { return where.is_active(r); }) == 0) {
      return refusal(fault_kind::no_rank);
    }
    return where.speeds.data == nullptr
               ? problem_report{}
               : topology::refuse_speeds(team, where.speeds, n,
                                         [this](index_t r) { return where.is_active(r); });
  }

  /// Refuses an unknown id and a filled slot of no rank; of a new placement, also one of a dead
  /// rank that changes.
  template <class Team>
  PLIMSOLL_HD problem_report refuse_map(Team& team, index_t layer, std::int32_t const* rank_of,
                                        bool is_new) const {
    index_t const n = slots();
    index_t const experts = expert_count;
    auto const before = row_of(from, layer);
    auto const map = is_new ? row_of(to, layer) : before;
    index_t const bad = team.min(n, [=, this](index_t slot) {
      std::int32_t const e = map[slot];
      bool const usable =
          e < 0 || (rank_of[slot] >= 0 && (e == before[slot] || where.is_active(rank_of[slot])));
      return e >= -1 && e < experts && usable ? n : slot;
    });
    if (bad == n) {
      return problem_report{};
    }
    bool const known = map[bad] >= -1 && map[bad] < experts;
    return refusal(known ? fault_kind::unusable_slot : fault_kind::expert_id, bad, map[bad]);
  }

  template <class Team>
  PLIMSOLL_HD void count_live(Team& team, vector_ref<std::int32_t const> map,
                              std::int32_t const* rank_of, std::int32_t* copies) const {
    team.histogram(
        slots(),
        [=, this](index_t slot) {
          bool const lives = map[slot] >= 0 && where.is_active(rank_of[slot]);
          return lives ? map[slot] : -1;
        },
        copies, expert_count);
  }
};

}}}  // namespace plimsoll::detail

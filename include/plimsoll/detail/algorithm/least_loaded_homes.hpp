// SPDX-License-Identifier: Apache-2.0
/// @file
/// The homes of experts in `least_loaded`, and the body that lists them from a placement.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The numbers of `spill_homes` that follow from the residents.
struct spill_home_numbers {
  std::int32_t pairs;
  std::int32_t most_held;  ///< the most experts that one rank holds
};

/// The pairs of an expert and a live rank that holds it, listed by expert and by rank, in the
/// memory of the object.
struct spill_homes {
  index_t experts;
  index_t slots;        ///< those that hold experts: the most pairs
  double* speed;        ///< `[ranks]`: 0 for dead ranks
  rank_numbers* ranks;  ///< of `speed`
  spill_home_numbers* numbers;
  problem_report* update;      ///< what the last update refused
  std::int32_t* expert_begin;  ///< `[experts + 1]` into `rank`
  std::int32_t* rank;          ///< `[pairs]`: the ranks of every expert, rising
  std::int32_t* rank_begin;    ///< `[ranks + 1]` into `expert`
  std::int32_t* expert;        ///< `[pairs]`: the experts of every rank, rising
  std::int32_t* position;      ///< `[pairs]`: the rank's position in the expert's list

  [[nodiscard]] PLIMSOLL_HD static spill_homes in(scratch& memory, index_t experts, index_t ranks,
                                                  index_t slots) {
    spill_homes result{};
    result.experts = experts;
    result.slots = slots;
    memory.take(result.speed, ranks);
    memory.take(result.ranks, 1);
    memory.take(result.numbers, 1);
    memory.take(result.update, 1);
    memory.take(result.expert_begin, experts + 1);
    memory.take(result.rank, slots);
    memory.take(result.rank_begin, ranks + 1);
    memory.take(result.expert, slots);
    memory.take(result.position, slots);
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD index_t begin(index_t e) const { return expert_begin[e]; }
  [[nodiscard]] PLIMSOLL_HD index_t end(index_t e) const { return expert_begin[e + 1]; }
  [[nodiscard]] PLIMSOLL_HD index_t copies(index_t e) const { return end(e) - begin(e); }
};

/// Body of `least_loaded::update`: lists the homes of all experts. Refused residents or ranks leave
/// the lists as they are. One problem.
struct spill_homes_body {
  using device_team = block<128>;

  spill_homes homes;
  // One of three says which rank holds which expert.
  vector_ref<std::int32_t const> home_rank;  ///< `[experts]`, or
  matrix_ref<std::int32_t const>
      physical_to_logical;  ///< `[1, slots]`, or empty: blocks of experts
  slot_ranges ranges;       ///< of slots, or of the blocks
  rank_input on;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(homes, ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t) const {
    arrays const s = arrays::in(memory, homes, ranges.ranks);
    problem_report const outcome = refuse(team, s);
    team.single([=, this] { *homes.update = outcome; });
    if (outcome.refused) {
      return;
    }
    rank_numbers const numbers = on.write(team, ranges.ranks, homes.speed);
    team.single([=, this] { *homes.ranks = numbers; });
    list_by_expert(team, s);
    list_by_rank(team, s);
  }

 private:
  struct arrays {
    slot_lists lists;
    std::int32_t* expert_of;  ///< `[slots]`
    std::int32_t* rank_of;    ///< `[slots]`: -1 if the rank is dead
    std::int32_t* count;      ///< `[experts]` homes, or `[ranks]` experts
    std::int32_t* owner;      ///< `[pairs]`
    std::uint64_t* keys;      ///< `[slots]`
    std::byte* sort_storage;

    [[nodiscard]] PLIMSOLL_HD static arrays in(scratch& memory, spill_homes const& homes,
                                               index_t ranks) {
      arrays s{};
      s.lists = slot_lists::in(memory, homes.experts, homes.slots);
      memory.take(s.expert_of, homes.slots);
      memory.take(s.rank_of, homes.slots);
      memory.take(s.count, maximum{}(homes.experts, ranks));
      memory.take(s.owner, homes.slots);
      memory.take(s.keys, homes.slots);
      memory.take(s.sort_storage, most_sort_bytes<std::uint64_t>(homes.slots));
      return s;
    }
  };

  PLIMSOLL_HD bool has_slots() const { return physical_to_logical.data != nullptr; }
  PLIMSOLL_HD bool lives(index_t r) const { return on.keeps ? homes.speed[r] > 0 : on.lives(r); }

  /// Finds the homes of every expert in scratch. Refuses speeds, ranks, offsets and ids out of
  /// range, and experts without a live home.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, arrays const& s) const {
    index_t const ranks = ranges.ranks;
    problem_report const of_ranks = on.refuse(team, ranks);
    if (of_ranks.refused) {
      return of_ranks;
    }
    index_t const rank = ranges.first_fault(team, 0);
    if (rank < ranks) {
      return refusal(fault_kind::rank_offsets, rank, ranges.end(0, rank));
    }
    if (home_rank.data != nullptr) {
      index_t const mismatch = team.min(homes.experts, [this, ranks](index_t e) {
        return home_rank[e] >= 0 && home_rank[e] < ranks ? homes.experts : e;
      });
      if (mismatch < homes.experts) {
        return refusal(fault_kind::home_rank, mismatch, home_rank[mismatch], ranks - 1);
      }
    } else if (has_slots()) {
      index_t const used = ranges.end(0, ranks - 1);
      index_t const mismatch = team.min(used, [this, used](index_t slot) {
        std::int32_t const e = physical_to_logical(0, slot);
        return e >= -1 && e < homes.experts ? used : slot;
      });
      if (mismatch < used) {
        index_t const holder = team.min(
            ranks, [=, this](index_t r) { return mismatch < ranges.end(0, r) ? r : ranks; });
        return refusal(fault_kind::expert_id, mismatch, physical_to_logical(0, mismatch), holder);
      }
    }
    find_slots(team, s);
    s.lists.fill(team, vector_ref<std::int32_t const>(s.expert_of, homes.slots), s.keys,
                 s.sort_storage);
    team.for_each(homes.experts, [=](index_t e) {
      std::int32_t count = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < s.lists.first[e + 1]; ++i) {
        count += begins_home(s, e, i);
      }
      s.count[e] = count;
    });
    index_t const without = team.min(
        homes.experts, [=, this](index_t e) { return s.count[e] > 0 ? homes.experts : e; });
    return without < homes.experts ? refusal(fault_kind::missing_expert, without)
                                   : problem_report{};
  }

  /// Finds the expert and the live rank of every slot. Without slots, experts take their place.
  template <class Team>
  PLIMSOLL_HD void find_slots(Team& team, arrays const& s) const {
    index_t const given = has_slots() ? physical_to_logical.extent(1) : homes.experts;
    team.for_each(homes.slots, [=, this](index_t slot) {
      s.expert_of[slot] = slot >= given ? -1
                          : has_slots() ? physical_to_logical(0, slot)
                                        : static_cast<std::int32_t>(slot);
      std::int32_t rank = -1;
      if (slot < given && home_rank.data != nullptr && lives(home_rank[slot])) {
        rank = home_rank[slot];
      }
      s.rank_of[slot] = rank;
    });
    if (home_rank.data == nullptr) {
      team.for_each(ranges.ranks, [=, this](index_t r) {
        PLIMSOLL_NO_UNROLL
        for (index_t slot = ranges.begin(0, r); lives(r) && slot < ranges.end(0, r); ++slot) {
          s.rank_of[slot] = static_cast<std::int32_t>(r);
        }
      });
    }
  }
  /// Returns true if a list's slot is the first one of the expert on a live rank.
  PLIMSOLL_HD static bool begins_home(arrays const& s, index_t e, index_t i) {
    std::int32_t const r = s.rank_of[s.lists.slot[i]];
    return r >= 0 && (i == s.lists.first[e] || s.rank_of[s.lists.slot[i - 1]] != r);
  }

  template <class Team>
  PLIMSOLL_HD void list_by_expert(Team& team, arrays const& s) const {
    index_t const pairs = team.exclusive_scan(
        homes.experts, [=](index_t e) { return s.count[e]; }, homes.expert_begin);
    team.for_each(homes.experts, [=, this](index_t e) {
      std::int32_t pair = homes.expert_begin[e];
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < s.lists.first[e + 1]; ++i) {
        if (begins_home(s, e, i)) {
          homes.rank[pair] = s.rank_of[s.lists.slot[i]];
          s.owner[pair++] = static_cast<std::int32_t>(e);
        }
      }
    });
    team.single([=, this] {
      homes.expert_begin[homes.experts] = static_cast<std::int32_t>(pairs);
      homes.numbers->pairs = static_cast<std::int32_t>(pairs);
    });
  }

  template <class Team>
  PLIMSOLL_HD void list_by_rank(Team& team, arrays const& s) const {
    index_t const pairs = homes.numbers->pairs;
    index_t const ranks = ranges.ranks;
    team.histogram(
        pairs, [this](index_t i) { return homes.rank[i]; }, s.count, ranks);
    team.exclusive_scan(
        ranks, [=](index_t r) { return s.count[r]; }, homes.rank_begin);
    std::int32_t const most = team.max(ranks, [=](index_t r) { return s.count[r]; });
    team.for_each(pairs, [=, this](index_t i) {
      s.keys[i] = static_cast<std::uint64_t>(homes.rank[i]) << 32 | static_cast<std::uint64_t>(i);
    });
    team.sort(s.keys, pairs, s.sort_storage);
    team.for_each(pairs, [=, this](index_t number) {
      auto const pair = static_cast<std::uint32_t>(s.keys[number]);
      std::int32_t const e = s.owner[pair];
      homes.expert[number] = e;
      homes.position[number] = static_cast<std::int32_t>(pair) - homes.expert_begin[e];
    });
    team.single([=, this] {
      homes.rank_begin[ranks] = static_cast<std::int32_t>(pairs);
      homes.numbers->most_held = most;
    });
  }
};

}}}  // namespace plimsoll::detail

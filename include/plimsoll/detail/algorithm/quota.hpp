// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `quota`, `source_quotas` and `dispatch`: they round a split to whole tokens
/// (controlled rounding), divide quotas among source ranks, and choose the replica of every token.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/id_columns.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Rounds a split on the graph of experts and ranks whose edges are the slots with a fraction of a
/// token. An expert's shares add up to whole tokens, so no expert has a single such slot; if a rank
/// has a single one, rounding it either way rounds the rank's load. So fractions move along a
/// cycle, or along a path between two such ranks, down in every other slot and up in the slots
/// between, until one fraction is 0. No other rank's load changes.
///
/// Every walk stays within a connected component, so components can be rounded in parallel: the
/// result of a component does not depend on the others if its ranks start walks in rising order.
struct split_rounding {
  scratch_ref memory;
  index_t experts;
  index_t ranks;
  index_t slots;
  index_t sort_room;
  int bits = 0;            ///< fraction bits of a share
  std::int64_t token = 0;  ///< 2^bits

  std::int64_t* share = memory.take(slots);   ///< in units of 2^-bits
  std::int32_t* expert = memory.take(slots);  ///< -1 for an empty slot or one of no rank
  std::int32_t* rank = memory.take(slots);    ///< -1 for a slot of no rank
  std::int32_t* next = memory.take(slots);    ///< another slot of the expert, -1 after the last
  /// A slot; earlier ones of the expert are whole.
  std::int32_t* expert_first = memory.take(experts);
  std::int32_t* expert_at = memory.take(experts);  ///< the latest position on a walk
  std::int32_t* rank_first = memory.take(ranks);   ///< a slot; earlier ones of the rank are whole
  std::int32_t* rank_end = memory.take(ranks);
  std::int32_t* rank_at = memory.take(ranks);  ///< the latest position on a walk
  /// A bit for each slot from `rank_first` on: 1: fraction.
  std::uint32_t* open = memory.take(ranks);
  /// The slots of a walk from a rank to an expert, to a rank, ...
  std::int32_t* walk = memory.take(walk_limit(ranks));
  /// Component << 32 | rank; not used by a serial team.
  std::uint64_t* members = memory.take(ranks);
  std::byte* sort_storage = memory.take(sort_room);  ///< of `members`, and for sorting slots

  /// A walk reaches each rank of its component once and leaves it once.
  [[nodiscard]] PLIMSOLL_HD static constexpr index_t walk_limit(index_t ranks) { return 2 * ranks; }

  /// Rounds all shares. Returns the number of times fractions moved.
  template <class Team>
  PLIMSOLL_HD std::int64_t run(Team& team) const {
    team.for_each(ranks, [this](index_t r) {
      open[r] = fractions_from(rank_first[r], rank_end[r]);
      rank_at[r] = static_cast<std::int32_t>(r);
    });
    if constexpr (Team::is_serial) {
      team.for_each(experts, [this](index_t e) { expert_at[e] = 0; });
      return team.sum(ranks, [this](index_t r) { return round(static_cast<std::int32_t>(r)); });
    } else {
      find_components(team);
      // The thread of a component's first member walks for all its members.
      return team.sum(ranks, [this](index_t first) {
        std::int64_t moves = 0;
        if (first == 0 || component(first - 1) != component(first)) {
          split_rounding own = *this;
          own.walk += walk_limit(first);
          for (index_t i = first; i < ranks && component(i) == component(first); ++i) {
            moves += own.round(static_cast<std::int32_t>(members[i]));
          }
        }
        return moves;
      });
    }
  }

 private:
  /// Sorts ranks by component (label propagation): the lowest rank number of a component spreads
  /// along the edges until no label changes.
  template <class Team>
  PLIMSOLL_HD void find_components(Team& team) const {
    std::int32_t* const rank_label = rank_at;  // its own number at first
    std::int32_t* const expert_label = expert_at;
    bool changed = true;
    PLIMSOLL_NO_UNROLL
    while (changed) {
      team.for_each(experts, [=, this](index_t e) {
        std::int32_t label = highest<std::int32_t>;
        PLIMSOLL_NO_UNROLL
        for (std::int32_t slot = expert_first[e]; slot >= 0; slot = next[slot]) {
          if (fraction(slot) != 0) {
            label = minimum{}(label, rank_label[rank[slot]]);
          }
        }
        // A label is a rank of the same component: its own label is at least as low.
        PLIMSOLL_NO_UNROLL
        while (label < ranks && rank_label[label] < label) {
          label = rank_label[label];
        }
        expert_label[e] = label;
      });
      changed = team.any(ranks, [=, this](index_t r) {
        std::int32_t label = rank_label[r];
        PLIMSOLL_NO_UNROLL
        for (std::int32_t slot = rank_first[r]; slot < rank_end[r]; ++slot) {
          if (fraction(slot) != 0) {
            label = minimum{}(label, expert_label[expert[slot]]);
          }
        }
        bool const lower = label < rank_label[r];
        rank_label[r] = label;
        return lower;
      });
    }
    team.for_each(ranks, [=, this](index_t r) {
      members[r] = static_cast<std::uint64_t>(rank_label[r]) << 32 | static_cast<std::uint64_t>(r);
    });
    team.sort(members, ranks, sort_storage);
  }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t component(index_t i) const { return members[i] >> 32; }

  // Positions are 32-bit numbers: 64-bit arithmetic takes two instructions of a GPU, and the time
  // of a walk is that of its instructions.

  /// Rounds all shares of a rank.
  PLIMSOLL_HD std::int64_t round(std::int32_t r) const {
    std::int64_t moves = 0;
    PLIMSOLL_NO_UNROLL
    while (slot_of_rank(r, -1) >= 0) {
      moves += walk_from(r);
    }
    return moves;
  }

  [[nodiscard]] PLIMSOLL_HD std::int64_t fraction(std::int32_t slot) const {
    return share[slot] & (token - 1);
  }

  /// Slots that `open` covers.
  static constexpr std::int32_t window = 32;

  /// Returns the bits of `open` for the slots from `first` on.
  [[nodiscard]] PLIMSOLL_HD std::uint32_t fractions_from(std::int32_t first,
                                                         std::int32_t end) const {
    std::uint32_t found = 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t i = 0; i < window && first + i < end; ++i) {
      found |= std::uint32_t{fraction(first + i) != 0} << i;
    }
    return found;
  }
  /// Returns the rank's first slot with a fraction, other than `excluded`; -1 if there is none.
  PLIMSOLL_HD std::int32_t slot_of_rank(std::int32_t r, std::int32_t excluded) const {
    std::uint32_t found = open[r];
    PLIMSOLL_NO_UNROLL
    while (found == 0 && rank_first[r] + window < rank_end[r]) {
      rank_first[r] += window;
      open[r] = found = fractions_from(rank_first[r], rank_end[r]);
    }
    std::int32_t const first = rank_first[r];
    auto const passed = static_cast<std::uint32_t>(excluded - first);
    found &= passed < window ? ~(std::uint32_t{1} << passed) : ~std::uint32_t{0};
    return found != 0 ? first + lowest_bit(found)
                      : slot_from(first + window, rank_end[r], excluded);
  }
  /// Returns the first of slots [slot, end) with a fraction, other than `excluded`; -1: none.
  [[nodiscard]] PLIMSOLL_HD std::int32_t slot_from(std::int32_t slot, std::int32_t end,
                                                   std::int32_t excluded) const {
    PLIMSOLL_NO_UNROLL
    while (slot < end && (slot == excluded || fraction(slot) == 0)) {
      ++slot;
    }
    return slot < end ? slot : -1;
  }
  PLIMSOLL_HD std::int32_t slot_of_expert(std::int32_t e, std::int32_t excluded) const {
    std::int32_t slot = expert_first[e];
    PLIMSOLL_NO_UNROLL
    while (slot != excluded && fraction(slot) == 0) {
      slot = next[slot];
    }
    expert_first[e] = slot;
    if (slot == excluded) {
      slot = next[slot];
      PLIMSOLL_NO_UNROLL
      while (fraction(slot) == 0) {
        slot = next[slot];
      }
    }
    return slot;
  }

  // A walk is never erased: a node is on it if the walk reaches the node's latest position by the
  // node.

  /// Returns the number of slots up to the expert on a walk of this length, its last slot excluded;
  /// 0 if the expert is not on it.
  [[nodiscard]] PLIMSOLL_HD std::int32_t find_expert(std::int32_t e, std::int32_t length) const {
    std::int32_t const at = expert_at[e];
    return at > 0 && at < length && expert[walk[at - 1]] == e ? at : 0;
  }
  /// Returns the number of slots up to the rank on a walk from `start`; -1 if it is not on it.
  [[nodiscard]] PLIMSOLL_HD std::int32_t find_rank(std::int32_t r, std::int32_t start,
                                                   std::int32_t length) const {
    std::int32_t const at = rank_at[r];
    if (r == start) {
      return 0;
    }
    return at > 0 && at < length && rank[walk[at - 1]] == r ? at : -1;
  }

  /// Moves fractions along every cycle that the walk closes, and along the walk once it joins two
  /// ranks that have a single slot with a fraction.
  PLIMSOLL_HD std::int64_t walk_from(std::int32_t start) const {
    std::int64_t moves = 0;
    std::int32_t length = 0;
    std::int32_t at = start;
    PLIMSOLL_NO_UNROLL
    while (true) {
      std::int32_t const slot = slot_of_rank(at, length == 0 ? -1 : walk[length - 1]);
      if (slot < 0) {
        if (length == 0) {
          return moves;  // cycles rounded all of the rank's fractions
        }
        bool const from_end = slot_of_rank(start, walk[0]) < 0;
        if (from_end) {
          move(0, length);
          return moves + 1;
        }
        start = at;  // a path from here joins two ends, unless a cycle closes first
        length = 0;
        continue;
      }
      std::int32_t const e = expert[slot];
      walk[length++] = slot;
      std::int32_t first = find_expert(e, length);
      if (first == 0) {
        expert_at[e] = length;
        std::int32_t const onward = slot_of_expert(e, slot);
        walk[length++] = onward;
        at = rank[onward];
        first = find_rank(at, start, length);
        if (first < 0) {
          rank_at[at] = length;
          continue;
        }
      }
      // A cycle. The walk goes on from the node where it began, or from the rank before it.
      move(first, length);
      ++moves;
      length = first / 2 * 2;
      at = length == 0 ? start : rank[walk[length - 1]];
    }
  }

  /// Moves fractions along walk[first, last): down in the first slot, up in the second, and so on,
  /// by the largest amount that all slots allow.
  PLIMSOLL_HD void move(std::int32_t first, std::int32_t last) const {
    std::int64_t amount = highest<std::int64_t>;
    for (std::int32_t i = first; i < last; ++i) {  // unrolled, so that loads overlap
      std::int64_t const part = fraction(walk[i]);
      amount = minimum{}(amount, (i - first) % 2 == 0 ? part : token - part);
    }
    PLIMSOLL_NO_UNROLL
    for (std::int32_t i = first; i < last; ++i) {
      amount = -amount;
      std::int32_t const slot = walk[i];
      if (((share[slot] += amount) & (token - 1)) == 0) {
        std::int32_t const r = rank[slot];
        std::int32_t const bit = slot - rank_first[r];
        open[r] &= bit < window ? ~(std::uint32_t{1} << bit) : ~std::uint32_t{0};
      }
    }
  }
};

/// Body of `quota`. Problem = layer.
template <class Loads>
struct quota_body {
  using device_team = block<128>;

  Loads loads;  ///< `[layers, experts]`, integers
  matrix_ref<std::int32_t const> physical_to_logical;
  slot_ranges ranges;
  matrix_ref<double const> split;    ///< `[layers, slots]`
  matrix_ref<std::int32_t> quotas;   ///< `[layers, slots]`
  vector_ref<quota_report> reports;  ///< `[layers]`
  slot_lists lists = {};             ///< of every layer; if empty, the slots are sorted

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<split_rounding>(loads.extent(1), ranges.ranks, ranges.slots, sort_room());
  }
  [[nodiscard]] PLIMSOLL_HD index_t sort_room() const {
    bool const listed = lists.first != nullptr;
    return most_sort_bytes<std::uint64_t>(maximum{}(ranges.ranks, listed ? 0 : ranges.slots));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    split_rounding s{memory, loads.extent(1), ranges.ranks, ranges.slots, sort_room()};
    if (fault const refused = prepare(team, layer, s)) {
      refuse(team, layer, refused);
      return;
    }
    std::int64_t const split_peak = peak_of(team, layer, s.share);
    std::int64_t const moves = s.run(team);
    std::int64_t const peak = peak_of(team, layer, s.share);
    team.for_each(ranges.slots, [=, this](index_t slot) {
      quotas(layer, slot) = static_cast<std::int32_t>(s.share[slot] >> s.bits);
    });
    team.single([=, this] {
      reports[layer] = quota_report{
          .peak = peak >> s.bits,
          .split_peak = scale_by_power_of_two(static_cast<double>(split_peak), -s.bits),
          .moves = moves};
    });
  }

 private:
  /// Fills the arrays that a rounding starts from. Returns the first value that it refuses.
  template <class Team>
  PLIMSOLL_HD fault prepare(Team& team, index_t layer, split_rounding& s) const {
    index_t const experts = loads.extent(1);
    index_t const slots = ranges.slots;
    load_scale const scale =
        scale_loads(team, experts, [this, layer](index_t e) { return loads(layer, e); });
    if (scale.refused) {
      return scale.refused;
    }
    auto const total =
        team.sum(experts, [this, layer](index_t e) { return std::int64_t{loads(layer, e)}; });
    if (total > highest<std::int32_t>) {
      return fault_of(fault_kind::tokens, -1, total);
    }
    index_t const bad_rank = ranges.first_fault(team, layer);
    if (bad_rank < ranges.ranks) {
      return fault_of(fault_kind::rank_offsets, bad_rank, ranges.end(layer, bad_rank));
    }
    // `minmax_lp` splits integer loads in the same units.
    s.bits = 52 - bit_width(static_cast<std::uint64_t>(total));
    s.token = std::int64_t{1} << s.bits;
    find_ranks(team, layer, s);
    team.for_each(experts, [=](index_t e) { s.expert_first[e] = -1; });
    index_t const mismatch = team.min(slots, [=, this](index_t slot) {
      return is_usable(layer, slot, s.rank[slot]) ? slots : slot;
    });
    if (mismatch < slots) {
      std::int32_t const e = physical_to_logical(layer, mismatch);
      bool const no_expert = e < -1 || e >= experts;
      return fault_of(no_expert ? fault_kind::expert_id : fault_kind::share, mismatch,
                      no_expert ? e : split(layer, mismatch));
    }
    team.for_each(slots, [=, this](index_t slot) {
      s.expert[slot] = s.rank[slot] < 0 ? -1 : physical_to_logical(layer, slot);
    });
    link_slots(team, layer, s);
    team.for_each(slots, [=, this](index_t slot) {
      s.share[slot] = static_cast<std::int64_t>(fixed_point(split(layer, slot), s.bits));
    });
    index_t const unmet = team.min(experts, [=, this](index_t e) {
      auto const load = static_cast<std::int64_t>(loads(layer, e)) << s.bits;
      return settle(s.share, s.next, s.expert_first[e], load) ? experts : e;
    });
    if (unmet < experts) {
      return fault_of(fault_kind::shares, unmet, loads(layer, unmet));
    }
    return {};
  }

  /// Finds the rank of every slot, and the slots of every rank.
  template <class Team>
  PLIMSOLL_HD void find_ranks(Team& team, index_t layer, split_rounding const& s) const {
    team.for_each(ranges.slots, [=](index_t slot) { s.rank[slot] = -1; });
    team.for_each(ranges.ranks, [=, this](index_t r) {
      s.rank_first[r] = static_cast<std::int32_t>(ranges.begin(layer, r));
      s.rank_end[r] = static_cast<std::int32_t>(ranges.end(layer, r));
      PLIMSOLL_NO_UNROLL
      for (index_t slot = s.rank_first[r]; slot < s.rank_end[r]; ++slot) {
        s.rank[slot] = static_cast<std::int32_t>(r);
      }
    });
  }

  /// Links the slots of every expert in rising order.
  template <class Team>
  PLIMSOLL_HD void link_slots(Team& team, index_t layer, split_rounding const& s) const {
    index_t const slots = ranges.slots;
    std::int32_t const* const expert = s.expert;
    std::int32_t* const next = s.next;
    std::int32_t* const expert_first = s.expert_first;
    // Slots after the last rank's come last in a list, and `expert` is -1 for them.
    auto const link = [=](index_t i, index_t n, auto slot_at) {
      std::int32_t const slot = slot_at(i);
      std::int32_t const e = expert[slot];
      if (e >= 0) {
        next[slot] = i + 1 < n && expert[slot_at(i + 1)] == e ? slot_at(i + 1) : -1;
        if (i == 0 || expert[slot_at(i - 1)] != e) {
          expert_first[e] = slot;
        }
      }
    };
    if (lists.first != nullptr) {
      slot_lists const own = lists.of_layer(layer);
      index_t const n = own.first[own.experts];
      team.for_each(n, [=](index_t i) { link(i, n, [=](index_t j) { return own.slot[j]; }); });
    } else {
      index_t const experts = loads.extent(1);
      auto* const keys =
          reinterpret_cast<std::uint64_t*>(s.share);  // free until shares are written
      team.for_each(slots, [=](index_t slot) {
        keys[slot] = slot_lists::key(expert[slot] < 0 ? experts : expert[slot], slot);
      });
      team.sort(keys, slots, s.sort_storage);
      team.for_each(slots, [=](index_t i) {
        link(i, slots, [=](index_t j) { return static_cast<std::int32_t>(keys[j]); });
      });
    }
  }

  PLIMSOLL_HD bool is_usable(index_t layer, index_t slot, std::int32_t rank) const {
    std::int32_t const e = physical_to_logical(layer, slot);
    if (e < -1 || e >= loads.extent(1)) {
      return false;
    }
    // Allows slightly more than `settle`, which decides. Doubles hold these sums exactly.
    double const load = e < 0 || rank < 0 ? -1.0 : static_cast<double>(loads(layer, e));
    double const most = load < 0 ? 0.0 : add(add(load, multiply(load, 0x1p-20)), 1.0);
    return split(layer, slot) >= 0 && split(layer, slot) <= most;
  }

  template <class Team>
  PLIMSOLL_HD std::int64_t peak_of(Team& team, index_t layer, std::int64_t const* share) const {
    return team.max(ranges.ranks, [=, this](index_t r) {
      std::int64_t sum = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t slot = ranges.begin(layer, r); slot < ranges.end(layer, r); ++slot) {
        sum += share[slot];
      }
      return sum;
    });
  }

  /// Adds the difference of an expert's load and its shares to the largest share. Returns false if
  /// the difference exceeds 2^-20 of the load and a unit for each share.
  PLIMSOLL_HD static bool settle(std::int64_t* share, std::int32_t const* next, std::int32_t first,
                                 std::int64_t load) {
    if (first < 0) {
      return load == 0;
    }
    std::int64_t missing = load;
    std::int64_t allowed = load >> 20;
    std::int32_t largest = first;
    // Stops long before the sum overflows.
    PLIMSOLL_NO_UNROLL
    for (std::int32_t slot = first; slot >= 0 && missing > -(std::int64_t{1} << 53);
         slot = next[slot]) {
      missing -= share[slot];
      ++allowed;  // each share may have been rounded down
      largest = share[slot] > share[largest] ? slot : largest;
    }
    share[largest] += missing;
    return missing <= allowed && -missing <= allowed && share[largest] >= 0;
  }

  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, index_t layer, fault const& found) const {
    team.for_each(ranges.slots, [=, this](index_t slot) { quotas(layer, slot) = 0; });
    team.single([=, this] { reports[layer] = quota_report{.refused = found}; });
  }
};

/// Body of `source_quotas`, in two launches: one problem lists the slots, then problem = tile of
/// experts.
struct source_quotas_body {
  using device_team = block<128>;
  static constexpr index_t tile = 128;

  slot_lists lists;
  vector_ref<std::int32_t const> expert_of;
  topology where;  ///< ranks and nodes
  vector_ref<std::int32_t const> quotas;
  matrix_ref<std::int32_t const> counts;   ///< `[ranks, experts]`
  matrix_ref<std::int32_t> source_quotas;  ///< `[ranks, slots]`
  std::int32_t* rank;                      ///< `[slots]`
  std::int32_t* room;                      ///< `[slots]`: quota that no source has yet
  std::uint64_t* keys;                     ///< `[slots]`: memory for listing
  std::byte* sort_storage;                 ///< of `keys`
  bool listing;

  /// Takes the arrays that both launches share, and leaves the rest empty.
  [[nodiscard]] PLIMSOLL_HD static source_quotas_body in(scratch& memory, index_t experts,
                                                         index_t slots) {
    source_quotas_body result{};
    result.lists = slot_lists::in(memory, experts, slots);
    memory.take(result.rank, slots);
    memory.take(result.room, slots);
    memory.take(result.keys, slots);
    memory.take(result.sort_storage, sort_bytes<device_team, std::uint64_t>(slots));
    return result;
  }

  [[nodiscard]] index_t problems() const { return listing ? 1 : (lists.experts + tile - 1) / tile; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    if (listing) {
      team.for_each(lists.slots, [=, this](index_t s) {
        rank[s] = -1;
        room[s] = 0;
        for (index_t r = 0; r < where.ranks(); ++r) {
          source_quotas(r, s) = 0;
        }
      });
      team.for_each(where.ranks(), [=, this](index_t r) {
        for (index_t s = where.ranges.begin(0, r); s < where.ranges.end(0, r); ++s) {
          rank[s] = static_cast<std::int32_t>(r);
          room[s] = quotas[s];
        }
      });
      lists.fill(team, expert_of, keys, sort_storage);
      return;
    }
    index_t const first = problem * tile;
    team.for_each(minimum{}(lists.experts - first, tile),
                  [=, this](index_t i) { share_out(first + i); });
  }

 private:
  /// Divides an expert's quotas: each source fills the slots on its own rank, then on its node,
  /// then any.
  PLIMSOLL_HD void share_out(index_t e) const {
    for (int distance = 0; distance < 3; ++distance) {
      for (index_t source = 0; source < where.ranks(); ++source) {
        std::int32_t left = counts(source, e);
        for (index_t i = lists.first[e]; i < lists.first[e + 1]; ++i) {
          left -= source_quotas(source, lists.slot[i]);
        }
        for (index_t i = lists.first[e]; i < lists.first[e + 1] && left > 0; ++i) {
          index_t const s = lists.slot[i];
          bool const is_near =
              distance == 2 ||
              (distance == 0 ? rank[s] == source : where.node_of(rank[s]) == where.node_of(source));
          std::int32_t const given = is_near ? minimum{}(left, room[s]) : 0;
          source_quotas(source, s) += given;
          room[s] -= given;
          left -= given;
        }
      }
    }
  }
};

/// Body of `dispatch`, in up to three launches. Count: problem = tile of token copies, and one more
/// problem for the slots. Scan: problem = column of the counts; left out if tiles add up the counts
/// themselves. Assign: problem = tile of token copies. `Slot` is the type of the chosen slots, and
/// `Expert` that of the experts in the map.
template <class Id, class Slot, class Expert = std::int32_t>
struct dispatch_body {
  using device_team = block<256>;
  static constexpr bool is_streaming = true;
  enum class phase { count, scan, assign };

  matrix_ref<Id const> ids;  ///< `[tokens, k]`
  vector_ref<Expert const> expert_of;
  vector_ref<std::int32_t const> quotas;
  matrix_ref<Slot> chosen;                 ///< `[tokens, k]`
  vector_ref<dispatch_counters> counters;  ///< `[1]`
  slot_lists lists;
  bool listed;           ///< the lists are already filled
  std::int64_t* before;  ///< `[slots]`, as `lists.slot`: quotas of the expert's earlier slots
  std::int64_t* total;   ///< `[experts]`: quotas of all slots of the expert
  tile_counts tiles;     ///< columns: experts, -1, other numbers
  bool sampled;
  std::uint64_t seed;
  std::uint64_t subsequence;
  std::uint64_t first_token;
  phase now;

  /// Takes the arrays that the launches share, except for `lists`, and leaves the rest empty.
  [[nodiscard]] PLIMSOLL_HD static dispatch_body in(scratch& memory, index_t copies,
                                                    index_t experts, index_t slots) {
    dispatch_body result{};
    memory.take(result.before, slots);
    memory.take(result.total, experts);
    result.tiles = tile_counts::in(memory, copies, experts + 2);
    return result;
  }

  [[nodiscard]] index_t problems() const {
    return now == phase::scan ? tiles.columns : tiles.problems() + (now == phase::count);
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return now == phase::scan ? 0
                              : maximum{}(tiles.scratch_bytes<device_team>(),
                                          scratch_bytes_of<std::byte>(sort_room()));
  }
  [[nodiscard]] PLIMSOLL_HD index_t sort_room() const {
    bool const lists_slots = now == phase::count && !listed;
    return lists_slots ? sort_bytes<device_team, std::uint64_t>(lists.slots) : 0;
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    auto const column_of = [this](index_t copy) {
      return column_of_id(element(ids, copy), lists.experts);
    };
    if (now == phase::count && problem == tiles.problems()) {
      add_up_quotas(team, memory);
    } else if (now == phase::count) {
      tiles.count(team, memory, problem, column_of);
    } else if (now == phase::scan) {
      tiles.scan(team, problem);
    } else {
      tile_counts::sums const counts = tiles.add_up(team, memory, problem, problem == 0);
      if (problem == 0) {
        report(team, counts.totals);
      }
      tiles.visit<device_team>(team, memory, problem, counts, column_of,
                               [this](index_t copy, std::int32_t e, std::int32_t earlier) {
                                 element(chosen, copy) = Slot{choose(e, earlier, copy)};
                               });
    }
  }

 private:
  template <class Team>
  PLIMSOLL_HD void add_up_quotas(Team& team, scratch memory) const {
    if (!listed) {
      // `before` serves as memory for keys until the quotas are added up below.
      lists.fill(team, expert_of, reinterpret_cast<std::uint64_t*>(before),
                 memory.take<std::byte>(sort_room()));
    }
    team.for_each(lists.experts, [=, this](index_t e) {
      total[e] = 0;
      for (index_t i = lists.first[e]; i < lists.first[e + 1]; ++i) {
        before[i] = total[e];
        total[e] += maximum{}(quotas[lists.slot[i]], 0);
      }
    });
  }

  template <class Team>
  PLIMSOLL_HD void report(Team& team, std::int32_t const* totals) const {
    auto const copies = [=, this](index_t e, bool homed) {
      return (lists.first[e] < lists.first[e + 1]) == homed ? std::int64_t{totals[e]} : 0;
    };
    auto const routed = team.sum(lists.experts, [=](index_t e) { return copies(e, true); });
    auto const without_slot = team.sum(lists.experts, [=](index_t e) { return copies(e, false); });
    auto const beyond = team.sum(lists.experts, [=, this](index_t e) {
      return maximum{}(copies(e, true) - total[e], std::int64_t{0});
    });
    team.single([=, this] {
      counters[0] = dispatch_counters{.routed = routed,
                                      .beyond_quota = beyond,
                                      .without_slot = without_slot,
                                      .unrouted = totals[lists.experts],
                                      .out_of_range = totals[lists.experts + 1]};
    });
  }

  /// Returns the slot of a token copy. `earlier` is the number of copies of its expert before it.
  PLIMSOLL_HD std::int32_t choose(std::int32_t e, std::int64_t earlier, index_t copy) const {
    if (e >= lists.experts) {
      return -1;
    }
    index_t const first = lists.first[e];
    index_t const slots = lists.first[e + 1] - first;
    if (slots == 0) {
      return -1;
    }
    std::int64_t position = earlier;
    if (sampled && total[e] > 0) {
      // With 32 random bits and a total below 2^31, no slot's probability is off by more than
      // 2^-32.
      std::uint64_t const index = first_token * static_cast<std::uint64_t>(ids.extent(1)) +
                                  static_cast<std::uint64_t>(copy);
      std::uint64_t const draw = random::bits(seed, subsequence, index) >> 32;
      position = static_cast<std::int64_t>(draw * static_cast<std::uint64_t>(total[e]) >> 32);
    }
    if (position >= total[e]) {
      return lists.slot[first + (position - total[e]) % slots];
    }
    // The last slot that begins at or before the position: slots with quota 0 are never chosen.
    return lists.slot[first + last_not_above(before + first, slots, position)];
  }
};

}}}  // namespace plimsoll::detail

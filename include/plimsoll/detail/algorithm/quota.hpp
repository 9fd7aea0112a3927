// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `round_split`, `divide_quotas` and `dispatch`: they round a split to whole tokens
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
  // A walk is one chain of loads, so each of its steps loads one `slot_node` and one `rank_slots`,
  // which have all that it reads.

  /// A slot, as a walk from its rank takes it. Node e + `ranks` is expert e, a lower one a rank.
  struct alignas(16) slot_node {
    std::int32_t expert;       ///< as a node
    std::int32_t onward;       ///< another slot of the expert; earlier ones, but this, are whole
    std::int32_t onward_rank;  ///< the rank of `onward`
    std::int32_t unused;
  };
  struct alignas(16) rank_slots {
    std::int32_t first;  ///< a slot; earlier ones of the rank are whole
    std::int32_t end;
    std::uint32_t open;  ///< a bit for each slot from `first` on: 1: fraction
    std::int32_t unused;
  };
  /// A node on a walk, and the slot that leads to it; -1: the first node.
  struct alignas(8) step {
    std::int32_t slot;
    std::int32_t to;
  };

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
  slot_node* slot_nodes = memory.take(slots);
  /// A slot, -1: none; after `join` with a fraction.
  std::int32_t* expert_first = memory.take(experts);
  rank_slots* slots_of = memory.take(ranks);
  /// `[ranks + experts]`: the node's position when a walk last reached it. It is on the walk if it
  /// still is at that position, so that nothing has to be reset.
  std::int32_t* mark = memory.take(ranks + experts);
  /// A walk from a rank to an expert, to a rank, ...
  step* walk = memory.take(walk_limit(ranks));
  std::uint64_t* ranks_of = memory.take(experts);  ///< bits of r & 63 for slots with a fraction
  /// Component << 32 | rank; not used by a serial team.
  std::uint64_t* members = memory.take(ranks);
  std::byte* sort_storage = memory.take(sort_room);  ///< of `members`, and for sorting slots

  /// A walk reaches each rank of its component once and leaves it once, and has a first node.
  [[nodiscard]] PLIMSOLL_HD static constexpr index_t walk_limit(index_t ranks) { return 3 * ranks; }

  /// Sets the nodes of the expert's slots with a fraction, whose ranks are a part of one component:
  /// a walk reads no rank of another, since its slots were whole at the beginning.
  PLIMSOLL_HD void join(index_t e) const {
    auto const node = static_cast<std::int32_t>(ranks + e);
    std::int32_t head = none;
    bool is_second = false;
    std::uint64_t joined = 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t slot = expert_first[e]; slot >= 0; slot = next[slot]) {
      if (fraction(slot) == 0) {
        continue;
      }
      joined |= std::uint64_t{1} << (rank[slot] & 63);
      if (head == none) {
        head = slot;
        is_second = true;
        continue;
      }
      slot_nodes[slot] = {node, head, rank[head], 0};
      if (is_second) {
        slot_nodes[head] = {node, slot, rank[slot], 0};
        is_second = false;
      }
    }
    expert_first[e] = head;
    ranks_of[e] = joined;
  }

  /// Prepares `run`. Returns the largest load of a rank.
  template <class Team>
  PLIMSOLL_HD std::int64_t start(Team& team) const {
    return team.max(ranks, [this](index_t r) {
      mark[r] = static_cast<std::int32_t>(r);  // its label for `find_components`
      rank_slots const own = slots_of[r];
      slots_of[r].open = fractions_from(own.first, own.end);
      return load_of(own.first, own.end);
    });
  }

  /// Returns the largest load of a rank.
  template <class Team>
  PLIMSOLL_HD std::int64_t peak(Team& team) const {
    // Ranks follow one another. The first slots of `slots_of` change while shares are rounded.
    return team.max(ranks, [this](index_t r) {
      return load_of(r == 0 ? 0 : slots_of[r - 1].end, slots_of[r].end);
    });
  }

  /// Rounds all shares, after `start`. Returns the number of times fractions moved.
  template <class Team>
  PLIMSOLL_HD std::int64_t run(Team& team) const {
    if constexpr (Team::is_serial) {
      team.for_each(ranks + experts, [this](index_t node) { mark[node] = none; });
      return team.sum(ranks, [this](index_t r) { return round(static_cast<std::int32_t>(r)); });
    } else if (ranks <= 64) {
      return run_few(team);
    } else {
      find_components(team);
      // The thread of a component's first member walks for all its members.
      return sum_spread(team, [this](std::int32_t first) {
        std::uint64_t const own_component = component(first);
        std::int64_t moves = 0;
        if (first == 0 || component(first - 1) != own_component) {
          split_rounding own = *this;
          own.walk += walk_limit(first);
          for (auto i = index_t{first}; i < ranks && component(i) == own_component; ++i) {
            moves += own.round(static_cast<std::int32_t>(members[i]));
          }
        }
        return moves;
      });
    }
  }

 private:
  /// Sums f(r) over all ranks. Threads of one warp wait for each other, so neighbors go to
  /// different warps of a block of 128.
  template <class Team, class F>
  PLIMSOLL_HD std::int64_t sum_spread(Team& team, F f) const {
    auto const n = static_cast<std::int32_t>(ranks);
    return team.sum((ranks + 127) / 128 * 128, [=](index_t index) {
      auto const i = static_cast<std::int32_t>(index);
      std::int32_t const r = i / 128 * 128 + i % 32 * 4 + i / 32 % 4;
      return r < n ? f(r) : std::int64_t{0};
    });
  }

  /// Does the same as `run` for at most 64 ranks and a team of several threads: every rank searches
  /// its component in bit masks, and the thread of a component's lowest rank walks for all.
  template <class Team>
  PLIMSOLL_HD std::int64_t run_few(Team& team) const {
    std::uint64_t* const linked = members;  // ranks that share a split expert with this one
    auto* const together = reinterpret_cast<std::uint64_t*>(sort_storage);
    auto* const first = reinterpret_cast<std::int32_t*>(members);  // when `linked` is not needed
    team.for_each(ranks + experts, [=, this](index_t i) {
      mark[i] = none;  // walks begin without positions
      if (i < ranks) {
        rank_slots const own = slots_of[i];
        std::uint64_t found = 0;
        PLIMSOLL_NO_UNROLL
        for (std::int32_t slot = own.first; slot < own.end; ++slot) {
          found |= fraction(slot) != 0 ? ranks_of[expert[slot]] : 0;
        }
        linked[i] = found;
      }
    });
    team.for_each(ranks, [=](index_t r) {
      std::uint64_t found = linked[r];
      std::uint64_t left = found & ~(std::uint64_t{1} << r);
      PLIMSOLL_NO_UNROLL
      while (left != 0) {
        std::uint64_t const more = linked[lowest_bit(left)] & ~found;
        found |= more;
        left = (left & (left - 1)) | more;
      }
      together[r] = found;
    });
    auto const leads = [=](index_t r) { return together[r] != 0 && lowest_bit(together[r]) == r; };
    team.exclusive_scan(
        ranks, [=](index_t r) { return leads(r) ? bit_count(together[r]) : 0; }, first);
    return sum_spread(team, [=, this](std::int32_t r) {
      std::int64_t moves = 0;
      if (leads(r)) {
        split_rounding own = *this;
        own.walk += walk_limit(first[r]);
        PLIMSOLL_NO_UNROLL
        for (std::uint64_t left = together[r]; left != 0; left &= left - 1) {
          moves += own.round(lowest_bit(left));
        }
      }
      return moves;
    });
  }

  [[nodiscard]] PLIMSOLL_HD std::int64_t load_of(std::int32_t first, std::int32_t end) const {
    std::int64_t sum = 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t slot = first; slot < end; ++slot) {
      sum += share[slot];
    }
    return sum;
  }

  /// Most ranks of which each finds its place by comparing itself with all: a sort by a block takes
  /// as long as 400 comparisons.
  static constexpr index_t few_ranks = 256;

  /// Sorts ranks by component (label propagation): the lowest rank number of a component spreads
  /// along the edges until no label changes.
  template <class Team>
  PLIMSOLL_HD void find_components(Team& team) const {
    // Marks serve as labels.
    std::int32_t* const rank_label = mark;
    std::int32_t* const expert_label = mark + ranks;
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
        std::int32_t const before = rank_label[r];
        std::int32_t const end = slots_of[r].end;
        std::int32_t label = before;
        PLIMSOLL_NO_UNROLL
        for (std::int32_t slot = slots_of[r].first; slot < end; ++slot) {
          if (fraction(slot) != 0) {
            label = minimum{}(label, expert_label[expert[slot]]);
          }
        }
        rank_label[r] = label;
        return label < before;
      });
    }
    if (ranks <= few_ranks) {
      static_assert(rank_limit <= 65536);
      auto* const keys = reinterpret_cast<std::uint32_t*>(sort_storage);  // half as long
      team.for_each(ranks, [=](index_t r) {
        keys[r] = static_cast<std::uint32_t>(rank_label[r]) << 16 | static_cast<std::uint32_t>(r);
      });
      auto const n = static_cast<std::int32_t>(ranks);
      team.for_each(ranks + experts, [=, this](index_t i) {
        if (i < n) {
          std::uint32_t const key = keys[i];
          std::int32_t place = 0;
          for (std::int32_t k = 0; k < n; ++k) {  // unrolled, so that reads overlap
            place += keys[k] < key;
          }
          members[place] = std::uint64_t{key >> 16} << 32 | static_cast<std::uint64_t>(i);
        }
        mark[i] = none;  // walks begin without positions
      });
    } else {
      team.for_each(ranks, [=, this](index_t r) {
        members[r] =
            static_cast<std::uint64_t>(rank_label[r]) << 32 | static_cast<std::uint64_t>(r);
      });
      team.sort(members, ranks, sort_storage);
      team.for_each(ranks + experts, [this](index_t node) { mark[node] = none; });
    }
  }
  [[nodiscard]] PLIMSOLL_HD std::uint64_t component(index_t i) const { return members[i] >> 32; }

  // Positions are 32-bit numbers: 64-bit arithmetic takes two instructions of a GPU, and the time
  // of a walk is that of its instructions.

  [[nodiscard]] PLIMSOLL_HD std::int64_t fraction(std::int32_t slot) const {
    return share[slot] & (token - 1);
  }

  /// Instead of a slot: there is none, or it must still be found.
  static constexpr std::int32_t none = -1;
  static constexpr std::int32_t unknown = -2;

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
  /// Returns the bit of `open` for a slot of the rank, 0 if it has none.
  [[nodiscard]] PLIMSOLL_HD static std::uint32_t bit_of(rank_slots const& slots,
                                                        std::int32_t slot) {
    auto const passed = static_cast<std::uint32_t>(slot - slots.first);
    return passed < window ? std::uint32_t{1} << passed : 0;
  }
  /// Returns whether `open` covers all slots of the rank from `first` on.
  [[nodiscard]] PLIMSOLL_HD static bool covers_all(rank_slots const& slots) {
    return slots.first + window >= slots.end;
  }
  /// Returns the rank's first slot with a fraction, other than `excluded`; `none` if there is none.
  PLIMSOLL_HD std::int32_t slot_of_rank(std::int32_t r, std::int32_t excluded) const {
    rank_slots own = slots_of[r];
    PLIMSOLL_NO_UNROLL
    while (own.open == 0 && !covers_all(own)) {
      own.first += window;
      own.open = fractions_from(own.first, own.end);
      slots_of[r] = own;
    }
    std::uint32_t const found = own.open & ~bit_of(own, excluded);
    if (found != 0) {
      return own.first + lowest_bit(found);
    }
    return covers_all(own) ? none : slot_from(own.first + window, own.end, excluded);
  }
  /// Returns the first of slots [slot, end) with a fraction, other than `excluded`; or `none`.
  [[nodiscard]] PLIMSOLL_HD std::int32_t slot_from(std::int32_t slot, std::int32_t end,
                                                   std::int32_t excluded) const {
    PLIMSOLL_NO_UNROLL
    while (slot < end && (slot == excluded || fraction(slot) == 0)) {
      ++slot;
    }
    return slot < end ? slot : none;
  }
  /// Advances the slot after `slot` to one with a fraction. There is one: the shares of the expert
  /// add up to whole tokens.
  PLIMSOLL_HD void advance(std::int32_t slot) const {
    std::int32_t onward = slot_nodes[slot].onward;
    PLIMSOLL_NO_UNROLL
    while (onward == slot || fraction(onward) == 0) {
      onward = next[onward];
    }
    slot_nodes[slot].onward = onward;
    slot_nodes[slot].onward_rank = rank[onward];
  }

  /// Rounds all shares of a rank. Moves fractions along every cycle that a walk closes, and along
  /// a walk once it joins two ranks that have a single slot with a fraction. Returns the number of
  /// moves.
  PLIMSOLL_HD std::int64_t round(std::int32_t r) const {
    rank_slots const own = slots_of[r];
    if (own.open == 0 && covers_all(own)) {
      return 0;  // most ranks: walks from others rounded their shares
    }
    std::int64_t moves = 0;
    std::int32_t start = r;
    std::int32_t length = 0;
    std::int32_t slot = own.open != 0 ? own.first + lowest_bit(own.open) : unknown;  // the next one
    begin_at(r);
    PLIMSOLL_NO_UNROLL
    while (true) {
      if (slot == unknown) {
        step const last = walk[length];
        slot = slot_of_rank(last.to, last.slot);
      }
      std::int32_t first = 0;  // fractions move along the walk from here on
      if (slot != none) {
        // Reads all that a step needs before it writes anything, so that the reads overlap.
        slot_node const node = slot_nodes[slot];
        rank_slots to = slots_of[node.onward_rank];
        std::int32_t seen = mark[node.onward_rank];
        std::int32_t const expert_seen = mark[node.expert];
        walk[length + 1] = {slot, node.expert};
        if (node_at(expert_seen, length) != node.expert) {
          mark[node.expert] = length + 1;
          std::int32_t onward = node.onward;
          std::int32_t onward_rank = node.onward_rank;
          std::uint32_t bit = bit_of(to, onward);
          if ((to.open & bit) == 0 && fraction(onward) == 0) {
            advance(slot);
            onward = slot_nodes[slot].onward;
            onward_rank = slot_nodes[slot].onward_rank;
            to = slots_of[onward_rank];
            bit = bit_of(to, onward);
            seen = mark[onward_rank];
          }
          walk[length + 2] = {onward, onward_rank};
          std::int32_t const there = node_at(seen, length);
          length += 2;
          if (there != onward_rank) {
            mark[onward_rank] = length;
            std::uint32_t const found = to.open & ~bit;
            slot = found != 0 ? to.first + lowest_bit(found) : covers_all(to) ? none : unknown;
            continue;
          }
          first = seen;  // a cycle
        } else {
          ++length;
          first = expert_seen;
        }
      } else if (length == 0 && start == r) {
        return moves;
      } else if (slot_of_rank(start, length == 0 ? none : walk[1].slot) != none) {
        start = walk[length].to;  // a path from here joins two ends, unless a cycle closes first
        begin_at(start);
        length = 0;
        slot = unknown;
        continue;
      }
      std::int32_t kept = 0;
      if (length > 0) {
        kept = move(first, length);
        ++moves;
      }
      if (slot == none) {
        if (start == r && kept == 0) {
          return moves;  // that was the only slot
        }
        if (start != r) {
          start = r;
          begin_at(r);
          kept = 0;
        }
      }
      // Another walk would take the same slots up to the first that is whole now, so this one goes
      // on from the rank before.
      length = kept / 2 * 2;
      slot = unknown;
    }
  }

  /// Begins a walk.
  PLIMSOLL_HD void begin_at(std::int32_t r) const {
    walk[0] = {none, r};
    mark[r] = 0;
  }
  /// Returns the node at a marked position, or `none` if it is beyond the end of the walk. A node
  /// is on the walk if this returns the node itself.
  [[nodiscard]] PLIMSOLL_HD std::int32_t node_at(std::int32_t marked, std::int32_t length) const {
    return static_cast<std::uint32_t>(marked) <= static_cast<std::uint32_t>(length)
               ? walk[marked].to
               : none;
  }
  /// Moves fractions along the walk from one position to another: down in the first slot, up in the
  /// second, and so on, by the largest amount that all slots allow. Their number is even. Returns
  /// the last position before the first slot that became whole.
  PLIMSOLL_HD std::int32_t move(std::int32_t first, std::int32_t last) const {
    std::int64_t amount = highest<std::int64_t>;
    std::int32_t i = first;
    slot_pair pair = shares_at(i);
    PLIMSOLL_NO_UNROLL
    while (true) {
      std::int64_t const down = pair.less & (token - 1);
      std::int64_t const up = token - (pair.more & (token - 1));
      amount = minimum{}(amount, minimum{}(down, up));
      if (i + 2 == last) {
        break;
      }
      i += 2;
      pair = shares_at(i);
    }
    // Goes back, since the last pair is in registers: most walks are short. Reads the next pair
    // before it writes this one, so that a GPU waits less.
    std::int32_t kept = last;
    PLIMSOLL_NO_UNROLL
    while (true) {
      slot_pair const next_pair = i > first ? shares_at(i - 2) : pair;
      std::int64_t const less = pair.less - amount;
      std::int64_t const more = pair.more + amount;
      share[pair.down] = less;
      share[pair.up] = more;
      if ((more & (token - 1)) == 0) {
        close(pair.up);
        kept = i + 1;
      }
      if ((less & (token - 1)) == 0) {
        close(pair.down);
        kept = i;
      }
      if (i == first) {
        return kept;
      }
      i -= 2;
      pair = next_pair;
    }
  }
  /// Two slots that follow one another on a walk, and their shares.
  struct slot_pair {
    std::int32_t down;
    std::int32_t up;
    std::int64_t less;
    std::int64_t more;
  };
  [[nodiscard]] PLIMSOLL_HD slot_pair shares_at(std::int32_t i) const {
    std::int32_t const down = walk[i + 1].slot;
    std::int32_t const up = walk[i + 2].slot;
    return {down, up, share[down], share[up]};
  }
  /// Marks a slot as whole.
  PLIMSOLL_HD void close(std::int32_t slot) const {
    rank_slots& own = slots_of[rank[slot]];
    own.open &= ~bit_of(own, slot);
  }
};

/// Body of `round_split`. Problem = layer.
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
    std::int64_t const split_peak = s.start(team);
    std::int64_t const moves = s.run(team);
    std::int64_t const peak = s.peak(team);
    team.for_each(ranges.slots, [=, this](index_t slot) {
      quotas(layer, slot) = static_cast<std::int32_t>(s.share[slot] >> s.bits);
      if (slot == 0) {
        reports[layer] = quota_report{
            .peak = peak >> s.bits,
            .split_peak = scale_by_power_of_two(static_cast<double>(split_peak), -s.bits),
            .moves = moves};
      }
    });
  }

 private:
  /// Fills the arrays that a rounding starts from. Returns the first value that it refuses.
  template <class Team>
  PLIMSOLL_HD fault prepare(Team& team, index_t layer, split_rounding& s) const {
    index_t const experts = loads.extent(1);
    index_t const slots = ranges.slots;
    auto const load_at = [this, layer](index_t e) { return loads(layer, e); };
    // An invalid load makes the total too large.
    auto const total = team.sum(experts, [=](index_t e) {
      return is_load(load_at(e)) ? static_cast<std::int64_t>(load_at(e)) : load_limit;
    });
    if (total > highest<std::int32_t>) {
      load_scale const scale = scale_loads(team, experts, load_at);
      return scale.refused ? scale.refused : fault_of(fault_kind::tokens, -1, total);
    }
    index_t const bad_rank = ranges.first_fault(team, layer);
    if (bad_rank < ranges.ranks) {
      return fault_of(fault_kind::rank_offsets, bad_rank, ranges.end(layer, bad_rank));
    }
    // `minmax_lp` splits integer loads in the same units.
    s.bits = 52 - bit_width(static_cast<std::uint64_t>(total));
    s.token = std::int64_t{1} << s.bits;
    find_ranks(team, layer, s);
    index_t const mismatch = team.min(slots, [=, this](index_t slot) {
      std::int32_t const e = physical_to_logical(layer, slot);
      double const value = split(layer, slot);
      bool const usable = is_usable(layer, e, value, s.rank[slot]);
      s.expert[slot] = s.rank[slot] < 0 ? -1 : e;
      s.share[slot] = usable ? static_cast<std::int64_t>(fixed_point(value, s.bits)) : 0;
      return usable ? slots : slot;
    });
    if (mismatch < slots) {
      std::int32_t const e = physical_to_logical(layer, mismatch);
      bool const no_expert = e < -1 || e >= experts;
      return fault_of(no_expert ? fault_kind::expert_id : fault_kind::share, mismatch,
                      no_expert ? e : split(layer, mismatch));
    }
    link_slots(team, layer, s);
    index_t const unmet = team.min(experts, [=](index_t e) {
      auto const load = static_cast<std::int64_t>(load_at(e)) << s.bits;
      return settle(s, e, load) ? experts : e;
    });
    if (unmet < experts) {
      return fault_of(fault_kind::shares, unmet, loads(layer, unmet));
    }
    return {};
  }

  /// Finds the rank of every slot, and the slots of every rank. No expert has slots yet.
  template <class Team>
  PLIMSOLL_HD void find_ranks(Team& team, index_t layer, split_rounding const& s) const {
    index_t const last = ranges.end(layer, ranges.ranks - 1);
    index_t const without_rank = ranges.slots - last;
    index_t const experts = s.experts;
    index_t const most = maximum{}(maximum{}(ranges.ranks, experts), without_rank);
    team.for_each(most, [=, this](index_t i) {
      if (i < ranges.ranks) {
        auto const first = static_cast<std::int32_t>(ranges.begin(layer, i));
        auto const end = static_cast<std::int32_t>(ranges.end(layer, i));
        s.slots_of[i] = {first, end, 0, 0};
        PLIMSOLL_NO_UNROLL
        for (std::int32_t slot = first; slot < end; ++slot) {
          s.rank[slot] = static_cast<std::int32_t>(i);
        }
      }
      if (i < experts) {
        s.expert_first[i] = -1;
      }
      if (i < without_rank) {
        s.rank[last + i] = -1;
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
      auto* const keys = reinterpret_cast<std::uint64_t*>(s.slot_nodes);  // written below
      team.for_each(slots, [=](index_t slot) {
        keys[slot] = slot_lists::key(expert[slot] < 0 ? experts : expert[slot], slot);
      });
      team.sort(keys, slots, s.sort_storage);
      team.for_each(slots, [=](index_t i) {
        link(i, slots, [=](index_t j) { return static_cast<std::int32_t>(keys[j]); });
      });
    }
  }

  PLIMSOLL_HD bool is_usable(index_t layer, std::int32_t e, double value, std::int32_t rank) const {
    if (e < -1 || e >= loads.extent(1)) {
      return false;
    }
    // Allows slightly more than `settle`, which decides. Doubles hold these sums exactly.
    double const load = e < 0 || rank < 0 ? -1.0 : static_cast<double>(loads(layer, e));
    double const most = load < 0 ? 0.0 : add(add(load, multiply(load, 0x1p-20)), 1.0);
    return value >= 0 && value <= most;
  }

  /// Adds the difference of an expert's load and its shares to the largest share, and sets the
  /// nodes of its slots. Returns false if the difference exceeds 2^-20 of the load and a unit for
  /// each share.
  PLIMSOLL_HD static bool settle(split_rounding const& s, index_t e, std::int64_t load) {
    std::int64_t* const share = s.share;
    std::int32_t const first = s.expert_first[e];
    if (first < 0) {
      return load == 0;
    }
    std::int64_t missing = load;
    std::int64_t allowed = load >> 20;
    std::int64_t most = -1;
    std::int32_t largest = first;
    // Stops long before the sum overflows.
    PLIMSOLL_NO_UNROLL
    for (std::int32_t slot = first; slot >= 0 && missing > -(std::int64_t{1} << 53);) {
      std::int64_t const part = share[slot];
      std::int32_t const following = s.next[slot];
      missing -= part;
      ++allowed;  // each share may have been rounded down
      largest = part > most ? slot : largest;
      most = maximum{}(most, part);
      slot = following;
    }
    most += missing;
    share[largest] = most;
    s.join(e);
    return missing <= allowed && -missing <= allowed && most >= 0;
  }

  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, index_t layer, fault const& found) const {
    team.for_each(ranges.slots, [=, this](index_t slot) { quotas(layer, slot) = 0; });
    team.single([=, this] { reports[layer] = quota_report{.refused = found}; });
  }
};

/// Body of `divide_quotas`, in two launches: one problem lists the slots, then problem = expert.
struct source_quotas_body {
  using device_team = block<128>;

  slot_lists lists;
  vector_ref<std::int32_t const> expert_of;
  topology where;  ///< ranks and nodes
  vector_ref<std::int32_t const> quotas;
  matrix_ref<std::int32_t const> counts;   ///< `[ranks, experts]`
  matrix_ref<std::int32_t> source_quotas;  ///< `[ranks, slots]`
  std::int32_t* rank;                      ///< `[slots]`; -1 without
  std::uint64_t* keys;                     ///< `[slots]`: memory for listing
  std::byte* sort_storage;                 ///< of `keys`
  bool listing;

  /// Takes the arrays that both launches share, and leaves the rest empty.
  [[nodiscard]] PLIMSOLL_HD static source_quotas_body in(scratch& memory, index_t experts,
                                                         index_t slots) {
    source_quotas_body result{};
    result.lists = slot_lists::in(memory, experts, slots);
    memory.take(result.rank, slots);
    memory.take(result.keys, slots);
    memory.take(result.sort_storage, sort_bytes<device_team, std::uint64_t>(slots));
    return result;
  }

  [[nodiscard]] index_t problems() const { return listing ? 1 : lists.experts; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return listing ? 0 : bytes_taken_by<arrays>(where.ranks(), lists.slots);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    if (!listing) {
      share_out(team, memory, problem);
      return;
    }
    team.for_each(lists.slots, [=, this](index_t s) {
      rank[s] = -1;
      for (index_t r = 0; r < where.ranks() && !lists.is_expert(expert_of[s]); ++r) {
        source_quotas(r, s) = 0;  // of other slots by their expert
      }
    });
    team.for_each(where.ranks(), [=, this](index_t r) {
      for (index_t s = where.ranges.begin(0, r); s < where.ranges.end(0, r); ++s) {
        rank[s] = static_cast<std::int32_t>(r);
      }
    });
    lists.fill(team, expert_of, keys, sort_storage);
  }

 private:
  struct arrays {
    scratch_ref memory;
    index_t ranks;
    index_t slots;

    std::int32_t* left = memory.take(ranks);  ///< tokens that a source has still to send
    /// `[ranks + 1]`: tokens left of earlier sources.
    std::int64_t* tokens_before = memory.take(ranks + 1);
    std::int32_t* room = memory.take(slots);         ///< of the expert's slots: quota still free
    std::int64_t* room_before = memory.take(slots);  ///< in earlier slots
  };
  struct rank_range {
    index_t begin;
    index_t end;

    [[nodiscard]] PLIMSOLL_HD bool contains(index_t r) const { return r >= begin && r < end; }
  };

  /// Returns the ranks that are near a rank: itself, its node, or all.
  [[nodiscard]] PLIMSOLL_HD rank_range near_ranks(int distance, index_t r) const {
    if (distance == 0) {
      return {r, r + 1};
    }
    index_t const node = where.node_of(r);
    return distance == 1 ? rank_range{where.first_rank(node), where.first_rank(node + 1)}
                         : rank_range{0, where.ranks()};
  }

  /// Divides an expert's quotas: each source fills the slots on its own rank, then on its node,
  /// then any. Sources and slots are in the order of ranks. So the tokens left and the room left
  /// near a rank are divided into intervals, one of each source and one of each slot, and a source
  /// gives a slot what their intervals have in common.
  template <class Team>
  PLIMSOLL_HD void share_out(Team& team, scratch memory, index_t e) const {
    index_t const sources = where.ranks();
    arrays const a{memory, sources, lists.slots};
    std::int32_t const* const slot = lists.slot + lists.first[e];
    index_t const copies = lists.first[e + 1] - lists.first[e];
    team.for_each(copies,
                  [=, this](index_t i) { a.room[i] = rank[slot[i]] < 0 ? 0 : quotas[slot[i]]; });
    team.for_each(sources, [=, this](index_t s) {
      a.left[s] = maximum{}(counts(s, e), 0);
      for (index_t i = 0; i < copies; ++i) {
        source_quotas(s, slot[i]) = 0;
      }
    });
    PLIMSOLL_NO_UNROLL
    for (int distance = 0; distance < 3; ++distance) {
      auto const left = [=](index_t s) { return std::int64_t{s < sources ? a.left[s] : 0}; };
      auto const room = [=](index_t i) { return std::int64_t{a.room[i]}; };
      std::int64_t const tokens = team.exclusive_scan(sources + 1, left, a.tokens_before);
      std::int64_t const quota = team.exclusive_scan(copies, room, a.room_before);
      if (tokens == 0 || quota == 0) {
        return;
      }
      team.for_each(sources, [=, this](index_t s) {
        if (std::int32_t const mine = a.left[s]; mine > 0) {
          a.left[s] = mine - send(a, near_ranks(distance, s), s, mine, slot, copies);
        }
      });
      team.for_each(copies, [=, this](index_t i) {
        if (a.room[i] > 0) {
          a.room[i] -= fill(a, near_ranks(distance, rank[slot[i]]), i, slot);
        }
      });
    }
  }

  /// Gives the slots on near ranks what a source has left, and returns how much.
  PLIMSOLL_HD std::int32_t send(arrays const& a, rank_range const& ranks, index_t s,
                                std::int32_t left, std::int32_t const* slot, index_t copies) const {
    index_t i = 0;
    while (i < copies && rank[slot[i]] < ranks.begin) {
      ++i;
    }
    if (i == copies || rank[slot[i]] >= ranks.end) {
      return 0;
    }
    // The source's tokens fill the room of these slots from `begin` to `end`.
    std::int64_t const begin = a.room_before[i] + a.tokens_before[s] - a.tokens_before[ranks.begin];
    std::int64_t const end = begin + left;
    std::int32_t sent = 0;
    for (; i < copies && ranks.contains(rank[slot[i]]); ++i) {
      std::int64_t const first = a.room_before[i];
      std::int64_t const given = minimum{}(end, first + a.room[i]) - maximum{}(begin, first);
      if (given > 0) {
        source_quotas(s, slot[i]) += static_cast<std::int32_t>(given);
        sent += static_cast<std::int32_t>(given);
      }
    }
    return sent;
  }

  /// Returns how much of its room a slot gets from sources on near ranks, which fill them in order.
  [[nodiscard]] PLIMSOLL_HD std::int32_t fill(arrays const& a, rank_range const& ranks, index_t i,
                                              std::int32_t const* slot) const {
    index_t first = i;
    while (first > 0 && ranks.contains(rank[slot[first - 1]])) {
      --first;
    }
    std::int64_t const tokens = a.tokens_before[ranks.end] - a.tokens_before[ranks.begin];
    std::int64_t const reach = tokens - (a.room_before[i] - a.room_before[first]);
    return static_cast<std::int32_t>(
        minimum{}(maximum{}(reach, std::int64_t{0}), std::int64_t{a.room[i]}));
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

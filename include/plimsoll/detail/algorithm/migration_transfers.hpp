// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `plan_transfers`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/edge_coloring.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Origin of the expert that a slot gets.
enum class slot_change : std::int32_t {
  none,         ///< it gets no other expert
  local_copy,   ///< from a slot that held the expert before
  second_copy,  ///< from a slot of the rank in which the expert arrives
  same_node,
  across_nodes,
  from_host
};

PLIMSOLL_HD inline bool is_between_ranks(slot_change change) {
  return change == slot_change::same_node || change == slot_change::across_nodes;
}

/// Key of a slot, above which there is room for 32 bits.
inline constexpr int slot_bits = 31;
PLIMSOLL_HD inline std::uint64_t slot_key(index_t upper, index_t slot) {
  return static_cast<std::uint64_t>(upper) << slot_bits | static_cast<std::uint64_t>(slot);
}
PLIMSOLL_HD inline index_t slot_of(std::uint64_t key) {
  return static_cast<index_t>(key & ((std::uint64_t{1} << slot_bits) - 1));
}

/// Slots with their experts, by expert and then by slot.
struct slots_by_expert {
  std::uint64_t* keys;   ///< `[slots]`
  std::int32_t* begins;  ///< `[experts + 1]`

  [[nodiscard]] PLIMSOLL_HD static slots_by_expert in(scratch& memory, index_t slots,
                                                      index_t experts) {
    return {memory.take<std::uint64_t>(slots), memory.take<std::int32_t>(experts + 1)};
  }
  /// Returns the first position of an expert whose slot is at least `slot`, or the end of its
  /// positions.
  [[nodiscard]] PLIMSOLL_HD index_t find(index_t expert, index_t slot) const {
    std::uint64_t const key = slot_key(expert, slot);
    index_t low = begins[expert];
    for (index_t size = begins[expert + 1] - low; size > 0;) {
      index_t const half = size / 2;
      bool const is_lower = keys[low + half] < key;
      low += is_lower ? half + 1 : 0;
      size = is_lower ? size - half - 1 : half;
    }
    return low;
  }
  [[nodiscard]] PLIMSOLL_HD index_t slot_at(index_t position) const {
    return slot_of(keys[position]);
  }
};

/// The working memory of `transfers_body`. Arrays of slots are of destination slots where nothing
/// else is said.
struct transfer_arrays {
  scratch_ref memory;
  index_t slots;
  index_t experts;
  index_t ranks;
  index_t vertices;
  index_t columns = minimum{}(ranks, slots + 1);  ///< a vertex has at most one edge fewer

  std::int32_t* rank_of = memory.take(slots);
  std::int32_t* from_copies = memory.take(experts);
  std::int32_t* to_copies = memory.take(experts);
  // Slots of live ranks in `from` and in `to`.
  slots_by_expert before = slots_by_expert::in(memory, slots, experts);
  slots_by_expert after = slots_by_expert::in(memory, slots, experts);
  /// Pair of ranks and slot of each arrival, rising.
  std::uint64_t* flow_keys = memory.take(slots);
  /// Of the keys.
  std::byte* sort_storage = memory.take(sort_bytes<block<128>, std::uint64_t>(slots));
  slot_change* change = memory.take(slots);
  /// Source slot; of an arrival, at first the source rank.
  std::int32_t* source = memory.take(slots);
  std::int32_t* first = memory.take(slots);  ///< positions of an arrival's candidates in `before`
  std::int32_t* last = memory.take(slots);   ///< end of those
  std::int32_t* arrivals = memory.take(slots);  ///< slots that another rank sends to, rising
  std::int32_t* position = memory.take(slots);  ///< scans
  std::int32_t* next = memory.take(slots);      ///< the next arrival of the same source rank
  /// The ends of each flow's edge, all first ends first.
  std::int32_t* flow_ends = memory.take(2 * slots);
  std::int32_t* flow_color = memory.take(slots);  ///< of each flow
  std::int32_t* round = memory.take(slots);
  /// Last round that reads a slot's old expert; -1: none.
  std::int32_t* last_read = memory.take(slots);
  std::int32_t* staging = memory.take(slots);
  /// Last round of a rank's staging slots, from its first slot.
  std::int32_t* busy = memory.take(slots);
  std::int32_t* sends = memory.take(ranks);  ///< arrivals that a rank sends
  std::int32_t* head = memory.take(ranks);   ///< the first of them
  std::int32_t* queue = memory.take(ranks);  ///< ranks reached by a search
  std::int32_t* via = memory.take(ranks);    ///< the arrival by which it reached a rank; -1: none
  std::int32_t* degree = memory.take(vertices);
  std::int32_t* color_count = memory.take(columns);  ///< flows of each color
  std::int32_t* color_round = memory.take(columns);
  edge_coloring flows{memory.take(vertices * columns), memory.take(columns), memory.take(columns),
                      0};
};

/// Body of `plan_transfers`. Problem = layer. Slots without a transfer get one whose destination is
/// -1.
struct transfers_body {
  using device_team = block<128>;

  migration_pair pair;
  round_rule rule;
  std::int64_t expert_bytes;
  matrix_ref<transfer> list;   ///< `[layers, slots]`
  layer_transfers* summaries;  ///< `[layers]`
  problem_report* reports;     ///< `[layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<transfer_arrays>(pair.slots(), pair.experts(), pair.ranks(), vertices());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    transfer_arrays const a{memory, pair.slots(), pair.experts(), pair.ranks(), vertices()};
    problem_report const outcome = pair.refuse(team, layer, a.rank_of, a.from_copies, a.to_copies);
    layer_transfers found;
    if (!outcome.refused) {
      classify(team, layer, a);
      index_t const arrivals = list_arrivals(team, a);
      choose_sources(team, layer, a, arrivals);
      schedule_flows(team, a, arrivals, found);
      schedule_others(team, a, arrivals, found);
      stage(team, layer, a, found);
      write(team, layer, a);
    }
    problem_report* const report = reports + layer;
    layer_transfers* const summary = summaries + layer;
    team.single([=] {
      *report = outcome;
      *summary = found;
    });
  }

 private:
  /// With a rule for each direction, a rank is two vertices: it sends as one and receives as the
  /// other.
  PLIMSOLL_HD bool has_directions() const { return rule == round_rule::send_and_receive; }
  PLIMSOLL_HD index_t vertices() const { return pair.ranks() * (has_directions() ? 2 : 1); }

  /// Calls f(i) for rising i, where calls depend on each other: a thread alone, 64 at a time.
  template <class Team, class F>
  PLIMSOLL_HD static void in_order(Team& team, index_t n, F f) {
    constexpr index_t stretch = 64;
    for (index_t begin = 0; begin < n; begin += stretch) {
      team.single([=] {
        for (index_t i = begin; i < minimum{}(n, begin + stretch); ++i) {
          f(i);
        }
      });
    }
  }

  /// Lists the filled slots of live ranks; `copies` counts them per expert.
  template <class Team>
  PLIMSOLL_HD void sort_slots(Team& team, vector_ref<std::int32_t const> map,
                              std::int32_t const* copies, transfer_arrays const& a,
                              slots_by_expert const& by_expert) const {
    topology const where = pair.where;
    index_t const experts = pair.experts();
    team.exclusive_scan(
        experts + 1, [=](index_t e) { return e < experts ? copies[e] : 0; }, by_expert.begins);
    team.for_each(pair.slots(), [=](index_t slot) {
      bool const is_live = map[slot] >= 0 && where.is_active(a.rank_of[slot]);
      by_expert.keys[slot] = slot_key(is_live ? map[slot] : experts, slot);
    });
    team.sort(by_expert.keys, pair.slots(), a.sort_storage);
  }

  /// Finds how every slot gets its expert, the source slots of copies, and the candidates of those
  /// that other ranks send to.
  template <class Team>
  PLIMSOLL_HD void classify(Team& team, index_t layer, transfer_arrays const& a) const {
    auto const from = row_of(pair.from, layer);
    auto const to = row_of(pair.to, layer);
    sort_slots(team, from, a.from_copies, a, a.before);
    sort_slots(team, to, a.to_copies, a, a.after);
    topology const where = pair.where;
    team.for_each(pair.slots(), [=](index_t slot) {
      index_t const e = to[slot];
      if (e < 0 || e == from[slot]) {
        a.change[slot] = slot_change::none;
        return;
      }
      index_t const rank = a.rank_of[slot];
      index_t const begin = where.begin(layer, rank);
      index_t const held = a.before.find(e, begin);
      if (held < a.before.find(e, where.end(layer, rank))) {
        a.change[slot] = slot_change::local_copy;
        a.source[slot] = static_cast<std::int32_t>(a.before.slot_at(held));
        return;
      }
      index_t const arrival = a.after.slot_at(a.after.find(e, begin));
      if (arrival < slot) {
        a.change[slot] = slot_change::second_copy;
        a.source[slot] = static_cast<std::int32_t>(arrival);
        return;
      }
      index_t const node = where.node_of(rank);
      index_t first = a.before.find(e, where.begin(layer, where.first_rank(node)));
      index_t last = a.before.find(e, where.begin(layer, where.first_rank(node + 1)));
      bool const is_near = first < last;
      if (!is_near) {
        first = a.before.begins[e];
        last = a.before.begins[e + 1];
      }
      a.change[slot] = is_near        ? slot_change::same_node
                       : first < last ? slot_change::across_nodes
                                      : slot_change::from_host;
      a.first[slot] = static_cast<std::int32_t>(first);
      a.last[slot] = static_cast<std::int32_t>(last);
      a.source[slot] = -1;
    });
  }

  template <class Team>
  PLIMSOLL_HD index_t list_arrivals(Team& team, transfer_arrays const& a) const {
    auto const arrives = [a](index_t slot) { return is_between_ranks(a.change[slot]) ? 1 : 0; };
    std::int32_t const n = team.exclusive_scan(pair.slots(), arrives, a.position);
    team.for_each(pair.slots(), [=](index_t slot) {
      if (arrives(slot) != 0) {
        a.arrivals[a.position[slot]] = static_cast<std::int32_t>(slot);
      }
    });
    return n;
  }

  PLIMSOLL_HD static index_t rank_at(transfer_arrays const& a, index_t position) {
    return a.rank_of[a.before.slot_at(position)];
  }
  /// Makes a rank the source of an arrival.
  PLIMSOLL_HD static void send(transfer_arrays const& a, index_t rank, index_t slot) {
    a.source[slot] = static_cast<std::int32_t>(rank);
    a.next[slot] = a.head[rank];
    a.head[rank] = static_cast<std::int32_t>(slot);
  }

  /// Chooses source ranks so that the most arrivals that a rank sends are as few as possible.
  template <class Team>
  PLIMSOLL_HD void choose_sources(Team& team, index_t layer, transfer_arrays const& a,
                                  index_t arrivals) const {
    index_t const ranks = pair.ranks();
    auto const has_choice = [a](index_t slot) {
      return rank_at(a, a.first[slot]) != rank_at(a, a.last[slot] - 1);
    };
    team.for_each(ranks, [=](index_t r) {
      a.sends[r] = 0;
      a.head[r] = -1;
    });
    in_order(team, arrivals, [=](index_t i) {
      index_t const slot = a.arrivals[i];
      if (!has_choice(slot)) {
        index_t const rank = rank_at(a, a.first[slot]);
        send(a, rank, slot);
        ++a.sends[rank];
      }
    });
    index_t most = team.max(ranks, [=](index_t r) { return index_t{a.sends[r]}; });
    for (index_t i = 0; i < arrivals; ++i) {
      index_t const slot = a.arrivals[i];
      if (has_choice(slot)) {
        most = choose_source(team, a, slot, most);
      }
    }
    topology const where = pair.where;
    auto const to = row_of(pair.to, layer);
    team.for_each(arrivals, [=](index_t i) {
      index_t const slot = a.arrivals[i];
      index_t const begin = where.begin(layer, a.source[slot]);
      a.source[slot] = static_cast<std::int32_t>(a.before.slot_at(a.before.find(to[slot], begin)));
    });
  }

  /// Gives an arrival a source, and returns the most arrivals that a rank sends then. If all its
  /// candidates send `most`, a breadth-first search over alternating paths looks for a rank that
  /// sends fewer, and every arrival on the path passes to the next rank (the semi-matchings of
  /// Harvey et al.). If there is none, the ranks reached send `most` arrivals each, which no other
  /// rank can send, so that with this arrival one of them must send one more.
  template <class Team>
  PLIMSOLL_HD index_t choose_source(Team& team, transfer_arrays const& a, index_t slot,
                                    index_t most) const {
    index_t const first = a.first[slot];
    auto const direct = team.argmin(a.last[slot] - first,
                                    [=](index_t i) { return a.sends[rank_at(a, first + i)]; });
    index_t const nearest = rank_at(a, first + direct.index);
    if (direct.key < most) {
      team.single([=] {
        send(a, nearest, slot);
        ++a.sends[nearest];
      });
      return most;
    }
    // Adds the candidates of one arrival to the queue. Experts have few copies, so that a thread
    // alone does that, and goes through the arrivals that one rank sends.
    auto const open = [a](index_t arrival, index_t tail) {
      for (index_t position = a.first[arrival]; position < a.last[arrival]; ++position) {
        index_t const rank = rank_at(a, position);
        if (a.via[rank] < 0) {
          a.via[rank] = static_cast<std::int32_t>(arrival);
          a.queue[tail++] = static_cast<std::int32_t>(rank);
        }
      }
      return tail;
    };
    team.for_each(pair.ranks(), [a](index_t r) { a.via[r] = -1; });
    index_t tail = team.broadcast([=] { return open(slot, 0); });
    index_t head = 0;
    for (; head < tail && a.sends[a.queue[head]] >= most; ++head) {
      index_t const rank = a.queue[head];
      tail = team.broadcast([=] {
        index_t end = tail;
        for (index_t other = a.head[rank]; other >= 0; other = a.next[other]) {
          end = open(other, end);
        }
        return end;
      });
    }
    index_t const last = head < tail ? a.queue[head] : nearest;
    team.single([=] {
      ++a.sends[last];
      index_t to = last;
      for (index_t moved = a.via[to]; moved != slot; moved = a.via[to]) {
        index_t const old = a.source[moved];
        unlink(a, old, moved);
        send(a, to, moved);
        to = old;
      }
      send(a, to, slot);
    });
    return head < tail ? most : most + 1;
  }

  /// Takes an arrival from the list of its source.
  PLIMSOLL_HD static void unlink(transfer_arrays const& a, index_t rank, index_t slot) {
    std::int32_t* link = a.head + rank;
    while (*link != slot) {
      link = a.next + *link;
    }
    *link = a.next[slot];
  }

  /// Colors the flows, and sets the rounds of the arrivals.
  template <class Team>
  PLIMSOLL_HD void schedule_flows(Team& team, transfer_arrays const& a, index_t arrivals,
                                  layer_transfers& found) const {
    index_t const ranks = pair.ranks();
    index_t const second = has_directions() ? ranks : 0;  // vertices of ranks that receive
    bool const is_ordered = has_directions();
    team.for_each(arrivals, [=](index_t i) {
      index_t const slot = a.arrivals[i];
      index_t const source = a.rank_of[a.source[slot]];
      index_t const destination = a.rank_of[slot];
      index_t const u = is_ordered ? source : minimum{}(source, destination);
      index_t const v = is_ordered ? destination : maximum{}(source, destination);
      a.flow_keys[i] = slot_key(u * ranks + v, slot);
    });
    team.sort(a.flow_keys, arrivals, a.sort_storage);
    auto const is_first = [a](index_t i) {
      return i == 0 || a.flow_keys[i] >> slot_bits != a.flow_keys[i - 1] >> slot_bits ? 1 : 0;
    };
    index_t const flows = team.exclusive_scan(arrivals, is_first, a.position);
    std::int32_t* const ends = a.flow_ends;
    team.for_each(arrivals, [=](index_t i) {
      if (is_first(i) != 0) {
        auto const pair_of_ranks = static_cast<index_t>(a.flow_keys[i] >> slot_bits);
        ends[a.position[i]] = static_cast<std::int32_t>(pair_of_ranks / ranks);
        ends[flows + a.position[i]] = static_cast<std::int32_t>(pair_of_ranks % ranks + second);
      }
    });
    index_t const colors = color_flows(team, a, flows, found);
    team.histogram(
        flows, [a](index_t f) { return a.flow_color[f]; }, a.color_count, colors);
    team.exclusive_scan(
        colors, [a](index_t c) { return a.color_count[c] > 0 ? 1 : 0; }, a.color_round);
    team.for_each(arrivals, [=](index_t i) {
      index_t const flow = a.position[i] + is_first(i) - 1;
      a.round[slot_of(a.flow_keys[i])] = a.color_round[a.flow_color[flow]];
    });
  }

  /// Returns the number of colors, some of which may have no flow.
  template <class Team>
  PLIMSOLL_HD index_t color_flows(Team& team, transfer_arrays const& a, index_t flows,
                                  layer_transfers& found) const {
    std::int32_t const* const ends = a.flow_ends;
    team.histogram(
        2 * flows, [ends](index_t i) { return ends[i]; }, a.degree, vertices());
    index_t const fewest = team.max(vertices(), [a](index_t v) { return index_t{a.degree[v]}; });
    found.rounds_bound = fewest;
    edge_coloring graph = a.flows;
    graph.colors = fewest + (has_directions() || flows == 0 ? 0 : 1);
    graph.clear(team, vertices());
    // In a second pass, flows of the extra color may do without it, now that all have a color.
    bool has_extra = false;
    for (index_t i = 0; i < flows || (has_extra && i < 2 * flows); ++i) {
      index_t const u = ends[i % flows];
      index_t const v = ends[flows + i % flows];
      if (i >= flows) {
        if (graph.row(u)[fewest] != v) {
          continue;
        }
        graph.remove(team, u, v, fewest);
      }
      // From either end; with the extra color there is always a way.
      int way = 0;
      while (!graph.color(team, way == 1 ? v : u, way == 1 ? u : v,
                          way == 2 ? graph.colors : fewest)) {
        ++way;
      }
      has_extra = has_extra || way == 2;
    }
    team.for_each(flows, [=](index_t f) {
      std::uint16_t const* const row = graph.row(ends[f]);
      std::int32_t color = 0;
      while (row[color] != ends[flows + f]) {
        ++color;
      }
      a.flow_color[f] = color;
    });
    return graph.colors;
  }

  /// Sets the rounds of local copies and of transfers from the host, and the last round that reads
  /// each slot.
  template <class Team>
  PLIMSOLL_HD void schedule_others(Team& team, transfer_arrays const& a, index_t arrivals,
                                   layer_transfers& found) const {
    auto const read_until = [a](index_t slot) {
      std::int32_t* const last = a.last_read + a.source[slot];
      *last = maximum{}(*last, a.round[slot]);
    };
    auto const is = [a](index_t slot, slot_change change) { return a.change[slot] == change; };
    index_t const n = pair.slots();
    team.for_each(n, [a](index_t slot) { a.last_read[slot] = -1; });
    in_order(team, arrivals, [=](index_t i) { read_until(a.arrivals[i]); });
    team.for_each(n, [=](index_t slot) {
      if (is(slot, slot_change::local_copy) || is(slot, slot_change::from_host)) {
        a.round[slot] = a.last_read[slot] + 1;
      }
    });
    index_t const rounds = team.max(n, [=](index_t slot) {
      bool const counts = !is(slot, slot_change::none) && !is(slot, slot_change::second_copy);
      return counts ? index_t{a.round[slot]} + 1 : index_t{0};
    });
    index_t const second_copies =
        team.count(n, [=](index_t slot) { return is(slot, slot_change::second_copy); });
    team.for_each(n, [=](index_t slot) {
      if (is(slot, slot_change::second_copy)) {
        a.round[slot] = static_cast<std::int32_t>(rounds);
      }
    });
    in_order(team, n, [=](index_t slot) {
      if (is(slot, slot_change::local_copy)) {
        read_until(slot);
      }
    });
    found.rounds = rounds + (second_copies > 0 ? 1 : 0);
    found.changes.local_copies = second_copies + team.count(n, [=](index_t slot) {
      return is(slot, slot_change::local_copy);
    });
    found.changes.moves =
        arrivals + team.count(n, [=](index_t slot) { return is(slot, slot_change::from_host); });
  }

  /// Gives staging slots to the transfers whose destination slot is read in their round or later:
  /// the lowest free one, round by round, which uses the fewest staging slots.
  template <class Team>
  PLIMSOLL_HD void stage(Team& team, index_t layer, transfer_arrays const& a,
                         layer_transfers& found) const {
    topology const where = pair.where;
    team.for_each(pair.slots(), [a](index_t slot) {
      a.staging[slot] = -1;
      a.busy[slot] = -1;
    });
    for (index_t round = 0; round < found.rounds; ++round) {
      team.for_each(pair.ranks(), [=](index_t r) {
        std::int32_t* const busy = a.busy + where.begin(layer, r);
        std::int32_t free = 0;
        for (index_t slot = where.begin(layer, r); slot < where.end(layer, r); ++slot) {
          bool const is_now = a.change[slot] != slot_change::none && a.round[slot] == round;
          if (is_now && a.last_read[slot] >= round) {
            while (busy[free] >= round) {
              ++free;
            }
            busy[free] = a.last_read[slot];
            a.staging[slot] = free++;
          }
        }
      });
    }
    found.staging_slots =
        team.max(pair.slots(), [a](index_t slot) { return index_t{a.staging[slot]} + 1; });
  }

  template <class Team>
  PLIMSOLL_HD void write(Team& team, index_t layer, transfer_arrays const& a) const {
    auto const out = row_of(list, layer);
    auto const to = row_of(pair.to, layer);
    std::int64_t const bytes = expert_bytes;
    team.for_each(pair.slots(), [=](index_t slot) {
      transfer made;
      made.layer = static_cast<std::int32_t>(layer);
      made.expert = to[slot];
      made.destination_rank = a.rank_of[slot];
      slot_change const change = a.change[slot];
      made.destination_slot = change == slot_change::none ? -1 : static_cast<std::int32_t>(slot);
      if (change != slot_change::none) {
        if (change != slot_change::from_host) {
          made.source_slot = a.source[slot];
          made.source_rank = a.rank_of[a.source[slot]];
        }
        made.round = a.round[slot];
        made.staging_slot = a.staging[slot];
        made.commit_round = made.staging_slot < 0 ? made.round : a.last_read[slot];
        made.kind = kind_of(change);
        made.bytes = bytes;
      }
      out[slot] = made;
    });
  }

  PLIMSOLL_HD static transfer_kind kind_of(slot_change change) {
    switch (change) {
      case slot_change::same_node:
        return transfer_kind::same_node;
      case slot_change::across_nodes:
        return transfer_kind::across_nodes;
      case slot_change::from_host:
        return transfer_kind::from_host;
      default:
        return transfer_kind::local_copy;
    }
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exact finish of `minmax_lp`: maximum flow by blocking flows (Dinic), and the bound that its
/// minimum cut proves.
#pragma once

#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp_state.hpp>
#include <plimsoll/detail/algorithm/split_graph.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The load that a set of ranks must carry, and the set's speed: load over speed is a lower bound
/// for every peak.
struct confinement {
  std::int64_t load = 0;
  std::int64_t speed = 0;  ///< in units; below 2^60

  /// Returns the bound in the unit of `split_state::level`, rounded down.
  PLIMSOLL_HD double level(speed_units const& units) const {
    auto const whole = static_cast<double>(speed);
    // A speed that the conversion rounded down would raise the bound: the next double is higher.
    bool const below = static_cast<std::int64_t>(whole) < speed;
    double const at_least = below ? double_of(bits_of(whole) + 1) : whole;
    return divide_down(static_cast<double>(load), divide(at_least, units.per_unit));
  }
  /// Returns the load of a rank at this level, rounded up, for a rank of speed `of_rank`; 2^53
  /// means no limit.
  PLIMSOLL_HD std::int64_t capacity(std::int64_t of_rank) const {
    double const product = multiply(static_cast<double>(load), static_cast<double>(of_rank));
    return divide(product, static_cast<double>(speed)) >= 0x1p53
               ? std::int64_t{1} << 53
               : multiply_divide(load, of_rank, speed, speed - 1);
  }
};

/// Dinic's blocking flows through the residual graph of a layer, from ranks above their capacity to
/// ranks below it: breadth-first depths of ranks, then shortest paths by depth-first search. The
/// depth of a rank is its number of steps from the nearest rank above its capacity, in
/// `split_state`. An *arc* is a target as seen from its rank: the target's share may leave the rank
/// for any other target of the expert.
///
/// This is the common part of the serial and the team form, which find the same paths in the same
/// order.
struct blocking_flow {
  split_state s;
  std::int64_t work;
  std::int64_t max_iterations;
  std::int32_t set_now = 1;   ///< number of the bottleneck set that is searched
  std::int32_t nearest = -1;  ///< the depth of the nearest ranks below their capacity; -1: none

  static constexpr std::int32_t unseen = -1;
  static constexpr std::int32_t dead_end = -3;  // no rank has depth -2, so no path leads on

  [[nodiscard]] PLIMSOLL_HD bool is_settled(index_t r) const {
    return s.set[r] != 0 && s.set[r] != set_now;
  }
  /// Returns the depth of a rank before the search: 0 if the rank is above its capacity.
  [[nodiscard]] PLIMSOLL_HD std::int32_t first_depth(index_t r) const {
    bool const above = !is_settled(r) && s.load[r] > s.capacity[r];
    return above ? 0 : is_settled(r) ? dead_end : unseen;
  }
};

/// The form for one thread: a queue for the depths, and a cursor into its arcs for each rank. With
/// the team form, one thread takes as long on most layers, and 23 times as long on the slowest of
/// 1000 random ones.
struct serial_flow : blocking_flow {
  /// Finds the depths. Returns true if any rank is above its capacity.
  PLIMSOLL_HD bool find_depths() {
    split_graph const& g = s.graph;
    index_t tail = 0;
    nearest = -1;
    for (index_t r = 0; r < g.ranks; ++r) {
      s.distance[r] = first_depth(r);
      if (s.distance[r] == 0) {
        s.queue[tail++] = static_cast<std::int32_t>(r);
      }
    }
    for (index_t head = 0; head < tail; ++head) {
      index_t const r = s.queue[head];
      if (nearest >= 0 && s.distance[r] >= nearest) {
        break;
      }
      for (index_t a = g.rank_begin[s.first_rank + r]; a < g.rank_begin[s.first_rank + r + 1];
           ++a) {
        index_t const target = g.rank_target[a];
        if (s.share_of(target) == 0) {
          continue;
        }
        index_t const owner = g.target_owner[target];
        for (index_t k = g.target_begin[owner]; k < g.target_begin[owner + 1]; ++k) {
          index_t const to = g.target_rank[k];
          if (s.distance[to] == unseen) {
            s.distance[to] = s.distance[r] + 1;
            s.queue[tail++] = static_cast<std::int32_t>(to);
            if (nearest < 0 && s.load[to] < s.capacity[to]) {
              nearest = s.distance[to];
            }
          }
        }
      }
    }
    return tail > 0;
  }

  /// Pushes load until no path of this length is left, or the iteration limit is reached.
  PLIMSOLL_HD void push_all() {
    split_graph const& g = s.graph;
    for (index_t r = 0; r < g.ranks; ++r) {
      s.arc[r] = g.rank_begin[s.first_rank + r];
      s.next[r] = -1;
    }
    for (index_t r = 0; r < g.ranks; ++r) {
      while (work < max_iterations && s.distance[r] == 0 && s.load[r] > s.capacity[r] &&
             push_from(r)) {
      }
    }
  }

 private:
  /// Finds one path and moves as much load as it allows.
  PLIMSOLL_HD bool push_from(index_t source) {
    split_graph const& g = s.graph;
    index_t depth = 0;
    index_t at = source;
    s.path[0] = static_cast<std::int32_t>(source);
    while (s.distance[at] == 0 || s.load[at] >= s.capacity[at]) {
      if (s.distance[at] < nearest && advance(at)) {
        at = g.target_rank[s.next[at]];
        s.path[++depth] = static_cast<std::int32_t>(at);
        continue;
      }
      s.distance[at] = dead_end;
      if (depth == 0) {
        return false;
      }
      at = s.path[--depth];
      ++s.next[at];
    }
    std::int64_t amount =
        minimum{}(s.load[source] - s.capacity[source], s.capacity[at] - s.load[at]);
    for (index_t i = 0; i < depth; ++i) {
      amount = minimum{}(amount, s.share_of(g.rank_target[s.arc[s.path[i]]]));
    }
    for (index_t i = 0; i < depth; ++i) {
      index_t const r = s.path[i];
      s.share_of(g.rank_target[s.arc[r]]) -= amount;
      s.share_of(s.next[r]) += amount;
    }
    s.load[source] -= amount;
    s.load[at] += amount;
    ++work;
    return true;
  }

  /// Advances the rank's cursor to an arc that leads to the next depth. Returns false if there is
  /// none.
  PLIMSOLL_HD bool advance(index_t r) {
    split_graph const& g = s.graph;
    index_t const end = g.rank_begin[s.first_rank + r + 1];
    for (; s.arc[r] < end; ++s.arc[r], s.next[r] = -1) {
      index_t const target = g.rank_target[s.arc[r]];
      if (s.share_of(target) == 0) {
        continue;
      }
      index_t const owner = g.target_owner[target];
      if (s.next[r] < 0) {
        s.next[r] = g.target_begin[owner];
      }
      for (; s.next[r] < g.target_begin[owner + 1]; ++s.next[r]) {
        if (s.distance[g.target_rank[s.next[r]]] == s.distance[r] + 1) {
          return true;
        }
      }
    }
    return false;
  }
};

/// The form for a team.
///
/// The depth of an expert is the lowest depth of a rank with a share of it. All ranks that hold the
/// expert are at most one step deeper. A *receiver* of an expert is a rank with a target of it, at
/// the next depth, that leads on to a rank below its capacity; an expert without one is closed. An
/// arc is *open* if its share is above 0, its rank is as deep as the expert, and the expert has a
/// receiver. A push may close arcs but never opens one, so the next path in depth-first order is
/// the first that is open from end to end.
///
/// Each expert keeps its first receiver, and each rank that a search has reached its first open
/// arc. Following them gives the path without a search. Receivers, and the ranks that lead on, are
/// found from the greatest depth to the least, which removes every dead end; they are replaced when
/// a push closes them.
template <class Team>
struct team_flow : blocking_flow {
  Team& team;

  PLIMSOLL_HD team_flow(Team& the_team, blocking_flow const& flow)
      : blocking_flow(flow), team(the_team) {}

  /// Finds the depths, as in `serial_flow`; a depth takes two team calls for 64 ranks.
  PLIMSOLL_HD bool find_depths() {
    layer_graph const& g = s.local;
    index_t const all = maximum{}(s.graph.ranks, s.replicated);
    nearest = -1;
    team.for_each(all, [this](index_t i) {
      if (i < s.replicated) {
        s.expert_depth[i] = unseen;
      }
      if (i < s.graph.ranks) {
        s.distance[i] = first_depth(i);
        s.arc[i] = unseen;
      }
    });
    std::uint64_t found = 0;
    for (index_t word = 0; word < g.words; ++word) {
      std::uint64_t const above =
          ranks_where(word, [this](index_t r) { return s.distance[r] == 0; });
      found |= above;
      team.store(g.at_depth + word, above);
      team.store(g.unreached + word,
                 ranks_where(word, [this](index_t r) { return s.distance[r] == unseen; }));
      team.store(g.under + word,
                 ranks_where(word, [this](index_t r) { return s.load[r] < s.capacity[r]; }));
    }
    bool const any = found != 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t depth = 0; found != 0 && nearest < 0; ++depth) {
      std::uint64_t const* const giving = g.at_depth + depth * g.words;
      team.for_each(all, [=, this](index_t i) {
        auto const r = static_cast<std::int32_t>(i);
        if (i < s.graph.ranks && (giving[i >> 6] & layer_graph::bit(r)) != 0) {
          s.distance[i] = depth;
        }
        if (i < s.replicated && s.expert_depth[i] == unseen && has_giver(i, giving)) {
          s.expert_depth[i] = depth;
        }
      });
      found = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t word = 0; word < g.words; ++word) {
        index_t const at = depth * g.words + word;
        std::uint64_t const left = g.unreached[at];
        std::uint64_t const next = left == 0 ? 0 : left & ranks_of(g.holders, word, depth);
        team.store(g.at_depth + at + g.words, next);
        team.store(g.unreached + at + g.words, left & ~next);
        nearest = (next & g.under[word]) != 0 ? depth + 1 : nearest;
        found |= next;
      }
    }
    return any;
  }

  PLIMSOLL_HD void push_all() {
    find_ways();
    index_t source = 0;
    while (work < max_iterations && (source = next_source(source)) < s.graph.ranks) {
      push_from(static_cast<std::int32_t>(source));
    }
  }

 private:
  static constexpr std::int32_t closed = -2;  ///< depth of an expert without a receiver

  /// Returns the ranks of a word for which a condition holds.
  template <class F>
  [[nodiscard]] PLIMSOLL_HD std::uint64_t ranks_where(index_t word, F is_one) {
    index_t const first = 64 * word;
    return team.reduce(
        minimum{}(s.graph.ranks - first, index_t{64}),
        [=](index_t i) {
          return is_one(first + i) ? layer_graph::bit(static_cast<std::int32_t>(i)) : 0;
        },
        bit_or{}, std::uint64_t{0});
  }
  /// Returns the ranks of a word in the masks of the experts at a depth.
  [[nodiscard]] PLIMSOLL_HD std::uint64_t ranks_of(std::uint64_t const* masks, index_t word,
                                                   std::int32_t depth) {
    std::uint64_t const* const row = masks + word * s.local.experts;
    return team.reduce(
        s.replicated,
        [=, this](index_t i) { return s.expert_depth[i] == depth ? row[i] : std::uint64_t{0}; },
        bit_or{}, std::uint64_t{0});
  }

  /// Returns true if one of the ranks has a share of the expert.
  [[nodiscard]] PLIMSOLL_HD bool has_giver(index_t expert, std::uint64_t const* ranks) const {
    std::uint64_t common = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t word = 0; word < s.local.words; ++word) {
      if (std::uint64_t const some = ranks[word]; some != 0) {
        common |= s.local.givers[word * s.local.experts + expert] & some;
      }
    }
    return common != 0;
  }
  /// Finds the first receiver of an expert at this depth, or closes the expert.
  PLIMSOLL_HD void find_receiver(index_t expert, std::int32_t depth) const {
    layer_graph const& g = s.local;
    std::uint64_t const* const leading = g.leading + (depth + 1) * g.words;
    PLIMSOLL_NO_UNROLL
    for (index_t word = 0; word < g.words; ++word) {
      std::uint64_t const receivers = g.holders[word * g.experts + expert] & leading[word];
      if (receivers != 0) {
        s.receiver[expert] = static_cast<std::int32_t>(64 * word) + lowest_bit(receivers);
        return;
      }
    }
    s.expert_depth[expert] = closed;
  }
  /// Returns true if the arc of a rank at this depth leads to the next depth.
  [[nodiscard]] PLIMSOLL_HD bool is_open(index_t arc, std::int32_t depth) const {
    return s.expert_depth[s.local.arc_expert[arc]] == depth && s.share[s.local.arc_target[arc]] > 0;
  }

  /// Finds the receivers, and the ranks that lead on, from the greatest depth to the least.
  PLIMSOLL_HD void find_ways() {
    layer_graph const& g = s.local;
    team.for_each(g.words, [this, &g](index_t word) {
      index_t const at = nearest * g.words + word;
      g.leading[at] = g.at_depth[at] & g.under[word];
    });
    PLIMSOLL_NO_UNROLL
    for (std::int32_t depth = nearest - 1; depth >= 0; --depth) {
      team.for_each(s.replicated, [this, depth](index_t i) {
        if (s.expert_depth[i] == depth) {
          find_receiver(i, depth);
        }
      });
      PLIMSOLL_NO_UNROLL
      for (index_t word = 0; word < g.words; ++word) {
        index_t const at = depth * g.words + word;
        std::uint64_t const here = g.at_depth[at];
        team.store(g.leading + at, here == 0 ? 0 : here & ranks_of(g.givers, word, depth));
      }
    }
  }

  PLIMSOLL_HD index_t next_source(index_t from) {
    return team.find(from, s.graph.ranks, [this](index_t r) {
      std::uint64_t const leading = s.local.leading[r >> 6];
      return (leading & layer_graph::bit(static_cast<std::int32_t>(r))) != 0 &&
             s.load[r] > s.capacity[r];
    });
  }

  /// Pushes along one path after the other until the source is at its capacity or becomes a dead
  /// end. After a push only the part of the path from its first closed arc on is walked again.
  PLIMSOLL_HD void push_from(std::int32_t source) {
    std::int32_t depth = 0;
    std::int32_t at = source;
    team.store(&s.path[0], source);
    for (;;) {
      if (depth == nearest) {
        depth = push(source, at);
        if (work == max_iterations || s.load[source] == s.capacity[source]) {
          return;
        }
        at = s.path[depth];
        continue;
      }
      std::int32_t const arc = find_arc(at, depth);
      if (arc < s.local.arc_begin[at + 1]) {
        at = s.receiver[s.local.arc_expert[arc]];
        ++depth;
        team.store(&s.path[depth], at);
        continue;
      }
      leave_out(at, depth);
      if (depth == 0) {
        return;
      }
      --depth;
      at = s.path[depth];
    }
  }

  /// Returns the rank's first arc to the next depth, or the end of its arcs.
  PLIMSOLL_HD std::int32_t find_arc(std::int32_t r, std::int32_t depth) {
    std::int32_t const at_hand = s.arc[r];
    if (at_hand >= 0 && is_open(at_hand, depth)) {
      return at_hand;
    }
    std::int32_t const from = at_hand < 0 ? s.local.arc_begin[r] : at_hand + 1;
    std::int32_t const end = s.local.arc_begin[r + 1];
    auto const found = static_cast<std::int32_t>(
        team.find(from, end, [this, depth](index_t a) { return is_open(a, depth); }));
    // No other thread still reads arc[r]: a search that finds something is also a barrier.
    if (found < end) {
      team.store(&s.arc[r], found);
    }
    return found;
  }

  /// Takes out rank r at this depth, which no longer leads on, and gives the experts whose receiver
  /// it is the next one.
  PLIMSOLL_HD void leave_out(std::int32_t r, std::int32_t depth) {
    layer_graph const& g = s.local;
    team.single([=, &g] { g.leading[depth * g.words + (r >> 6)] &= ~layer_graph::bit(r); });
    if (depth == 0) {
      return;
    }
    std::int32_t const first = g.arc_begin[r];
    team.for_each(g.arc_begin[r + 1] - first, [=, this, &g](index_t i) {
      std::int32_t const expert = g.arc_expert[first + i];
      if (s.expert_depth[expert] == depth - 1 && s.receiver[expert] == r) {
        find_receiver(expert, depth - 1);
      }
    });
  }

  /// Moves as much load as the path allows. Returns the first arc of the path that this closes.
  PLIMSOLL_HD std::int32_t push(std::int32_t source, std::int32_t sink) {
    auto const least = team.argmin(
        nearest, [this](index_t i) { return s.share[s.local.arc_target[s.arc[s.path[i]]]]; });
    std::int64_t const amount = minimum{}(
        least.key, minimum{}(s.load[source] - s.capacity[source], s.capacity[sink] - s.load[sink]));
    team.for_each(nearest, [=, this](index_t i) {
      layer_graph const& g = s.local;
      std::int32_t const from = s.path[i];
      std::int32_t const to = s.path[i + 1];
      std::int32_t const arc = s.arc[from];
      std::int32_t const expert = g.arc_expert[arc];
      std::int64_t const left = s.share[g.arc_target[arc]] - amount;
      s.share[g.arc_target[arc]] = left;
      if (left == 0) {
        g.of(g.givers, expert, from) &= ~layer_graph::bit(from);
      }
      s.share[g.target_of(expert, to)] += amount;
      g.of(g.givers, expert, to) |= layer_graph::bit(to);
      if (i == 0) {
        s.load[source] -= amount;
        s.load[sink] += amount;
      }
    });
    ++work;
    if (s.load[sink] == s.capacity[sink]) {
      leave_out(sink, nearest);
    }
    return amount == least.key ? static_cast<std::int32_t>(least.index) : nearest - 1;
  }
};

/// Brings every rank's load within its capacity at the level of a bound, by blocking flows from
/// ranks above to ranks below. If the ranks that are still above reach none below, the load of the
/// ranks that they reach cannot leave these ranks, which gives a better bound (a minimum cut).
template <class Team>
struct exact_finish {
  Team& team;
  std::conditional_t<Team::is_serial, serial_flow, team_flow<Team>> flow;
  confinement bound;      ///< of the ranks in the flow's set
  bool complete = false;  ///< finished before the iteration limit

  PLIMSOLL_HD exact_finish(Team& the_team, blocking_flow const& start, confinement const& first)
      : team(the_team), flow(flow_for(the_team, start)), bound(first) {}

  /// Moves load until every rank is within the bound. With `all_levels` repeats with the ranks that
  /// are in no bottleneck set yet, until the loads are lexicographically minimal; `bound` is in the
  /// end that of the first set, which has the peak.
  PLIMSOLL_HD void run(bool all_levels) {
    split_state const& s = flow.s;
    confinement first = bound;
    if constexpr (!Team::is_serial) {
      s.local.fill(team, s.graph, s.layer, s.share);
    }
    for (bool more = true; more;) {
      std::int64_t const of_unit_speed = bound.capacity(1);
      team.for_each(s.graph.ranks, [=, this, &s](index_t r) {
        s.capacity[r] =
            s.speed.equal_speeds ? s.speed[r] * of_unit_speed : bound.capacity(s.speed[r]);
      });
      bool any_above = false;
      for (bool done = false; !done;) {
        any_above = flow.find_depths();
        done = flow.nearest < 0 || flow.work >= flow.max_iterations;
        if (!done) {
          flow.push_all();
        }
      }
      complete = flow.nearest < 0 && !any_above;
      first = flow.set_now == 1 ? bound : first;
      more = flow.nearest < 0 && (any_above || all_levels) && take_set(any_above);
    }
    bound = first;
  }

 private:
  PLIMSOLL_HD static auto flow_for(Team& team, blocking_flow const& start) {
    if constexpr (Team::is_serial) {
      return serial_flow{start};
    } else {
      return team_flow<Team>(team, start);
    }
  }

  /// Makes the reached ranks the set that gives the bound; if no rank is above its capacity, starts
  /// the next set with all ranks that are in none yet. Returns false if that set is empty.
  PLIMSOLL_HD bool take_set(bool any_above) {
    split_state const& s = flow.s;
    flow.set_now += any_above ? 0 : 1;
    std::int32_t const now = flow.set_now;
    team.for_each(s.graph.ranks, [=, this, &s](index_t r) {
      if (any_above) {
        bool const is_reached = s.distance[r] >= 0;
        s.set[r] = is_reached ? now : flow.is_settled(r) ? s.set[r] : 0;
      } else {
        s.set[r] = s.set[r] == 0 ? now : s.set[r];
      }
    });
    bound.load =
        team.sum(s.graph.ranks, [=, &s](index_t r) { return s.set[r] == now ? s.load[r] : 0; });
    bound.speed =
        team.sum(s.graph.ranks, [=, &s](index_t r) { return s.set[r] == now ? s.speed[r] : 0; });
    return bound.speed != 0;
  }
};

}}}  // namespace plimsoll::detail

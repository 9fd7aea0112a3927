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
/// the team form, one thread takes 1.3 times as long at the 99th percentile of EPLB's placements,
/// and 28 times as long on a chain of 500 ranks.
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
/// expert are at most one step deeper. A *receiver* of an expert is a target at the next depth
/// that leads on to a rank below its capacity. An arc is *open* if its share is above 0, its rank
/// is as deep as the expert, and the expert has a receiver. A push may close arcs but never opens
/// one, so the next path in depth-first order is the first that is open from end to end.
///
/// Each expert keeps its first receiver, and each rank its first open arc. Following them gives the
/// path without a search. They are found from the greatest depth to the least, which removes every
/// dead end, and replaced when a push closes them.
template <class Team>
struct team_flow : blocking_flow {
  Team& team;

  PLIMSOLL_HD team_flow(Team& the_team, blocking_flow const& flow)
      : blocking_flow(flow), team(the_team) {}

  /// Finds the depths, as in `serial_flow`; a depth takes two team calls.
  PLIMSOLL_HD bool find_depths() {
    index_t const experts = s.replicated;
    nearest = -1;
    bool const any = team.any(maximum{}(s.graph.ranks, experts), [this, experts](index_t i) {
      if (i < experts) {
        s.expert_depth[i] = unseen;
      }
      return i < s.graph.ranks && (s.distance[i] = first_depth(i)) == 0;
    });
    int found = any ? reached : 0;
    for (std::int32_t depth = 0; found != 0 && nearest < 0; ++depth) {
      team.for_each(experts, [this, depth](index_t i) {
        if (s.expert_depth[i] == unseen && has_giver(i, depth)) {
          s.expert_depth[i] = depth;
        }
      });
      found = team.reduce(
          s.graph.ranks, [this, depth](index_t r) { return reach(r, depth); }, bit_or{}, 0);
      nearest = (found & below) != 0 ? depth + 1 : -1;
    }
    return any;
  }

  PLIMSOLL_HD void push_all() {
    find_ways();
    index_t source = 0;
    while (work < max_iterations && (source = next_source(source)) < s.graph.ranks) {
      push_from(source);
    }
  }

 private:
  static constexpr int reached = 1;
  static constexpr int below = 2;

  [[nodiscard]] PLIMSOLL_HD index_t arcs_begin(index_t r) const {
    return s.graph.rank_begin[s.first_rank + r];
  }
  [[nodiscard]] PLIMSOLL_HD index_t arcs_end(index_t r) const { return arcs_begin(r + 1); }
  /// Returns the replicated expert of an arc, numbered within the layer.
  [[nodiscard]] PLIMSOLL_HD index_t expert_of(index_t arc) const {
    return s.graph.target_owner[s.graph.rank_target[arc]] - s.first_replicated;
  }
  [[nodiscard]] PLIMSOLL_HD std::int64_t& share_on(index_t arc) const {
    return s.share_of(s.graph.rank_target[arc]);
  }

  /// Returns true if a rank at this depth has a share of the expert.
  [[nodiscard]] PLIMSOLL_HD bool has_giver(index_t expert, std::int32_t depth) const {
    split_graph const& g = s.graph;
    index_t const end = g.target_begin[s.first_replicated + expert + 1];
    index_t k = g.target_begin[s.first_replicated + expert];
    PLIMSOLL_NO_UNROLL
    while (k < end && (s.distance[g.target_rank[k]] != depth || s.share_of(k) == 0)) {
      ++k;
    }
    return k < end;
  }
  /// Gives a rank the next depth if an expert at this depth reaches it.
  [[nodiscard]] PLIMSOLL_HD int reach(index_t r, std::int32_t depth) const {
    if (s.distance[r] != unseen) {
      return 0;
    }
    index_t const end = arcs_end(r);
    index_t a = arcs_begin(r);
    PLIMSOLL_NO_UNROLL
    while (a < end && s.expert_depth[expert_of(a)] != depth) {
      ++a;
    }
    if (a == end) {
      return 0;
    }
    s.distance[r] = depth + 1;
    return s.load[r] < s.capacity[r] ? reached | below : reached;
  }

  /// Returns the first target at or after k that can receive the expert's load; -1: none.
  [[nodiscard]] PLIMSOLL_HD std::int32_t receiver_from(index_t k, index_t expert) const {
    split_graph const& g = s.graph;
    std::int32_t const depth = s.expert_depth[expert] + 1;
    index_t const end = g.target_begin[s.first_replicated + expert + 1];
    PLIMSOLL_NO_UNROLL
    for (; k < end; ++k) {
      index_t const r = g.target_rank[k];
      if (s.distance[r] == depth && (depth < nearest || s.load[r] < s.capacity[r])) {
        return static_cast<std::int32_t>(k);
      }
    }
    return -1;
  }
  /// Returns true if the arc of a rank at this depth leads to the next depth.
  [[nodiscard]] PLIMSOLL_HD bool is_open(index_t arc, std::int32_t depth) const {
    index_t const expert = expert_of(arc);
    return s.expert_depth[expert] == depth && s.receiver[expert] >= 0 && share_on(arc) > 0;
  }

  /// Finds receivers and arcs, from the greatest depth to the least; a rank without an open arc
  /// becomes a dead end.
  PLIMSOLL_HD void find_ways() {
    PLIMSOLL_NO_UNROLL
    for (std::int32_t depth = nearest - 1; depth >= 0; --depth) {
      team.for_each(s.replicated, [this, depth](index_t i) {
        if (s.expert_depth[i] == depth) {
          s.receiver[i] = receiver_from(s.graph.target_begin[s.first_replicated + i], i);
        }
      });
      team.for_each(s.graph.ranks, [this, depth](index_t r) {
        if (s.distance[r] == depth) {
          index_t const end = arcs_end(r);
          index_t a = arcs_begin(r);
          PLIMSOLL_NO_UNROLL
          while (a < end && !is_open(a, depth)) {
            ++a;
          }
          s.arc[r] = static_cast<std::int32_t>(a);
          s.distance[r] = a < end ? depth : dead_end;
        }
      });
    }
  }

  PLIMSOLL_HD index_t next_source(index_t from) {
    return team.find(from, s.graph.ranks,
                     [this](index_t r) { return s.distance[r] == 0 && s.load[r] > s.capacity[r]; });
  }

  /// Pushes along one path after the other until the source is at its capacity or becomes a dead
  /// end. After a push only the part of the path from its first closed arc on is walked again.
  PLIMSOLL_HD void push_from(index_t source) {
    std::int32_t depth = 0;
    index_t at = source;
    team.store(&s.path[0], static_cast<std::int32_t>(source));
    for (;;) {
      if (depth == nearest) {
        depth = push(source, at);
        if (work == max_iterations || s.load[source] == s.capacity[source]) {
          return;
        }
        at = s.path[depth];
        continue;
      }
      index_t const arc = find_arc(at, depth);
      if (arc < arcs_end(at)) {
        at = s.graph.target_rank[s.receiver[expert_of(arc)]];
        ++depth;
        team.store(&s.path[depth], static_cast<std::int32_t>(at));
        continue;
      }
      team.store(&s.distance[at], dead_end);
      if (depth == 0) {
        return;
      }
      leave_out(at, depth);
      --depth;
      at = s.path[depth];
    }
  }

  /// Returns the rank's first arc to the next depth, or the end of its arcs.
  PLIMSOLL_HD index_t find_arc(index_t r, std::int32_t depth) {
    index_t const at_hand = s.arc[r];
    if (is_open(at_hand, depth)) {
      return at_hand;
    }
    index_t const found =
        team.find(at_hand + 1, arcs_end(r), [this, depth](index_t a) { return is_open(a, depth); });
    // No other thread still reads arc[r]: a search that finds something is also a barrier.
    if (found < arcs_end(r)) {
      team.store(&s.arc[r], static_cast<std::int32_t>(found));
    }
    return found;
  }

  /// Gives the experts whose receiver is rank r, which no longer leads on, their next receiver.
  PLIMSOLL_HD void leave_out(index_t r, std::int32_t depth) {
    index_t const first = arcs_begin(r);
    team.for_each(arcs_end(r) - first, [=, this](index_t i) {
      index_t const expert = expert_of(first + i);
      if (s.expert_depth[expert] == depth - 1 &&
          s.receiver[expert] == s.graph.rank_target[first + i]) {
        s.receiver[expert] = receiver_from(s.receiver[expert] + 1, expert);
      }
    });
  }

  /// Moves as much load as the path allows. Returns the first arc of the path that this closes.
  PLIMSOLL_HD std::int32_t push(index_t source, index_t sink) {
    auto const least =
        team.argmin(nearest, [this](index_t i) { return share_on(s.arc[s.path[i]]); });
    std::int64_t const amount = minimum{}(
        least.key, minimum{}(s.load[source] - s.capacity[source], s.capacity[sink] - s.load[sink]));
    team.for_each(nearest, [=, this](index_t i) {
      index_t const arc = s.arc[s.path[i]];
      share_on(arc) -= amount;
      s.share_of(s.receiver[expert_of(arc)]) += amount;
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

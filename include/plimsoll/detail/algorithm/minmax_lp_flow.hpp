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

  [[nodiscard]] PLIMSOLL_HD bool is_settled(index_t r) const {
    return s.set[r] != 0 && s.set[r] != set_now;
  }
};

/// The form for one thread: a queue for the depths, and a cursor into its arcs for each rank. With
/// the team form, one thread takes as long on most layers, and 23 times as long on the slowest of
/// 1000 random ones.
struct serial_flow : blocking_flow {
  static constexpr std::int32_t unseen = -1;
  static constexpr std::int32_t dead_end = -3;  // no rank has depth -2, so no path leads on

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

  /// Returns true if rank r has a depth.
  [[nodiscard]] PLIMSOLL_HD bool is_reached(index_t r) const { return s.distance[r] >= 0; }

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
    index_t rank = source;
    s.path[0] = static_cast<std::int32_t>(source);
    while (s.distance[rank] == 0 || s.load[rank] >= s.capacity[rank]) {
      if (s.distance[rank] < nearest && advance(rank)) {
        rank = g.target_rank[s.next[rank]];
        s.path[++depth] = static_cast<std::int32_t>(rank);
        continue;
      }
      s.distance[rank] = dead_end;
      if (depth == 0) {
        return false;
      }
      rank = s.path[--depth];
      ++s.next[rank];
    }
    std::int64_t amount =
        minimum{}(s.load[source] - s.capacity[source], s.capacity[rank] - s.load[rank]);
    for (index_t i = 0; i < depth; ++i) {
      amount = minimum{}(amount, s.share_of(g.rank_target[s.arc[s.path[i]]]));
    }
    for (index_t i = 0; i < depth; ++i) {
      index_t const r = s.path[i];
      s.share_of(g.rank_target[s.arc[r]]) -= amount;
      s.share_of(s.next[r]) += amount;
    }
    s.load[source] -= amount;
    s.load[rank] += amount;
    ++work;
    return true;
  }

  /// Returns the depth of a rank before the search: 0 if the rank is above its capacity.
  [[nodiscard]] PLIMSOLL_HD std::int32_t first_depth(index_t r) const {
    bool const above = !is_settled(r) && s.load[r] > s.capacity[r];
    return above ? 0 : is_settled(r) ? dead_end : unseen;
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
/// A search from the ranks below their capacity, against the direction of pushes, finds how many
/// steps each rank is away from them, up to the first ranks above their capacity. On a shortest
/// path the number falls by one with each step, so the ranks for a step are those of one number;
/// all of them lead on. The first one with a target of an arc's expert is the arc's *receiver*. A
/// push may take that from an arc, by its share or by the ranks that lead on, but never gives it
/// one: the next path in depth-first order is the first whose arcs all have a share and a receiver.
///
/// Each rank that a path has reached keeps its first arc and receiver. Following them gives the
/// path without a search. Ranks that no longer lead on are taken out.
template <class Team>
struct team_flow : blocking_flow {
  Team& team;
  std::int32_t steps = 0;  ///< of the last search

  PLIMSOLL_HD team_flow(Team& the_team, blocking_flow const& flow)
      : blocking_flow(flow), team(the_team) {}

  /// Copies the graph. The flow moves shares between targets.
  PLIMSOLL_HD void start() { s.local.fill(team, s.graph, s.layer, s.share); }

  /// Collects the ranks above and below their capacities, which are new.
  PLIMSOLL_HD void take_capacities() {
    layer_graph const& g = s.local;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t word = 0; word < g.words; ++word) {
      std::uint64_t const unsettled =
          ranks_where(word, [this](index_t r) { return !is_settled(r); });
      team.store(g.unsettled + word, unsettled);
      team.store(g.above + word, unsettled & ranks_where(word, [this](index_t r) {
                                   return s.load[r] > s.capacity[r];
                                 }));
      team.store(g.under + word, unsettled & ranks_where(word, [this](index_t r) {
                                   return s.load[r] < s.capacity[r];
                                 }));
    }
  }

  /// Finds the ranks for each step of the shortest paths, or, if there are none, the ranks that
  /// paths reach. Returns true if any rank is above its capacity.
  PLIMSOLL_HD bool find_depths() {
    layer_graph const& g = s.local;
    nearest = -1;
    if (!team.any(g.words, [&g](index_t word) { return g.above[word] != 0; })) {
      return false;
    }
    if (search<&expert_ranks::holders, &expert_ranks::givers>(g.under, g.above)) {
      nearest = steps;
    } else {
      search<&expert_ranks::givers, &expert_ranks::holders>(g.above, g.under);
    }
    return true;
  }
  /// Returns true if a path reaches rank r, after a search that found no path to a rank below its
  /// capacity.
  [[nodiscard]] PLIMSOLL_HD bool is_reached(index_t r) const {
    auto const rank = static_cast<std::int32_t>(r);
    return layer_graph::contains(s.local.unsettled, rank) &&
           !layer_graph::contains(s.local.unreached + steps * s.local.words, rank);
  }

  PLIMSOLL_HD void push_all() {
    layer_graph const& g = s.local;
    team.for_each(s.graph.ranks, [&g](index_t r) {
      g.way[r] = {-1, g.arc_begin[r], g.arc_begin[r + 1]};
    });
    PLIMSOLL_NO_UNROLL
    for (std::int32_t word = 0; word < g.words; ++word) {
      // A push from one source takes out no other.
      std::uint64_t sources = ranks_at(0)[word] & g.above[word];
      PLIMSOLL_NO_UNROLL
      for (; sources != 0 && work < max_iterations; sources &= sources - 1) {
        push_from(64 * word + lowest_bit(sources));
      }
    }
  }

 private:
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

  /// For several words: marks the experts with a rank of `row` in `From`, and returns a bit for
  /// each word, modulo 64, in which they have ranks in `To`.
  template <std::uint64_t expert_ranks::*From, std::uint64_t expert_ranks::*To>
  [[nodiscard]] PLIMSOLL_HD std::uint64_t mark(std::uint64_t const* row) {
    layer_graph const& g = s.local;
    return team.reduce(
        4 * g.quarter,
        [=, &g](index_t expert) {
          word_range const own = g.words_of[expert];
          std::uint64_t common = 0;
          std::uint64_t words = 0;
          PLIMSOLL_NO_UNROLL
          for (std::int32_t word = own.first; word <= own.last; ++word) {
            expert_ranks const ranks = g.ranks_of(word, static_cast<std::int32_t>(expert));
            common |= ranks.*From & row[word];
            words |= ranks.*To != 0 ? layer_graph::bit(word) : 0;
          }
          g.is_met[expert] = common != 0;
          return common != 0 ? words : 0;
        },
        bit_or{}, std::uint64_t{0});
  }
  /// Returns a word of the ranks that the experts for which `is_met` holds have in `To`. It gets an
  /// expert's number and ranks.
  template <std::uint64_t expert_ranks::*To, class F>
  [[nodiscard]] PLIMSOLL_HD std::uint64_t across(std::int32_t word, F is_met) {
    std::int32_t const quarter = s.local.quarter;
    expert_ranks const* const of_word = &s.local.ranks_of(word, 0);
    return team.reduce(
        quarter,
        [=](index_t i) {
          std::uint64_t result = 0;
          // The reads of four experts overlap.
          for (std::int32_t j = 0; j < 4; ++j) {
            std::int32_t const expert = static_cast<std::int32_t>(i) + j * quarter;
            expert_ranks const ranks = of_word[expert];
            result |= is_met(expert, ranks) ? ranks.*To : 0;
          }
          return result;
        },
        bit_or{}, std::uint64_t{0});
  }

  /// Searches from some ranks until it reaches any of `to`, which it returns, or no others. A step
  /// leads from the ranks of an expert in `From` to those in `To`.
  template <std::uint64_t expert_ranks::*From, std::uint64_t expert_ranks::*To>
  PLIMSOLL_HD bool search(std::uint64_t const* from, std::uint64_t const* to) {
    layer_graph const& g = s.local;
    if (g.words == 1) {
      return search_in_word<From, To>(*from, *to);
    }
    team.for_each(g.words, [=, &g](index_t word) {
      g.at_step[word] = from[word];
      g.unreached[word] = g.unsettled[word] & ~from[word];
    });
    steps = 0;
    bool is_met = false;
    PLIMSOLL_NO_UNROLL
    for (bool more = true; more;) {
      std::int32_t const row = steps * g.words;
      ++steps;
      std::uint64_t found = 0;
      std::uint64_t const words = mark<From, To>(g.at_step + row);
      PLIMSOLL_NO_UNROLL
      for (std::int32_t word = 0; word < g.words; ++word) {
        std::uint64_t const reached =
            (words & layer_graph::bit(word)) == 0
                ? 0
                : across<To>(word, [met = g.is_met](std::int32_t expert, expert_ranks const&) {
                    return met[expert] != 0;
                  });
        std::uint64_t const left = g.unreached[row + word];
        std::uint64_t const next = left & reached;
        team.store(g.at_step + row + g.words + word, next);
        team.store(g.unreached + row + g.words + word, left & ~next);
        is_met = is_met || (next & to[word]) != 0;
        found |= next;
      }
      more = found != 0 && !is_met;
    }
    return is_met;
  }
  /// Does the same for up to 64 ranks, by one team call for each step.
  template <std::uint64_t expert_ranks::*From, std::uint64_t expert_ranks::*To>
  PLIMSOLL_HD bool search_in_word(std::uint64_t from, std::uint64_t to) {
    layer_graph const& g = s.local;
    std::uint64_t left = g.unsettled[0] & ~from;
    std::uint64_t next = from;
    team.store(g.at_step, from);
    steps = 0;
    PLIMSOLL_NO_UNROLL
    for (bool more = true; more;) {
      std::uint64_t const reached = across<To>(
          0, [=](std::int32_t, expert_ranks const& ranks) { return (ranks.*From & next) != 0; });
      ++steps;
      next = left & reached;
      left ^= next;
      team.store(g.at_step + steps, next);
      more = next != 0 && (next & to) == 0;
    }
    team.store(g.unreached + steps, left);
    return (next & to) != 0;
  }
  /// Returns the ranks at a depth that lead on.
  [[nodiscard]] PLIMSOLL_HD std::uint64_t* ranks_at(std::int32_t depth) const {
    return s.local.at_step + (nearest - depth) * s.local.words;
  }

  /// Pushes from a source until it is at its capacity or becomes a dead end.
  PLIMSOLL_HD void push_from(std::int32_t source) {
    std::int64_t const capacity = s.capacity[source];
    std::int64_t excess = s.load[source] - capacity;
    push_paths(source, excess);
    team.single([=, this] {
      s.load[source] = capacity + excess;
      if (excess == 0) {
        layer_graph::remove(s.local.above, source);
      }
    });
  }
  /// Pushes along one path after the other, which lowers the source's excess. After a push only the
  /// part of the path from its first closed arc on is walked again.
  PLIMSOLL_HD void push_paths(std::int32_t source, std::int64_t& excess) {
    layer_graph const& g = s.local;
    std::int32_t depth = 0;
    std::int32_t rank = source;
    for (;;) {
      if (depth == nearest) {
        depth = push(rank, excess);
        if (work == max_iterations || excess == 0) {
          return;
        }
        rank = g.path[depth].rank;
      }
      rank_way const way = find_way(rank, depth);
      if (way.to >= 0) {
        team.store(g.path + depth, {rank, way.arc});
        rank = way.to;
        ++depth;
        continue;
      }
      team.single([=, this] { layer_graph::remove(ranks_at(depth), rank); });
      if (depth == 0) {
        return;
      }
      --depth;
      rank = g.path[depth].rank;
    }
  }

  /// Returns the first way from a rank at this depth to the next, if any.
  PLIMSOLL_HD rank_way find_way(std::int32_t r, std::int32_t depth) {
    layer_graph const& g = s.local;
    constexpr std::int32_t stretch = 64;
    constexpr int rank_bits = 26;  // the masks of 2^26 ranks would take petabytes
    constexpr std::uint32_t none = ~0u;
    std::uint64_t const* const row = ranks_at(depth + 1);
    // Loaded early: of up to 64 ranks, it is all of the row.
    std::uint64_t const word0 = row[0];
    auto const leading = [=](std::int32_t word) { return word == 0 ? word0 : row[word]; };
    rank_way way = g.way[r];
    if (way.to >= 0 && (leading(way.to >> 6) & layer_graph::bit(way.to)) != 0) {
      return way;
    }
    way.to = -1;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t first = way.arc; first < way.end; first += stretch) {
      std::uint32_t const found =
          team.min(minimum{}(stretch, way.end - first), [=, this](index_t i) {
            rank_arc const arc = s.local.arcs[first + static_cast<std::int32_t>(i)];
            // Before the share is known, so that the reads overlap.
            std::int64_t const share = s.share[arc.target];
            std::int32_t const to = receiver(arc.expert, leading);
            return share == 0 || to < 0 ? none
                                        : static_cast<std::uint32_t>(i) << rank_bits |
                                              static_cast<std::uint32_t>(to);
          });
      if (found != none) {
        way.to = static_cast<std::int32_t>(found & ((1u << rank_bits) - 1));
        way.arc = first + static_cast<std::int32_t>(found >> rank_bits);
        // No other thread still reads the old way: the search was also a barrier.
        team.store(g.way + r, way);
        break;
      }
    }
    return way;
  }
  /// Returns the first of some ranks, given by word, with a target of an expert, or -1.
  template <class Words>
  [[nodiscard]] PLIMSOLL_HD std::int32_t receiver(std::int32_t expert, Words leading) const {
    layer_graph const& g = s.local;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t word = 0; word < g.words; ++word) {
      std::uint64_t const ranks = g.ranks_of(word, expert).holders & leading(word);
      if (ranks != 0) {
        return 64 * word + lowest_bit(ranks);
      }
    }
    return -1;
  }

  /// Moves as much load as the path allows, which lowers the source's excess. Returns the depth of
  /// the first arc of the path that this closes.
  PLIMSOLL_HD std::int32_t push(std::int32_t sink, std::int64_t& excess) {
    layer_graph const& g = s.local;
    std::int64_t const carried = s.load[sink];
    std::int64_t const room = s.capacity[sink] - carried;
    std::int64_t const least = team.min(nearest, [=, this](index_t i) {
      return s.share[s.local.arcs[s.local.path[i].arc].target];
    });
    std::int64_t const amount = minimum{}(least, minimum{}(excess, room));
    bool const is_full = amount == room;
    std::int32_t const last = nearest - 1;
    ++work;
    excess -= amount;
    return team.min(nearest, [=, this, &g](index_t index) {
      auto const i = static_cast<std::int32_t>(index);
      path_step const step = g.path[i];
      std::int32_t const to = i < last ? g.path[i + 1].rank : sink;
      rank_arc const arc = g.arcs[step.arc];
      // Reads before the first write overlap.
      std::int64_t const left = s.share[arc.target] - amount;
      expert_ranks& there = g.ranks_with(arc.expert, to);
      std::uint64_t const givers = there.givers | layer_graph::bit(to);
      std::int64_t& other = s.share[g.target_of(arc.expert, to)];
      std::int64_t const more = other + amount;
      s.share[arc.target] = left;
      other = more;
      there.givers = givers;
      if (left == 0) {
        g.ranks_with(arc.expert, step.rank).givers ^= layer_graph::bit(step.rank);
        g.way[step.rank].to = -1;
      }
      if (i == 0) {
        s.load[sink] = carried + amount;
        if (is_full) {
          layer_graph::remove(g.under, sink);
          layer_graph::remove(g.at_step, sink);
        }
      }
      return left == 0 ? i : last;
    });
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
      flow.start();
    }
    for (bool more = true; more;) {
      std::int64_t const of_unit_speed = bound.capacity(1);
      team.for_each(s.graph.ranks, [=, this, &s](index_t r) {
        s.capacity[r] =
            s.speed.equal_speeds ? s.speed[r] * of_unit_speed : bound.capacity(s.speed[r]);
      });
      if constexpr (!Team::is_serial) {
        flow.take_capacities();
      }
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
        s.set[r] = flow.is_reached(r) ? now : flow.is_settled(r) ? s.set[r] : 0;
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

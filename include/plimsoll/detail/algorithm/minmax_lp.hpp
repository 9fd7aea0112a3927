// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `minmax_lp`: water-filling expert by expert, and, where that leaves a gap, an exact
/// finish by maximum flow. Loads are whole units of fixed point throughout.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/fixed_load.hpp>
#include <plimsoll/detail/algorithm/rank_levels.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Which experts may put load on which ranks, all layers one behind the other; positions are
/// absolute. A living rank with copies of an expert is one *target* of it, however many copies. An
/// expert with several targets is *shared*; one with a single target is at *home* there.
struct split_graph {
  index_t experts;
  index_t ranks;
  index_t slots;
  index_t most_shared;               ///< shared experts of a layer
  index_t most_targets;              ///< targets of those
  speed_units speed;                 ///< `[ranks]`
  std::int32_t const* layer_shared;  ///< `[layers + 1]` into the shared experts
  std::int32_t const* expert;        ///< `[shared]`, one colour behind the other
  std::int32_t const* target_begin;  ///< `[shared + 1]` into the targets
  std::int32_t const* target_rank;   ///< `[targets]`, rising for each expert
  std::int32_t const* target_owner;  ///< `[targets]`: the shared expert
  std::int32_t const* layer_colour;  ///< `[layers + 1]` into the colours
  std::int32_t const* colour_begin;  ///< `[colours + 1]` into the shared experts; those of one
                                     ///< colour have no target in common
  std::int32_t const* rank_begin;    ///< `[layers * ranks + 1]` into `rank_target`
  std::int32_t const* rank_target;   ///< `[targets]`, by rank
  std::int32_t const* home_begin;    ///< `[layers * ranks + 1]` into `home`
  std::int32_t const* home;          ///< experts at home, by rank
  std::int32_t const* layer_absent;  ///< `[layers + 1]` into `absent`
  std::int32_t const* absent;        ///< experts without a target
  std::int32_t const* slot_source;  ///< `[layers * slots]`: a target; -1: no load; -2 - e: all of e
  std::int32_t const* slot_copies;  ///< `[layers * slots]`: copies that share what there is; less
                                    ///< than 0 but for the first, which takes what does not divide
};

/// A layer while it is solved, in units of 2^-shift.
struct split_state {
  split_graph graph;
  index_t layer;
  index_t first_shared;  ///< of the layer
  index_t first_target;
  std::int64_t* load;      ///< `[ranks]`
  std::int64_t* share;     ///< `[targets of the layer]`
  std::int64_t* demand;    ///< `[shared experts of the layer]`
  std::int64_t* capacity;  ///< `[ranks]`
  std::int32_t* distance;  ///< `[ranks]`
  std::int32_t* queue;     ///< `[ranks]`
  std::int32_t* arc;       ///< `[ranks]`: a position in `rank_target`
  std::int32_t* next;      ///< `[ranks]`: a target of the arc's expert, -1 before the first
  std::int32_t* path;      ///< `[ranks]`
  std::int32_t* set;       ///< `[ranks]`: which tight set, from 1; 0: none yet

  PLIMSOLL_HD std::int64_t& share_of(index_t target) const { return share[target - first_target]; }
  /// Load over speed, or the load where ranks are alike; 0 of a dead rank, which has none.
  PLIMSOLL_HD double level(index_t rank) const {
    auto const whole = static_cast<double>(load[rank]);
    return graph.speed.even || whole == 0 ? whole : divide(whole, graph.speed.speed[rank]);
  }
  PLIMSOLL_HD double level_rounded_up(index_t rank) const {
    auto const whole = static_cast<double>(load[rank]);
    return graph.speed.even || whole == 0 ? whole : divide_up(whole, graph.speed.speed[rank]);
  }
};

/// What a set of ranks must carry, and how fast it works: a bound for every peak.
struct confinement {
  std::int64_t load = 0;
  std::int64_t speed = 0;  ///< in units; below 2^60

  /// As `split_state::level`, rounded down.
  PLIMSOLL_HD double level(speed_units const& units) const {
    auto const whole = static_cast<double>(speed);
    bool const below = static_cast<std::int64_t>(whole) < speed;
    double const at_least = below ? double_of(bits_of(whole) + 1) : whole;
    return divide_down(static_cast<double>(load), divide(at_least, units.per_unit));
  }
  /// What a rank may carry at this level, rounded up; 2^53 stands for anything.
  PLIMSOLL_HD std::int64_t capacity(std::int64_t of_rank) const {
    double const product = multiply(static_cast<double>(load), static_cast<double>(of_rank));
    return divide(product, static_cast<double>(speed)) >= 0x1p53
               ? std::int64_t{1} << 53
               : multiply_divide(load, of_rank, speed, speed - 1);
  }
};

/// Divides a shared expert's load among its targets so that those that get some are level, and no
/// lower one gets none.
PLIMSOLL_HD inline void fill(split_state const& s, index_t shared) {
  split_graph const& g = s.graph;
  std::int64_t const demand = s.demand[shared - s.first_shared];
  index_t const first = g.target_begin[shared];
  index_t const last = g.target_begin[shared + 1];
  if (g.speed.even && last - first == 2) {
    std::int64_t* const share = &s.share_of(first);
    std::int64_t& a = s.load[g.target_rank[first]];
    std::int64_t& b = s.load[g.target_rank[first + 1]];
    std::int64_t const other_a = a - share[0];
    std::int64_t const other_b = b - share[1];
    std::int64_t const up = (other_a + other_b + demand + 1) / 2 - other_a;
    share[0] = minimum{}(maximum{}(up, std::int64_t{0}), demand);
    share[1] = demand - share[0];
    a = other_a + share[0];
    b = other_b + share[1];
    return;
  }
  for (index_t k = first; k < last; ++k) {
    s.load[g.target_rank[k]] -= s.share_of(k);
  }
  if (!g.speed.even) {
    // In rounded numbers; what rounding leaves goes to the first. Rounding may lift the level, too:
    // a rank that has left must not come back, or there would be no end.
    double level = highest<double>;
    index_t count = last - first + 1;
    for (bool changed = true; changed;) {
      double sum = static_cast<double>(demand);
      double speed = 0;
      index_t below = 0;
      for (index_t k = first; k < last; ++k) {
        if (s.level(g.target_rank[k]) <= level) {
          sum = add(sum, static_cast<double>(s.load[g.target_rank[k]]));
          speed = add(speed, g.speed.speed[g.target_rank[k]]);
          ++below;
        }
      }
      changed = below > 0 && below < count;
      count = below;
      level = changed ? divide(sum, speed) : level;
    }
    std::int64_t rest = demand;
    for (index_t k = first; k < last; ++k) {
      index_t const r = g.target_rank[k];
      auto const up = static_cast<std::int64_t>(multiply(level, g.speed.speed[r]));
      s.share_of(k) = minimum{}(maximum{}(up - s.load[r], std::int64_t{0}), rest);
      rest -= s.share_of(k);
    }
    s.share_of(first) += rest;
    for (index_t k = first; k < last; ++k) {
      s.load[g.target_rank[k]] += s.share_of(k);
    }
    return;
  }
  std::int64_t level = highest<std::int64_t>;
  std::int64_t rest = 0;
  index_t count = 0;
  for (bool changed = true; changed;) {
    // Ranks above the level leave. It only sinks, so none comes back.
    std::int64_t sum = demand;
    index_t below = 0;
    for (index_t k = first; k < last; ++k) {
      std::int64_t const other = s.load[g.target_rank[k]];
      sum += other <= level ? other : 0;
      below += other <= level;
    }
    changed = below != count;
    count = below;
    level = sum / count;
    rest = sum % count;
  }
  for (index_t k = first; k < last; ++k) {
    std::int64_t& other = s.load[g.target_rank[k]];
    std::int64_t const up = other <= level ? level - other + (rest-- > 0) : 0;
    s.share_of(k) = up;
    other += up;
  }
}

/// Brings every load within its capacity at the level of a bound, by augmenting paths (Dinic's
/// blocking flows) from ranks above to ranks below, over shares that can move. Where those that are
/// left above reach none below, all that they reach must carry what it does: a better bound. One
/// thread does it.
struct exact_finish {
  split_state s;
  confinement bound;  ///< of the ranks in `set_now`
  std::int64_t work;
  std::int64_t work_limit;
  bool complete = false;
  std::int32_t set_now = 1;
  std::int32_t nearest = -1;

  /// `complete` tells whether it came to its end before the work limit.
  PLIMSOLL_HD void run() {
    complete = false;
    while (!complete) {
      std::int64_t const even = bound.capacity(1);
      for (index_t r = 0; r < s.graph.ranks; ++r) {
        s.capacity[r] =
            s.graph.speed.even ? s.graph.speed[r] * even : bound.capacity(s.graph.speed[r]);
      }
      index_t reached = find_levels();
      for (; nearest >= 0 && work < work_limit; reached = find_levels()) {
        push_all();
      }
      if (nearest >= 0) {
        return;
      }
      complete = reached == 0;
      if (!complete) {
        take_set(reached);
      }
    }
  }

  /// Goes on with the ranks below those that gave the bound, until loads are as even as they can
  /// be.
  PLIMSOLL_HD void level_rest() {
    confinement const first = bound;
    while (complete) {
      ++set_now;
      bound = confinement{};
      for (index_t r = 0; r < s.graph.ranks; ++r) {
        if (s.set[r] == 0) {
          s.set[r] = set_now;
          bound.load += s.load[r];
          bound.speed += s.graph.speed[r];
        }
      }
      if (bound.speed == 0) {
        break;
      }
      run();
    }
    bound = first;
  }

 private:
  [[nodiscard]] PLIMSOLL_HD bool is_settled(index_t r) const {
    return s.set[r] != 0 && s.set[r] != set_now;
  }

  /// Levels of the residual graph, from the ranks above their capacity. Returns how many ranks it
  /// reached; `nearest` is the level of the first below its capacity, or -1.
  PLIMSOLL_HD index_t find_levels() {
    split_graph const& g = s.graph;
    index_t const row = s.layer * g.ranks;
    index_t tail = 0;
    nearest = -1;
    for (index_t r = 0; r < g.ranks; ++r) {
      bool const above = !is_settled(r) && s.load[r] > s.capacity[r];
      s.distance[r] = above ? 0 : is_settled(r) ? dead_end : unseen;
      if (above) {
        s.queue[tail++] = static_cast<std::int32_t>(r);
      }
    }
    for (index_t head = 0; head < tail; ++head) {
      index_t const r = s.queue[head];
      if (nearest >= 0 && s.distance[r] >= nearest) {
        break;
      }
      for (index_t a = g.rank_begin[row + r]; a < g.rank_begin[row + r + 1]; ++a) {
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
    return tail;
  }

  /// What was reached becomes the set that gives the bound.
  PLIMSOLL_HD void take_set(index_t reached) {
    for (index_t r = 0; r < s.graph.ranks; ++r) {
      s.set[r] = is_settled(r) ? s.set[r] : 0;
    }
    bound = confinement{};
    for (index_t i = 0; i < reached; ++i) {
      index_t const r = s.queue[i];
      s.set[r] = set_now;
      bound.load += s.load[r];
      bound.speed += s.graph.speed[r];
    }
  }

  PLIMSOLL_HD void push_all() {
    split_graph const& g = s.graph;
    for (index_t r = 0; r < g.ranks; ++r) {
      s.arc[r] = g.rank_begin[s.layer * g.ranks + r];
      s.next[r] = -1;
    }
    for (index_t r = 0; r < g.ranks; ++r) {
      while (work < work_limit && s.distance[r] == 0 && s.load[r] > s.capacity[r] && push_from(r)) {
      }
    }
  }

  /// Finds one path and moves as much as it allows.
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

  /// Moves on to a share of the rank that can go a level further.
  PLIMSOLL_HD bool advance(index_t r) {
    split_graph const& g = s.graph;
    index_t const end = g.rank_begin[s.layer * g.ranks + r + 1];
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

  static constexpr std::int32_t unseen = -1;
  static constexpr std::int32_t dead_end = -3;  // no level follows on it
};

/// Problem = layer.
template <class Loads>
struct minmax_lp_body {
  using device_team = block<128>;

  split_graph graph;
  Loads loads;                    ///< `[layers, experts]`
  matrix_ref<double const> base;  ///< `[layers, ranks]` or empty
  double tolerance;
  std::int64_t work_limit;
  bool lexicographic;
  double speed_unit;                     ///< the speed of ranks that are alike, else 1
  matrix_ref<double> split;              ///< `[layers, slots]`
  vector_ref<certificate> certificates;  ///< `[layers]`
  matrix_ref<std::uint8_t> tight;        ///< `[layers, ranks]` or empty

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return 2 * scratch_bytes_of<std::int64_t>(graph.ranks) +
           scratch_bytes_of<std::int64_t>(graph.most_targets) +
           scratch_bytes_of<std::int64_t>(graph.most_shared) +
           6 * scratch_bytes_of<std::int32_t>(graph.ranks) + scratch_bytes_of<exact_finish>(1);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    split_state const s = take_state(memory, layer);
    auto* const finish = memory.take<exact_finish>(1);
    load_scale const scale = scale_of(team, layer);
    if (scale.what != fault::none) {
      refuse(team, layer, double_of(0x7ff8000000000000u), scale.got, scale.where);
      return;
    }
    index_t const homeless = homeless_load(team, layer);
    if (homeless >= 0) {
      refuse(team, layer, double_of(0x7ff0000000000000u), load_at(layer, homeless), homeless);
      return;
    }
    // Five bits more than decisions about placements take: doubles hold every load exactly.
    int const shift = scale.shift + 5;
    start(team, s, shift);

    index_t const ranks = graph.ranks;
    confinement bound{
        team.sum(ranks, [=](index_t r) { return s.load[r]; }) +
            team.sum(shared_end(layer) - s.first_shared, [=](index_t i) { return s.demand[i]; }),
        team.sum(ranks, [=, this](index_t r) { return graph.speed[r]; })};
    std::int64_t work = 0;
    bool closed = false;
    while (!closed && work < most_sweeps && work < work_limit) {
      sweep(team, s);
      closed = !lexicographic && is_within(team, s, bound);
      ++work;
    }
    bool complete = false;
    if (!closed) {
      team.single([=, this] {
        *finish = exact_finish{s, bound, work, work_limit};
        finish->run();
        if (lexicographic) {
          finish->level_rest();
        }
      });
      bound = finish->bound;
      work = finish->work;
      complete = finish->complete;
    }
    double const peak = team.max(ranks, [&s](index_t r) { return s.level_rounded_up(r); });
    if (!lexicographic && !complete) {
      // Of even ranks the peak tells; 64 divisions would take as long as a sweep.
      complete = graph.speed.even ? peak <= static_cast<double>(bound.capacity(1))
                                  : !team.any(ranks, [&s, bound](index_t r) {
                                      return s.load[r] > bound.capacity(s.graph.speed[r]);
                                    });
    }
    write(team, s, shift, layer);
    team.single([=, this] {
      double const least = divide_down(bound.level(graph.speed), speed_unit);
      double const value = scale_rounded_up(divide_up(peak, speed_unit), -shift);
      certificates[layer] =
          certificate{value, minimum{}(scale_rounded_down(least, -shift), value), work,
                      complete ? certificate_status::optimal
                      : closed ? certificate_status::within_tolerance
                               : certificate_status::work_limit};
    });
  }

 private:
  /// Beyond these the exact finish is faster.
  static constexpr std::int64_t most_sweeps = 4;

  PLIMSOLL_HD index_t shared_end(index_t layer) const { return graph.layer_shared[layer + 1]; }

  PLIMSOLL_HD split_state take_state(scratch& memory, index_t layer) const {
    split_state s{};
    s.graph = graph;
    s.layer = layer;
    s.first_shared = graph.layer_shared[layer];
    s.first_target = graph.target_begin[s.first_shared];
    s.load = memory.take<std::int64_t>(graph.ranks);
    s.capacity = memory.take<std::int64_t>(graph.ranks);
    s.share = memory.take<std::int64_t>(graph.most_targets);
    s.demand = memory.take<std::int64_t>(graph.most_shared);
    for (std::int32_t** const array : {&s.distance, &s.queue, &s.arc, &s.next, &s.path, &s.set}) {
      *array = memory.take<std::int32_t>(graph.ranks);
    }
    return s;
  }

  template <class Team>
  PLIMSOLL_HD load_scale scale_of(Team& team, index_t layer) const {
    if (base.data == nullptr) {
      return scale_loads(team, graph.experts, [this, layer](index_t e) { return loads(layer, e); });
    }
    return scale_loads(team, graph.experts + graph.ranks,
                       [this, layer](index_t i) { return load_at(layer, i); });
  }
  /// Of an expert, or, behind all experts, the base of a rank.
  PLIMSOLL_HD double load_at(index_t layer, index_t i) const {
    return i < graph.experts ? static_cast<double>(loads(layer, i))
                             : base(layer, i - graph.experts);
  }

  /// The first expert that has load but no target, else `experts` + the first dead rank that has a
  /// base; -1 where there is none.
  template <class Team>
  PLIMSOLL_HD index_t homeless_load(Team& team, index_t layer) const {
    index_t const none = graph.experts + graph.ranks;
    index_t const first = graph.layer_absent[layer];
    index_t found = team.min(graph.layer_absent[layer + 1] - first, [=, this](index_t i) {
      index_t const e = graph.absent[first + i];
      return loads(layer, e) > 0 ? e : none;
    });
    // Of no experts the minimum is the largest number there is.
    if (found >= none && base.data != nullptr) {
      found = team.min(graph.ranks, [=, this](index_t r) {
        return graph.speed[r] == 0 && base(layer, r) > 0 ? graph.experts + r : none;
      });
    }
    return found < none ? found : index_t{-1};
  }

  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, index_t layer, double value, double got,
                          index_t where) const {
    team.for_each(graph.slots, [=, this](index_t slot) { split(layer, slot) = 0; });
    if (tight.data != nullptr) {
      team.for_each(graph.ranks, [=, this](index_t r) { tight(layer, r) = 0; });
    }
    index_t const base_of = graph.experts - where;  // of a rank: 0, -1, ...
    team.single([=, this] {
      certificates[layer] = certificate{value, got, where < graph.experts ? where : base_of - 2,
                                        certificate_status::infeasible};
    });
  }

  /// Ranks with what is at home on them, shared experts with nothing given yet.
  template <class Team>
  PLIMSOLL_HD void start(Team& team, split_state const& s, int shift) const {
    index_t const layer = s.layer;
    index_t const first = s.first_shared;
    index_t const shared = shared_end(layer) - first;
    index_t const targets = graph.target_begin[shared_end(layer)] - s.first_target;
    team.for_each(targets, [=](index_t k) { s.share[k] = 0; });
    team.for_each(shared, [=, this](index_t i) {
      s.demand[i] = fixed(loads(layer, graph.expert[first + i]), shift);
    });
    team.for_each(graph.ranks, [=, this](index_t r) {
      index_t const row = layer * graph.ranks + r;
      std::int64_t sum = base.data == nullptr ? 0 : fixed(base(layer, r), shift);
      for (index_t i = graph.home_begin[row]; i < graph.home_begin[row + 1]; ++i) {
        sum += fixed(loads(layer, graph.home[i]), shift);
      }
      s.load[r] = sum;
      s.set[r] = 1;
    });
  }

  template <class T>
  PLIMSOLL_HD static std::int64_t fixed(T value, int shift) {
    return static_cast<std::int64_t>(to_fixed(value, shift));
  }

  template <class Team>
  PLIMSOLL_HD void sweep(Team& team, split_state const& s) const {
    for (index_t c = graph.layer_colour[s.layer]; c < graph.layer_colour[s.layer + 1]; ++c) {
      index_t const first = graph.colour_begin[c];
      team.for_each(graph.colour_begin[c + 1] - first,
                    [&s, first](index_t i) { fill(s, first + i); });
    }
  }

  /// Whether the loads are within the tolerance of a bound: that of the most loaded ranks, less
  /// what shared experts could take from them, or the one there is.
  template <class Team>
  PLIMSOLL_HD bool is_within(Team& team, split_state const& s, confinement& bound) const {
    index_t const ranks = graph.ranks;
    double const peak = team.max(ranks, [&s](index_t r) { return s.level_rounded_up(r); });
    if (peak <= multiply(bound.level(graph.speed), add(1.0, tolerance))) {
      return true;
    }
    double const threshold = multiply(peak, add(1.0, -tolerance));
    std::int32_t* const inside = s.distance;  // free until the exact finish
    team.for_each(ranks, [=, &s](index_t r) { inside[r] = s.level(r) >= threshold; });
    index_t const first = s.first_shared;
    std::int64_t const movable = team.sum(shared_end(s.layer) - first, [=, this, &s](index_t i) {
      std::int64_t share = 0;
      std::int32_t all = 1;
      for (index_t k = graph.target_begin[first + i]; k < graph.target_begin[first + i + 1]; ++k) {
        std::int32_t const is_inside = inside[graph.target_rank[k]];
        share += s.share_of(k) * is_inside;
        all &= is_inside;
      }
      return share * (1 - all);
    });
    confinement const top{
        team.sum(ranks, [=](index_t r) { return s.load[r] * inside[r]; }) - movable,
        team.sum(ranks, [=, this](index_t r) { return graph.speed[r] * inside[r]; })};
    if (top.level(graph.speed) > bound.level(graph.speed)) {
      bound = top;
      team.for_each(ranks, [=](index_t r) { s.set[r] = inside[r]; });
    }
    return peak <= multiply(bound.level(graph.speed), add(1.0, tolerance));
  }

  template <class Team>
  PLIMSOLL_HD void write(Team& team, split_state const& s, int shift, index_t layer) const {
    // Of the usual loads the unit is a normal number, and one product brings it back.
    bool const usual = shift > -1000 && shift < 1000;
    double const unit = usual ? scale_by_power_of_two(1.0, -shift) : 1.0;
    team.for_each(graph.slots, [=, this](index_t slot) {
      std::int32_t const source = graph.slot_source[layer * graph.slots + slot];
      std::int32_t const copies = graph.slot_copies[layer * graph.slots + slot];
      if (source < -1 && copies == 1) {
        split(layer, slot) = static_cast<double>(loads(layer, -2 - source));
        return;
      }
      std::int64_t units = 0;
      if (source != -1) {
        units = source >= 0 ? s.share_of(source) : fixed(loads(layer, -2 - source), shift);
      }
      if (copies != 1) {
        std::int64_t const n = copies < 0 ? -copies : copies;
        units = copies < 0 ? units / n : units - units / n * (n - 1);
      }
      double const value = multiply(static_cast<double>(units), unit);
      split(layer, slot) = usual ? value : scale_by_power_of_two(value, -shift);
    });
    if (tight.data != nullptr) {
      team.for_each(graph.ranks, [=, this](index_t r) {
        tight(layer, r) = s.set[r] == 1 && graph.speed[r] > 0;
      });
    }
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `minmax_lp`: water-filling expert by expert, and, if that leaves a gap, an exact finish
/// by maximum flow. All loads are integers in fixed-point units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp_flow.hpp>
#include <plimsoll/detail/algorithm/minmax_lp_state.hpp>
#include <plimsoll/detail/algorithm/split_graph.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns sum / count for a sum of loads.
PLIMSOLL_HD inline std::int64_t divide_whole(std::int64_t sum, index_t count) {
  return static_cast<std::int64_t>(
      divide_floor(static_cast<std::uint64_t>(sum), static_cast<std::uint32_t>(count)));
}

/// Fills two targets of equal speed.
PLIMSOLL_HD inline void fill_two(split_state const& s, index_t first, std::int64_t demand) {
  split_graph const& g = s.graph;
  std::int64_t* const share = &s.share_of(first);
  std::int64_t& a = s.load[g.target_rank[first]];
  std::int64_t& b = s.load[g.target_rank[first + 1]];
  std::int64_t const other_a = a - share[0];
  std::int64_t const other_b = b - share[1];
  // With this share both ranks are equal; an odd unit goes to the first.
  std::int64_t const up = (other_a + other_b + demand + 1) / 2 - other_a;
  share[0] = minimum{}(maximum{}(up, std::int64_t{0}), demand);
  share[1] = demand - share[0];
  a = other_a + share[0];
  b = other_b + share[1];
}

/// Fills targets [first, last) of any speeds; their ranks carry only other experts so far.
PLIMSOLL_HD inline void fill_by_speed(split_state const& s, index_t first, index_t last,
                                      std::int64_t demand) {
  split_graph const& g = s.graph;
  // Computes the level in floating point; the first target takes the rounding difference. Rounding
  // may also raise the level: the loop ends when the number of ranks below it no longer falls, as
  // ranks that come back could make it endless.
  double level = highest<double>;
  index_t count = last - first + 1;  // more than any number of ranks below
  PLIMSOLL_NO_UNROLL
  for (bool changed = true; changed;) {
    double sum = static_cast<double>(demand);
    double speed = 0;
    index_t below = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t k = first; k < last; ++k) {
      if (s.level(g.target_rank[k]) <= level) {
        sum = add(sum, static_cast<double>(s.load[g.target_rank[k]]));
        speed = add(speed, s.speed.speed[g.target_rank[k]]);
        ++below;
      }
    }
    changed = below > 0 && below < count;
    count = below;
    level = changed ? divide(sum, speed) : level;
  }
  std::int64_t rest = demand;
  PLIMSOLL_NO_UNROLL
  for (index_t k = first; k < last; ++k) {
    index_t const r = g.target_rank[k];
    auto const up = static_cast<std::int64_t>(multiply(level, s.speed.speed[r]));
    s.share_of(k) = minimum{}(maximum{}(up - s.load[r], std::int64_t{0}), rest);
    rest -= s.share_of(k);
  }
  s.share_of(first) += rest;
  PLIMSOLL_NO_UNROLL
  for (index_t k = first; k < last; ++k) {
    s.load[g.target_rank[k]] += s.share_of(k);
  }
}

/// Fills targets [first, last) of equal speed; their ranks carry only other experts so far.
PLIMSOLL_HD inline void fill_evenly(split_state const& s, index_t first, index_t last,
                                    std::int64_t demand) {
  split_graph const& g = s.graph;
  std::int64_t level = highest<std::int64_t>;
  std::int64_t rest = 0;
  index_t count = 0;
  PLIMSOLL_NO_UNROLL
  for (bool changed = true; changed;) {
    // Ranks above the level drop out. The level only falls, so none comes back.
    std::int64_t sum = demand;
    index_t below = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t k = first; k < last; ++k) {
      std::int64_t const other = s.load[g.target_rank[k]];
      sum += other <= level ? other : 0;
      below += other <= level;
    }
    changed = below != count;
    count = below;
    level = divide_whole(sum, count);
    rest = sum - level * count;
  }
  PLIMSOLL_NO_UNROLL
  for (index_t k = first; k < last; ++k) {
    std::int64_t& other = s.load[g.target_rank[k]];
    std::int64_t const up = other <= level ? level - other + (rest-- > 0) : 0;
    s.share_of(k) = up;
    other += up;
  }
}

/// Takes the shares of targets [first, last) off their ranks.
PLIMSOLL_HD inline void take_off(split_state const& s, index_t first, index_t last) {
  PLIMSOLL_NO_UNROLL
  for (index_t k = first; k < last; ++k) {
    s.load[s.graph.target_rank[k]] -= s.share_of(k);
  }
}

/// Divides a replicated expert's load among its targets by water-filling: targets that get load end
/// at the same level, to rounding, and the others were at or above it before.
PLIMSOLL_HD inline void fill(split_state const& s, index_t replicated) {
  split_graph const& g = s.graph;
  std::int64_t const demand = s.demand[replicated - s.first_replicated];
  index_t const first = g.target_begin[replicated];
  index_t const last = g.target_begin[replicated + 1];
  if (s.speed.equal_speeds && last - first == 2) {
    fill_two(s, first, demand);
    return;
  }
  take_off(s, first, last);
  if (s.speed.equal_speeds) {
    fill_evenly(s, first, last, demand);
  } else {
    fill_by_speed(s, first, last, demand);
  }
}

/// Does the same as `fill` for ranks of equal speed and an expert with at most `most` targets, for
/// a thread of a device: it reads all targets at once, and finds the level in registers.
struct fill_few {
  static constexpr std::int32_t most = 8;

  split_state s;

  PLIMSOLL_HD void operator()(std::int32_t first, std::int32_t count, std::int64_t demand) const {
    auto const first_of_layer = static_cast<std::int32_t>(s.first_target);
    std::int64_t* const shares = s.share + (first - first_of_layer);
    std::int32_t rank[most];
    std::int64_t own[most];
    std::int64_t other[most];
    // The reads overlap, as none depends on a condition.
    for (std::int32_t k = 0; k < most; ++k) {
      std::int32_t const target = minimum{}(first + k, first + count - 1);
      rank[k] = s.graph.target_rank[target];
      own[k] = s.share[target - first_of_layer];
    }
    std::int64_t const counted_demand = demand << count_bits;
    std::int64_t sum = counted_demand;
    for (std::int32_t k = 0; k < most; ++k) {
      std::int64_t const counted = (s.load[rank[k]] - own[k]) << count_bits | 1;
      other[k] = k < count ? counted : none;
      sum += k < count ? counted : 0;
    }
    // As in `fill_evenly`.
    std::int64_t level = 0;
    std::int64_t limit = 0;
    std::int32_t below = 0;
    PLIMSOLL_NO_UNROLL
    for (bool changed = true; changed;) {
      below = static_cast<std::int32_t>(sum & all_counts);
      level = divide_whole(sum >> count_bits, below);
      limit = level << count_bits | all_counts;
      sum = counted_demand;
      for (std::int32_t k = 0; k < most; ++k) {
        sum += other[k] <= limit ? other[k] : 0;
      }
      changed = (sum & all_counts) != below;
    }
    auto rest = static_cast<std::int32_t>((sum >> count_bits) - level * below);
    for (std::int32_t k = 0; k < most; ++k) {
      if (k >= count) {
        return;
      }
      std::int64_t const before = other[k] >> count_bits;
      bool const gets = other[k] <= limit;
      std::int64_t const after = gets ? level + (rest > 0) : before;
      rest -= gets;
      shares[k] = after - before;
      s.load[rank[k]] = after;
    }
  }

 private:
  // The low bits of a load, which has 53 others at most, are a 1: a sum of loads also counts them.
  static constexpr int count_bits = 4;
  static constexpr std::int64_t all_counts = (1 << count_bits) - 1;
  static constexpr std::int64_t none = highest<std::int64_t>;  ///< above every level
};

/// Does the same as `fill` for ranks of equal speed, with one index per target instead of one per
/// expert. It handles the experts of a color with more than `fill_few::most` targets: `fill` goes
/// over n targets up to n + 3 times.
///
/// A target gets load if raising all lower targets to its level takes at most the demand. The final
/// level and the target's part of the remainder then follow from the targets that get load.
struct fill_by_target {
  split_state s;

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, index_t first_target, index_t count) const {
    // Targets of a color are on different ranks, and these arrays of ranks are unused until the
    // exact finish.
    std::int64_t* const others = s.capacity;
    std::int32_t* const gets = s.distance;
    // Calls step(target, owner, the first and last target of the owner), counted within the color.
    auto const for_targets = [&](auto step) {
      team.for_each(count, [=, this](index_t i) {
        index_t const owner = s.graph.target_owner[first_target + i];
        auto const first = static_cast<std::int32_t>(s.graph.target_begin[owner] - first_target);
        auto const last = static_cast<std::int32_t>(s.graph.target_begin[owner + 1] - first_target);
        if (last - first > fill_few::most) {
          step(static_cast<std::int32_t>(i), owner, first, last);
        }
      });
    };
    using number = std::int32_t;
    for_targets([=, this](number i, index_t, number, number) {
      index_t const k = first_target + i;
      others[i] = s.load[s.graph.target_rank[k]] - s.share_of(k);
    });
    for_targets([=, this](number i, index_t owner, number first, number last) {
      std::int64_t const mine = others[i];
      std::int64_t left = s.demand[owner - s.first_replicated];
      PLIMSOLL_NO_UNROLL
      for (number j = first; j < last && left >= 0; ++j) {
        left -= maximum{}(mine - others[j], std::int64_t{0});
      }
      gets[i] = left >= 0;
    });
    for_targets([=, this](number i, index_t owner, number first, number last) {
      std::int64_t sum = s.demand[owner - s.first_replicated];
      number all = 0;
      number before = 0;
      PLIMSOLL_NO_UNROLL
      for (number j = first; j < last; ++j) {
        bool const is_one = gets[j] != 0;
        sum += is_one ? others[j] : 0;
        all += is_one;
        before += is_one && j < i;
      }
      std::int64_t const level = divide_whole(sum, all);
      std::int64_t const rest = sum - level * all;
      std::int64_t const share = gets[i] != 0 ? level - others[i] + (before < rest) : 0;
      index_t const k = first_target + i;
      s.load[s.graph.target_rank[k]] = others[i] + share;
      s.share_of(k) = share;
    });
  }
};

/// Body of `minmax_lp::solve`. Problem = layer.
template <class Loads>
struct minmax_lp_body {
  using device_team = warp;

  split_graph graph;
  Loads loads;                         ///< `[layers, experts]`
  matrix_ref<double const> base_load;  ///< `[layers, ranks]` or empty
  double tolerance;
  std::int64_t max_iterations;
  bool lexicographic;
  matrix_ref<double> split;              ///< `[layers, slots]` or empty
  vector_ref<certificate> certificates;  ///< `[layers]`
  fault* faults;                         ///< `[layers]` or null
  matrix_ref<std::uint8_t> bottleneck;   ///< `[layers, ranks]` or empty

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<split_state>(graph);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    split_state const s = take_state(memory, layer);
    load_scale const scale = scale_of(team, layer);
    if (scale.refused) {
      fault const& found = scale.refused;
      refuse(team, layer, fault_at(found.kind, fault_kind::base_load, found.where, found.got));
      return;
    }
    index_t const without_slot = load_without_slot(team, s, layer);
    if (without_slot >= 0) {
      refuse(team, layer,
             fault_at(fault_kind::unplaced_load, fault_kind::dead_load, without_slot,
                      load_at(layer, without_slot)));
      return;
    }
    // `fixed_load` has 47 bits. With five more, doubles still hold every sum of loads exactly.
    int const shift = scale.shift + 5;
    start(team, s, layer, shift);

    // The first bound: all ranks carry all load.
    index_t const ranks = graph.ranks;
    confinement bound{team.sum(ranks, [=](index_t r) { return s.load[r]; }) +
                          team.sum(s.replicated, [=](index_t i) { return s.demand[i]; }),
                      team.sum(ranks, [=](index_t r) { return s.speed[r]; })};
    std::int64_t work = 0;
    bool closed = false;
    while (!closed && work < most_sweeps && work < max_iterations) {
      sweep(team, s, layer);
      closed = !lexicographic && is_within(team, s, bound);
      ++work;
    }
    bool complete = false;
    if (!closed) {
      complete = finish(team, s, bound, work);
    }
    double const peak = team.max(ranks, [&s](index_t r) { return s.level_rounded_up(r); });
    if (!lexicographic && !complete) {
      // For equal speeds the peak decides: a division for each rank would take as long as a sweep.
      complete = s.speed.equal_speeds ? peak <= static_cast<double>(bound.capacity(1))
                                      : !team.any(ranks, [&s, bound](index_t r) {
                                          return s.load[r] > bound.capacity(s.speed[r]);
                                        });
    }
    write(team, s, shift, layer);
    team.single([=, this] {
      double const speed_unit = graph.layers[layer].speed_unit();
      double const least = divide_down(bound.level(s.speed), speed_unit);
      double const value = scale_rounded_up(divide_up(peak, speed_unit), -shift);
      report(layer, {value, minimum{}(scale_rounded_down(least, -shift), value), work,
                     complete ? certificate_status::optimal
                     : closed ? certificate_status::within_tolerance
                              : certificate_status::iteration_limit});
    });
  }

 private:
  /// After this number of sweeps the exact finish is faster.
  static constexpr std::int64_t most_sweeps = 4;

  PLIMSOLL_HD split_state take_state(scratch& memory, index_t layer) const {
    split_state s = split_state::in(memory, graph);
    s.layer = layer;
    s.speed = graph.speeds(layer);
    s.first_rank = graph.first_rank(layer);
    s.first_replicated = graph.first_replicated(layer);
    s.first_target = graph.first_target(layer);
    s.replicated = graph.layers[layer].replicated;
    return s;
  }

  template <class Team>
  PLIMSOLL_HD load_scale scale_of(Team& team, index_t layer) const {
    if (base_load.data == nullptr) {
      return scale_loads(team, graph.experts, [this, layer](index_t e) { return loads(layer, e); });
    }
    return scale_loads(team, graph.experts + graph.ranks,
                       [this, layer](index_t i) { return load_at(layer, i); });
  }
  /// Returns the fault of the load of expert i, or, after all experts, of the base load of rank
  /// i - experts.
  PLIMSOLL_HD fault fault_at(fault_kind of_load, fault_kind of_base, index_t i, double got) const {
    return i < graph.experts ? fault_of(of_load, i, got)
                             : fault_of(of_base, i - graph.experts, got);
  }
  /// Returns the load of expert i, or, after all experts, the base load of rank i - experts.
  PLIMSOLL_HD double load_at(index_t layer, index_t i) const {
    return i < graph.experts ? static_cast<double>(loads(layer, i))
                             : base_load(layer, i - graph.experts);
  }

  /// Returns the first expert that has load but no target, else `experts` + the first dead rank
  /// that has a base load, else -1.
  template <class Team>
  PLIMSOLL_HD index_t load_without_slot(Team& team, split_state const& s, index_t layer) const {
    index_t const none = graph.experts + graph.ranks;
    index_t const first = graph.home_begin[s.first_rank + graph.ranks];
    index_t const end = (layer + 1) * graph.experts - s.replicated;
    index_t found = team.min(end - first, [=, this](index_t i) {
      index_t const e = graph.home[first + i];
      return loads(layer, e) > 0 ? e : none;
    });
    // The minimum over no experts is the largest number, hence >=.
    if (found >= none && base_load.data != nullptr) {
      found = team.min(graph.ranks, [=, this, &s](index_t r) {
        return s.speed.speed[r] == 0 && base_load(layer, r) > 0 ? graph.experts + r : none;
      });
    }
    return found < none ? found : index_t{-1};
  }

  PLIMSOLL_HD void report(index_t layer, certificate const& result, fault const& found = {}) const {
    certificates[layer] = result;
    if (faults != nullptr) {
      faults[layer] = found;
    }
  }

  /// Writes a split of 0, and that no split has a finite peak.
  template <class Team>
  PLIMSOLL_HD void refuse(Team& team, index_t layer, fault const& found) const {
    if (split.data != nullptr) {
      team.for_each(graph.slots, [=, this](index_t slot) { split(layer, slot) = 0; });
    }
    if (bottleneck.data != nullptr) {
      team.for_each(graph.ranks, [=, this](index_t r) { bottleneck(layer, r) = 0; });
    }
    team.single([=, this] {
      constexpr double infinity = double_of(0x7ff0000000000000u);
      report(layer, {infinity, infinity, 0, certificate_status::infeasible}, found);
    });
  }

  /// Starts with the base loads and the experts at home on the ranks; replicated experts have no
  /// shares yet. All ranks are in the first bottleneck set.
  template <class Team>
  PLIMSOLL_HD void start(Team& team, split_state const& s, index_t layer, int shift) const {
    index_t const first = s.first_replicated;
    index_t const targets = graph.target_begin[first + s.replicated] - s.first_target;
    team.for_each(targets, [=](index_t k) { s.share[k] = 0; });
    team.for_each(s.replicated, [=, this](index_t i) {
      s.demand[i] = fixed(loads(layer, graph.expert[first + i]), shift);
    });
    team.for_each(graph.ranks, [=, this](index_t r) {
      index_t const row = s.first_rank + r;
      std::int64_t sum = base_load.data == nullptr ? 0 : fixed(base_load(layer, r), shift);
      PLIMSOLL_NO_UNROLL
      for (index_t i = graph.home_begin[row]; i < graph.home_begin[row + 1]; ++i) {
        sum += fixed(loads(layer, graph.home[i]), shift);
      }
      s.fixed[r] = s.load[r] = sum;
      s.set[r] = 1;
    });
  }

  template <class T>
  PLIMSOLL_HD static std::int64_t fixed(T value, int shift) {
    return static_cast<std::int64_t>(to_fixed(value, shift));
  }

  template <class Team>
  PLIMSOLL_HD void sweep(Team& team, split_state const& s, index_t layer) const {
    index_t const last = s.first_replicated + graph.layers[layer].colors;
    for (index_t c = s.first_replicated; c < last; ++c) {
      index_t const first = graph.color_begin[c];
      index_t const end = graph.color_begin[c + 1];
      // Fills experts, one per index, and tells whether any are left for `fill_by_target`.
      bool const any_left = team.any(end - first, [=, &s](index_t i) {
        if constexpr (Team::is_serial) {
          // For 8 to 64 copies, one thread is 3 to 30 times as fast by expert as by target.
          fill(s, first + i);
          return false;
        } else {
          std::int32_t const begin = s.graph.target_begin[first + i];
          std::int32_t const after = s.graph.target_begin[first + i + 1];
          std::int64_t const demand = s.demand[first + i - s.first_replicated];
          if (!s.speed.equal_speeds) {
            take_off(s, begin, after);
            fill_by_speed(s, begin, after, demand);
            return false;
          }
          bool const is_left = after - begin > fill_few::most;
          if (!is_left) {
            fill_few{s}(begin, after - begin, demand);
          }
          return is_left;
        }
      });
      if (any_left) {
        index_t const first_target = graph.target_begin[first];
        fill_by_target{s}(team, first_target, graph.target_begin[end] - first_target);
      }
    }
  }

  /// Finishes exactly. Returns true if it reached the objective within the iteration limit.
  template <class Team>
  PLIMSOLL_HD bool finish(Team& team, split_state const& s, confinement& bound,
                          std::int64_t& work) const {
    exact_finish<Team> exact(team, {s, work, max_iterations}, bound);
    exact.run(lexicographic);
    bound = exact.bound;
    work = exact.flow.work;
    return exact.complete;
  }

  /// Returns true if the loads are within the tolerance of a bound. It tries the given bound and
  /// that of the ranks within the tolerance of the peak: the load that cannot move to other ranks.
  /// The better one stays in `bound`, and its ranks in the bottleneck set.
  template <class Team>
  PLIMSOLL_HD bool is_within(Team& team, split_state const& s, confinement& bound) const {
    index_t const ranks = graph.ranks;
    double const peak = team.max(ranks, [&s](index_t r) { return s.level_rounded_up(r); });
    if (peak <= multiply(bound.level(s.speed), add(1.0, tolerance))) {
      return true;
    }
    double const threshold = multiply(peak, add(1.0, -tolerance));
    std::int32_t* const inside = s.distance;  // free until the exact finish
    team.for_each(ranks, [=, &s](index_t r) { inside[r] = s.level(r) >= threshold; });
    index_t const first = s.first_replicated;
    // Only experts whose ranks are all inside cannot move load to other ranks.
    std::int64_t const confined =
        team.sum(maximum{}(ranks, s.replicated), [=, this, &s](index_t i) {
          std::int64_t sum = i < ranks && inside[i] != 0 ? s.fixed[i] : 0;
          if (i < s.replicated) {
            index_t const end = graph.target_begin[first + i + 1];
            index_t k = graph.target_begin[first + i];
            PLIMSOLL_NO_UNROLL
            while (k < end && inside[graph.target_rank[k]] != 0) {
              ++k;
            }
            sum += k == end ? s.demand[i] : 0;
          }
          return sum;
        });
    confinement const top{confined,
                          team.sum(ranks, [=, &s](index_t r) { return s.speed[r] * inside[r]; })};
    if (top.level(s.speed) > bound.level(s.speed)) {
      bound = top;
      team.for_each(ranks, [=](index_t r) { s.set[r] = inside[r]; });
    }
    return peak <= multiply(bound.level(s.speed), add(1.0, tolerance));
  }

  template <class Team>
  PLIMSOLL_HD void write(Team& team, split_state const& s, int shift, index_t layer) const {
    if (split.data != nullptr) {
      write_split(team, s, shift, layer);
    }
    if (bottleneck.data != nullptr) {
      team.for_each(graph.ranks, [=, this, &s](index_t r) {
        bottleneck(layer, r) = s.set[r] == 1 && s.speed.speed[r] > 0;
      });
    }
  }

  template <class Team>
  PLIMSOLL_HD void write_split(Team& team, split_state const& s, int shift, index_t layer) const {
    // For usual loads the unit is a normal number, and one product converts back.
    bool const usual = shift > -1000 && shift < 1000;
    double const unit = usual ? scale_by_power_of_two(1.0, -shift) : 1.0;
    team.for_each(graph.slots, [=, this](index_t slot) {
      std::int32_t const source = graph.slot_source[layer * graph.slots + slot];
      std::int32_t const copies = graph.slot_copies[layer * graph.slots + slot];
      // The only copy of an expert keeps its load as given, not rounded down to units.
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
  }
};

/// The loads of one step of a history, `[layers, experts]`.
template <class Loads>
struct loads_of_step {
  Loads loads;
  index_t step;

  PLIMSOLL_HD auto operator()(index_t layer, index_t expert) const {
    return loads(step, layer, expert);
  }
};

/// Returns the loads `[layers, experts]` of one step of a history.
template <class T>
PLIMSOLL_HD matrix_ref<T> step_of(tensor_ref<T> const& loads, index_t step) {
  matrix_ref<T> result(loads.data + step * loads.stride(0), loads.extent(1), loads.extent(2));
  result.strides[0] = loads.stride(1);
  result.strides[1] = loads.stride(2);
  return result;
}
template <class F>
PLIMSOLL_HD auto step_of(generated<F, 3> const& loads, index_t step) {
  return generated<loads_of_step<generated<F, 3>>, 2>{{loads, step},
                                                      {loads.extent(1), loads.extent(2)}};
}

/// Body that bounds the peaks of all steps of a history: `minmax_lp_body` for each, whose split is
/// not stored. Problem = step * layers + layer.
template <class Loads>
struct split_steps_body {
  using device_team = warp;

  Loads loads;  ///< `[steps, layers, experts]`
  minmax_lp_body<decltype(step_of(std::declval<Loads>(), index_t{}))> solve;  ///< of any step
  certificate* certificates;                                                  ///< `[steps, layers]`
  fault* faults = nullptr;  ///< `[steps, layers]` or null

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return solve.scratch_bytes(); }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layers = loads.extent(1);
    index_t const step = problem / layers;
    auto step_solver = solve;
    step_solver.loads = step_of(loads, step);
    step_solver.certificates = {certificates + step * layers, layers};
    step_solver.faults = faults == nullptr ? nullptr : faults + step * layers;
    step_solver(team, memory, problem - step * layers);
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `replay`: the balancedness of each step under several plans, one tile of steps at a
/// time.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Number of steps of one problem. Their loads are transposed into a tile `[experts, steps]`, in
/// which the loads of an expert in neighboring steps are contiguous: a core adds them in vector
/// registers, and a device with neighboring threads.
inline constexpr index_t replay_steps = 8;

PLIMSOLL_HD constexpr index_t replay_tiles(index_t steps) {
  return (steps + replay_steps - 1) / replay_steps;
}

/// Loads of a rank in `Width` neighboring steps.
template <index_t Width>
struct lanes {
  double value[static_cast<std::size_t>(Width)] = {};

  /// Adds load[i] / copies, the share of one replica, for every step i. Neither a quotient nor a
  /// loaded value is a product, so the compiler cannot contract it with the addition.
  PLIMSOLL_HD void add_share(double const* load, std::int32_t copies) {
    for (index_t i = 0; i < Width; ++i) {
      value[i] += copies == 1 ? load[i] : divide(load[i], static_cast<double>(copies));
    }
  }
  PLIMSOLL_HD void raise_to(lanes const& other) {
    for (index_t i = 0; i < Width; ++i) {
      value[i] = maximum{}(value[i], other.value[i]);
    }
  }
  PLIMSOLL_HD double operator[](index_t i) const { return value[i]; }
};

#if !defined(__CUDACC__)  // nvcc accepts no vector types in code that might run on a device
/// Loads of a rank in eight neighboring steps, in four vector registers. g++ 12 keeps an array of
/// eight in scalars, with which a replay takes 1.6 times as long.
template <>
struct lanes<8> {
  using pair = double __attribute__((vector_size(16)));
  pair a{}, b{}, c{}, d{};

  void add_share(double const* load, std::int32_t copies) {
    pair w{load[0], load[1]}, x{load[2], load[3]}, y{load[4], load[5]}, z{load[6], load[7]};
    if (copies != 1) {
      auto const divisor = static_cast<double>(copies);
      pair const both{divisor, divisor};
      w /= both, x /= both, y /= both, z /= both;
    }
    a += w, b += x, c += y, d += z;
  }
  void raise_to(lanes const& other) {
    a = a < other.a ? other.a : a;
    b = b < other.b ? other.b : b;
    c = c < other.c ? other.c : c;
    d = d < other.d ? other.d : d;
  }
  double operator[](index_t i) const {
    pair const half = i < 4 ? (i < 2 ? a : b) : (i < 6 ? c : d);
    return half[i % 2];
  }
};
#endif

/// Scratch of a tile of steps. Rows of `load` have `pitch` elements.
struct replay_arrays {
  scratch_ref memory;
  index_t experts;
  index_t pitch;
  index_t plans;
  index_t ranks;

  double* load = memory.take(experts * pitch);  ///< `[experts, pitch]`
  /// `[steps]`: mean load of the live ranks; -1 marks a refused step.
  double* mean = memory.take(replay_steps);
  double* ratio = memory.take(plans * replay_steps);  ///< `[plans, steps]`: balancedness
  /// `[plans, ranks + 1]`: first slot of each rank.
  std::int32_t* begin = memory.take(plans * (ranks + 1));
};

/// Body that sums balancedness. Problem = layer and tile of steps. Row `plan * layers + layer` of
/// the placements is that of one layer in one plan.
template <class Loads>
struct replay_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  vector_ref<std::uint8_t const> active;  ///< `[ranks]` or empty
  index_t plans;
  matrix_ref<double> sums;  ///< `[plans * layers, tiles]`: sum of balancedness over a tile's steps
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const most = padded_steps;  // the constant itself has no address on a device
    return bytes_taken_by<replay_arrays>(loads.extent(2), most, plans, ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    index_t const layers = loads.extent(1);
    index_t const layer = problem % layers;
    index_t const tile = problem / layers;
    index_t const first = tile * replay_steps;
    index_t const steps = minimum{}(replay_steps, loads.extent(0) - first);
    index_t const ends = ranges.ranks + 1;
    replay_arrays const arrays{memory, experts, pitch<Team>, plans, ranges.ranks};
    auto* const load = arrays.load;
    auto* const begin = arrays.begin;

    team.for_each(experts, [=, this](index_t e) {
      for (index_t step = 0; step < replay_steps; ++step) {
        // A tile that is not full repeats its last step, whose repetitions are not counted below.
        load[e * pitch<Team> + step] = value_of(first + minimum{}(step, steps - 1), layer, e);
      }
    });
    team.for_each(ends, [=, this](index_t r) {
      for (index_t plan = 0; plan < plans; ++plan) {
        // Invalid offsets of a placement must not lead out of bounds.
        index_t const at = ranges.begin(plan * layers + layer, r);
        begin[plan * ends + r] =
            static_cast<std::int32_t>(minimum{}(maximum{}(at, index_t{0}), ranges.slots));
      }
    });
    index_t const live = active.data == nullptr
                             ? ranges.ranks
                             : team.count(ranges.ranks, [this](index_t r) { return active[r]; });
    average_loads(team, arrays, live);
    problem_report const outcome = refuse(team, arrays.mean, first, steps, layer, live);
    team.single([=, this] { reports[problem] = outcome; });
    if (outcome.refused) {
      return;
    }

    compare_with_peaks(team, arrays, layer);
    auto const* const ratio = arrays.ratio;
    team.for_each(plans, [=, this](index_t plan) {
      double sum = 0;
      for (index_t step = 0; step < steps; ++step) {
        sum = add(sum, ratio[plan * replay_steps + step]);
      }
      sums(plan * layers + layer, tile) = sum;
    });
  }

 private:
  static constexpr index_t padded_steps = replay_steps + 1;
  /// Padded on a device, so that threads that write neighboring rows use different banks.
  template <class Team>
  static constexpr index_t pitch = Team::is_serial ? replay_steps : padded_steps;
  /// Number of steps per call of a function below.
  template <class Team>
  static constexpr index_t steps_per_call = Team::is_serial ? replay_steps : 1;

  [[nodiscard]] PLIMSOLL_HD double value_of(index_t step, index_t layer, index_t e) const {
    auto const value = static_cast<double>(loads(step, layer, e));
    if constexpr (is_generated<Loads>) {
      return rounded(value);  // a function may return a product, which must not be contracted
    } else {
      return value;
    }
  }

  /// Computes `mean` from `load`.
  template <class Team>
  PLIMSOLL_HD void average_loads(Team& team, replay_arrays const& arrays, index_t live) const {
    constexpr index_t width = steps_per_call<Team>;
    constexpr auto lanes_wide = static_cast<std::size_t>(width);  // g++ 12 fails on a cast below
    index_t const experts = loads.extent(2);
    auto const* const load = arrays.load;
    auto* const mean = arrays.mean;
    team.for_each(replay_steps / width, [=](index_t group) {
      double total[lanes_wide] = {};
      double least[lanes_wide] = {};
      for (index_t e = 0; e < experts; ++e) {
        double const* const w = load + e * pitch<Team> + group;
        for (index_t j = 0; j < width; ++j) {
          total[j] += w[j];
          least[j] = w[j] < least[j] ? w[j] : least[j];
        }
      }
      for (index_t j = 0; j < width; ++j) {
        // The total alone would not show a negative load; NaN fails the comparison with the limit.
        bool const good = least[j] >= 0 && total[j] < 0x1p47;
        mean[group + j] = good ? divide(total[j], static_cast<double>(live)) : -1.0;
      }
    });
  }

  /// Computes `ratio`, the balancedness of every plan and step, from `load` and `mean`.
  template <class Team>
  PLIMSOLL_HD void compare_with_peaks(Team& team, replay_arrays const& arrays,
                                      index_t layer) const {
    constexpr index_t width = steps_per_call<Team>;
    constexpr index_t groups = replay_steps / width;
    index_t const experts = loads.extent(2);
    index_t const layers = loads.extent(1);
    index_t const ends = ranges.ranks + 1;
    auto const* const load = arrays.load;
    auto const* const mean = arrays.mean;
    auto* const ratio = arrays.ratio;
    auto const* const begin = arrays.begin;
    team.for_each(plans * groups, [=, this](index_t i) {
      index_t const plan = i / groups;
      index_t const group = i % groups;
      index_t const row = plan * layers + layer;
      vector_ref<std::int32_t const> const expert_in = row_of(physical_to_logical, row);
      vector_ref<std::int32_t const> const copies_of = row_of(replica_count, row);
      std::int32_t const* const slots = begin + plan * ends;
      lanes<width> peak;
      for (index_t r = 0; r < ranges.ranks; ++r) {
        lanes<width> sum;
        for (index_t slot = slots[r]; slot < slots[r + 1]; ++slot) {
          index_t const e = expert_in[slot];
          if (e >= 0 && e < experts) {
            sum.add_share(load + e * pitch<Team> + group, copies_of[e]);
          }
        }
        peak.raise_to(sum);
      }
      for (index_t j = 0; j < width; ++j) {
        // If all sums are equal, the mean, rounded in another way, may exceed them.
        double const average = mean[group + j];
        double const largest = peak[j];
        ratio[plan * replay_steps + group + j] = average < largest ? divide(average, largest) : 1.0;
      }
    });
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, double const* mean, index_t first, index_t steps,
                                    index_t layer, index_t live) const {
    if (live == 0) {
      return refusal(fault_kind::no_rank);
    }
    index_t const bad =
        team.min(steps, [=](index_t step) { return mean[step] >= 0 ? steps : step; });
    if (bad == steps) {
      return problem_report{};
    }
    auto const load = [=, this](index_t e) { return loads(first + bad, layer, e); };
    problem_report outcome = scale_loads(team, loads.extent(2), load).report();
    if (!outcome.refused) {  // scale_loads rounds this total down to below the limit
      outcome = refusal(fault_kind::total_load, -1, 0x1p47);
    }
    outcome.refused.also = first + bad;
    return outcome;
  }
};

/// Body that computes the mean over all steps. Problem = row of a placement.
struct replay_mean_body {
  using device_team = warp;

  matrix_ref<double const> sums;
  index_t steps;
  index_t layers;
  matrix_ref<double> out;  ///< `[plans, layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t row) const {
    double const sum =
        team.sum_ordered(sums.extent(1), [this, row](index_t tile) { return sums(row, tile); });
    team.single(
        [=, this] { out(row / layers, row % layers) = divide(sum, static_cast<double>(steps)); });
  }
};

/// Divides the mean load of live ranks in every step by the peak of an optimal split, under one
/// plan. Problem = step * layers + layer.
template <class Loads>
struct split_balance_body {
  using device_team = warp;

  Loads loads;                      ///< `[steps, layers, experts]`
  double live;                      ///< number of live ranks
  certificate const* peaks;         ///< `[steps, layers]`
  index_t first_row;                ///< of the plan in `balancedness`
  matrix_ref<double> balancedness;  ///< `[plans * layers, steps]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const step = problem / loads.extent(1);
    index_t const layer = problem % loads.extent(1);
    double const total = team.sum_ordered(loads.extent(2), [this, step, layer](index_t e) {
      return static_cast<double>(loads(step, layer, e));
    });
    team.single([=, this] {
      // The peak is rounded up, so that this is at most 1.
      balancedness(first_row + layer, step) =
          total > 0 ? divide(divide(total, live), peaks[problem].value) : 1.0;
    });
  }
};

}}}  // namespace plimsoll::detail

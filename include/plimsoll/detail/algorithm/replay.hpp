// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `replay`: the balancedness of each step under several plans, one tile of steps at a
/// time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/step_tiles.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Number of steps of a tile, whose balancedness is one sum and whose loads are refused together.
inline constexpr index_t replay_steps = 8;

PLIMSOLL_HD constexpr index_t replay_tiles(index_t steps) {
  return (steps + replay_steps - 1) / replay_steps;
}

/// Number of steps of one problem: the lanes of a warp. A device replays them at once, with one
/// thread per step, so that the threads of a warp see the same slots; a core, one tile after the
/// other.
inline constexpr index_t replay_lanes = 4 * replay_steps;
/// A device divides the ranks of a plan into this number of parts, one for each warp.
inline constexpr index_t replay_parts = 8;

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

/// Replica in a slot, prepared for a device, which visits it in many steps. A slot without expert
/// has a share of zero of some load.
template <class Load>
struct alignas(16) prepared_replica {
  reciprocal share = {};       ///< of the number of the expert's replicas
  Load const* load = nullptr;  ///< of the expert, in every step
  std::int32_t copies = 0;     ///< number of the expert's replicas

  /// Returns the replica's load in a step.
  [[nodiscard]] PLIMSOLL_HD double in_step(std::int32_t step) const {
    auto const x = static_cast<double>(load[step]);
    if constexpr (sizeof(Load) > 4) {
      if (x > 0 && x < reciprocal::least && copies != 0) {
        return divide(x, static_cast<double>(copies));
      }
    }
    return share.times(x);
  }
};

/// Scratch of a problem.
template <class Load>
struct replay_arrays {
  scratch_ref memory;
  index_t load_bytes;
  index_t plans;
  index_t slots;
  index_t ranks;

  std::byte* load = memory.take(load_bytes);  ///< `[experts, pitch]`: loads in some steps
  /// `[steps]`: mean load of the live ranks; -1 marks a refused step.
  double* mean = memory.take(replay_lanes);
  double* ratio = memory.take(plans * replay_lanes);  ///< `[plans, steps]`: balancedness
  /// `[plans, ranks + 1]`: first slot of each rank.
  std::int32_t* begin = memory.take(plans * (ranks + 1));
  double* peak = memory.take(replay_parts * replay_lanes);  ///< `[parts, steps]`, of one plan
  prepared_replica<Load>* replica = memory.take(slots);     ///< of one plan, on a device
};

/// Body that sums balancedness. Problem = layer and steps. Row `plan * layers + layer` of the
/// placements is that of one layer in one plan.
template <class Loads>
struct replay_body {
  using device_team = block<static_cast<int>(replay_parts* replay_lanes)>;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  vector_ref<std::uint8_t const> active;  ///< `[ranks]` or empty
  index_t plans;
  matrix_ref<double> sums;  ///< `[plans * layers, tiles]`: sum of balancedness over a tile's steps
  problem_report* reports;  ///< `[tiles, layers]`

  [[nodiscard]] PLIMSOLL_HD index_t problems() const {
    return (loads.extent(0) + replay_lanes - 1) / replay_lanes * loads.extent(1);
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays_of>(load_bytes(), plans, ranges.slots, ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layers = loads.extent(1);
    index_t const layer = problem % layers;
    index_t const first = problem / layers * replay_lanes;
    index_t const last = minimum{}(first + replay_lanes, loads.extent(0));
    index_t const ends = ranges.ranks + 1;
    arrays_of const arrays{memory, load_bytes(), plans, ranges.slots, ranges.ranks};
    auto* const begin = arrays.begin;
    team.for_each(ends, [=, this](index_t r) {
      for (index_t plan = 0; plan < plans; ++plan) {
        // Invalid offsets of a placement must not lead out of bounds.
        index_t const first_slot = ranges.begin(plan * layers + layer, r);
        begin[plan * ends + r] =
            static_cast<std::int32_t>(minimum{}(maximum{}(first_slot, index_t{0}), ranges.slots));
      }
    });
    index_t const live = active.data == nullptr
                             ? ranges.ranks
                             : team.count(ranges.ranks, [this](index_t r) { return active[r]; });
    constexpr index_t width = at_once<Team>;
    for (index_t step = first; step < last; step += width) {
      replay_some(team, arrays, {layer, step, minimum{}(step + width, last)}, live);
    }
  }

 private:
  using load_type = view_value_t<Loads>;

  /// Number of steps that a team replays at once.
  template <class Team>
  static constexpr index_t at_once = Team::is_serial ? replay_steps : replay_lanes;
  /// Length of the rows of `load`. Padded on a device, so that threads that write neighboring rows
  /// use different banks.
  template <class Team>
  static constexpr index_t pitch = Team::is_serial ? replay_steps : replay_lanes + 1;
  /// Number of steps per call of a function below.
  template <class Team>
  static constexpr index_t steps_per_call = Team::is_serial ? replay_steps : 1;
  template <class Team>
  static constexpr index_t parts = Team::is_serial ? 1 : replay_parts;

  /// Type of loads in scratch. A core converts each once. On a device, the loads of more problems
  /// fit a multiprocessor if they are narrow.
  using narrow_load = std::conditional_t<(sizeof(load_type) > 4), double, load_type>;
  template <class Team>
  using kept_load = std::conditional_t<Team::is_serial, double, narrow_load>;
  using arrays_of = replay_arrays<narrow_load>;

  [[nodiscard]] PLIMSOLL_HD index_t load_bytes() const {
    return loads.extent(2) * (replay_lanes + 1) * index_t{sizeof(narrow_load)};
  }

  template <class Team>
  PLIMSOLL_HD void replay_some(Team& team, arrays_of const& arrays, step_tile const& some,
                               index_t live) const {
    index_t const experts = loads.extent(2);
    index_t const steps = some.last - some.first;
    index_t const tiles = replay_tiles(steps);
    using kept = kept_load<Team>;
    auto* const load = reinterpret_cast<kept*>(arrays.load);
    team.for_each(experts, [=, this](index_t e) {
      PLIMSOLL_NO_UNROLL
      for (index_t tile = 0; tile < at_once<Team>; tile += replay_steps) {
        for (index_t step = tile; step < tile + replay_steps; ++step) {
          // Steps that a tile lacks repeat the last step, and are not counted below.
          load[e * pitch<Team> + step] =
              value_of<kept>(some.first + minimum{}(step, steps - 1), some.layer, e);
        }
      }
    });
    average_loads(team, load, live, arrays.mean);
    report(team, some, arrays.mean, live);
    for (index_t plan = 0; plan < plans; ++plan) {
      compare_with_peaks(team, arrays, load, plan, some.layer);
    }
    auto const* const ratio = arrays.ratio;
    team.for_each(plans * tiles, [=, this](index_t i) {
      index_t const plan = i / tiles;
      index_t const tile = i % tiles;
      double sum = 0;
      for (index_t step = tile * replay_steps; step < minimum{}((tile + 1) * replay_steps, steps);
           ++step) {
        sum = add(sum, ratio[plan * replay_lanes + step]);
      }
      sums(plan * loads.extent(1) + some.layer, some.first / replay_steps + tile) = sum;
    });
  }

  template <class T>
  [[nodiscard]] PLIMSOLL_HD T value_of(index_t step, index_t layer, index_t e) const {
    auto const value = static_cast<T>(loads(step, layer, e));
    if constexpr (is_generated<Loads> && std::floating_point<T>) {
      return rounded(value);  // a function may return a product, which must not be contracted
    } else {
      return value;
    }
  }

  /// Computes `mean` from `load`.
  template <class Team, class T>
  PLIMSOLL_HD void average_loads(Team& team, T const* load, index_t live, double* mean) const {
    constexpr index_t width = steps_per_call<Team>;
    constexpr auto lanes_wide = static_cast<std::size_t>(width);  // g++ 12 fails on a cast below
    index_t const experts = loads.extent(2);
    team.for_each(at_once<Team> / width, [=](index_t group) {
      double total[lanes_wide] = {};
      T least[lanes_wide] = {};
      for (index_t e = 0; e < experts; ++e) {
        T const* const w = load + e * pitch<Team> + group;
        for (index_t j = 0; j < width; ++j) {
          total[j] += static_cast<double>(w[j]);
          least[j] = w[j] < least[j] ? w[j] : least[j];
        }
      }
      for (index_t j = 0; j < width; ++j) {
        // The total alone would not show a negative load; NaN fails the comparison with the limit.
        bool const good = static_cast<double>(least[j]) >= 0 && total[j] < 0x1p47;
        mean[group + j] = good ? divide(total[j], static_cast<double>(live)) : -1.0;
      }
    });
  }

  /// Computes a row of `ratio`, the balancedness of a plan in every step, from `load` and `mean`.
  template <class Team, class T>
  PLIMSOLL_HD void compare_with_peaks(Team& team, arrays_of const& arrays, T const* load,
                                      index_t plan, index_t layer) const {
    index_t const row = plan * loads.extent(1) + layer;
    std::int32_t const* const begin = arrays.begin + plan * (ranges.ranks + 1);
    if constexpr (Team::is_serial) {
      find_peaks(load, row, begin, arrays.peak);
    } else {
      find_peaks(team, arrays, load, row, begin);
    }
    auto const* const mean = arrays.mean;
    auto const* const peak = arrays.peak;
    auto* const ratio = arrays.ratio + plan * replay_lanes;
    team.for_each(at_once<Team>, [=](index_t step) {
      double largest = 0;
      for (index_t part = 0; part < parts<Team>; ++part) {
        largest = maximum{}(largest, peak[part * replay_lanes + step]);
      }
      // If all sums are equal, the mean, rounded in another way, may exceed them.
      double const average = mean[step];
      ratio[step] = average < largest ? divide(average, largest) : 1.0;
    });
  }

  /// Computes `peak` of a plan in the steps of a tile.
  PLIMSOLL_HD void find_peaks(double const* load, index_t row, std::int32_t const* begin,
                              double* peak) const {
    vector_ref<std::int32_t const> const expert_in = row_of(physical_to_logical, row);
    vector_ref<std::int32_t const> const copies_of = row_of(replica_count, row);
    lanes<replay_steps> largest;
    for (index_t r = 0; r < ranges.ranks; ++r) {
      lanes<replay_steps> sum;
      for (index_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
        index_t const e = expert_in[slot];
        if (e >= 0 && e < loads.extent(2)) {
          sum.add_share(load + e * replay_steps, copies_of[e]);
        }
      }
      largest.raise_to(sum);
    }
    for (index_t step = 0; step < replay_steps; ++step) {
      peak[step] = largest[step];
    }
  }

  /// Computes `peak` of every part of the ranks with a team of threads. All threads visit the same
  /// replicas, so they are looked up once.
  template <class Team, class T>
  PLIMSOLL_HD void find_peaks(Team& team, arrays_of const& arrays, T const* load, index_t row,
                              std::int32_t const* begin) const {
    auto* const replica_in = arrays.replica;
    auto* const peak = arrays.peak;
    auto const experts = static_cast<std::int32_t>(loads.extent(2));
    auto const* const last = begin + ranges.ranks;
    team.for_each(ranges.slots, [=, this](index_t slot) {
      std::int32_t const e = physical_to_logical(row, slot);
      prepared_replica<T> replica{.load = load};
      if (e >= 0 && e < experts) {
        std::int32_t const copies = replica_count(row, e);
        replica = {reciprocal(copies), load + e * pitch<Team>, copies};
      }
      replica_in[slot] = replica;
    });
    team.for_each(replay_parts * replay_lanes, [=](index_t i) {
      auto const step = static_cast<std::int32_t>(i % replay_lanes);
      double largest = 0;
      for (auto const* slots = begin + i / replay_lanes; slots < last; slots += replay_parts) {
        double sum = 0;
        PLIMSOLL_UNROLL(4)
        for (std::int32_t slot = slots[0]; slot < slots[1]; ++slot) {
          prepared_replica<T> const replica = replica_in[slot];  // one wide read
          sum = add(sum, replica.in_step(step));
        }
        largest = maximum{}(largest, sum);
      }
      peak[i] = largest;
    });
  }

  /// Writes the reports of all tiles. Of a tile with refused loads, it names the first step.
  template <class Team>
  PLIMSOLL_HD void report(Team& team, step_tile const& some, double const* mean,
                          index_t live) const {
    index_t const layers = loads.extent(1);
    index_t const steps = some.last - some.first;
    problem_report* const first = reports + some.first / replay_steps * layers + some.layer;
    problem_report const usual = live == 0 ? refusal(fault_kind::no_rank) : problem_report{};
    team.for_each(replay_tiles(steps), [=](index_t tile) { first[tile * layers] = usual; });
    auto const is_bad = [=](index_t step) { return live > 0 && !(mean[step] >= 0); };
    index_t bad = team.find(0, steps, is_bad);
    while (bad < steps) {
      auto const load = [=, this](index_t e) { return loads(some.first + bad, some.layer, e); };
      problem_report outcome = scale_loads(team, loads.extent(2), load).report();
      if (!outcome.refused) {  // scale_loads rounds this total down to below the limit
        outcome = refusal(fault_kind::total_load, -1, 0x1p47);
      }
      outcome.refused.also = some.first + bad;
      index_t const tile = bad / replay_steps;
      team.single([=] { first[tile * layers] = outcome; });
      bad = team.find(minimum{}((tile + 1) * replay_steps, steps), steps, is_bad);
    }
  }
};

}}}  // namespace plimsoll::detail

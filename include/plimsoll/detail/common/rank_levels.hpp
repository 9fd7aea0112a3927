// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts between tokens and completion times of ranks of any speed, in integers.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Speeds of ranks as integers. The unit is a power of two that is at most 2^-44 of the fastest
/// live rank's speed and more than 2^-46 of it. Speeds are rounded up, so that a lower bound
/// computed from them never exceeds the bound from the given speeds. Sums over all ranks stay below
/// 2^60.
struct speed_units {
  double const* speed;  ///< `[ranks]`, as given; 0: dead
  double per_unit;      ///< a power of two: units in a speed of 1
  bool equal_speeds;    ///< live ranks have the same speed and count as 1

  /// Returns the units of a rank: 1 to 2^45; 0 for a dead rank.
  PLIMSOLL_HD std::int64_t operator[](index_t r) const {
    if (equal_speeds) {
      return speed[r] > 0;
    }
    double const exact = multiply(speed[r], per_unit);
    auto const whole = static_cast<std::int64_t>(exact);
    return whole + (static_cast<double>(whole) < exact);
  }
};

/// Holds the figures that are derived from the liveness and the speeds of all ranks.
struct rank_numbers {
  double per_unit;            ///< of `speed_units`
  double fastest;             ///< the highest speed of a live rank
  std::int64_t live;          ///< the number of live ranks
  std::int64_t equal_speeds;  ///< of `speed_units`

  [[nodiscard]] PLIMSOLL_HD speed_units units(double const* speed) const {
    return {speed, per_unit, equal_speeds != 0};
  }
};

/// The liveness and the speeds that ranks get, or none if they keep those that they have.
struct rank_input {
  bool keeps;                             ///< nothing changes
  vector_ref<std::uint8_t const> active;  ///< `[ranks]` or empty
  vector_ref<double const> speeds;        ///< `[ranks]` or empty

  [[nodiscard]] PLIMSOLL_HD bool lives(index_t r) const {
    return active.data == nullptr || active[r] != 0;
  }
  /// Refuses speeds out of range, and ranks that are all dead.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, index_t ranks) const {
    if (!keeps && !team.any(ranks, [this](index_t r) { return lives(r); })) {
      return refusal(fault_kind::no_rank);
    }
    return keeps || speeds.data == nullptr
               ? problem_report{}
               : topology::refuse_speeds(team, speeds, ranks,
                                         [this](index_t r) { return lives(r); });
  }
  /// Writes the speeds of all ranks, 0 for dead ones, and returns what follows from them.
  template <class Team>
  PLIMSOLL_HD rank_numbers write(Team& team, index_t ranks, double* speed) const {
    if (!keeps) {
      team.for_each(ranks, [=, this](index_t r) {
        speed[r] = !lives(r) ? 0.0 : speeds.data == nullptr ? 1.0 : speeds[r];
      });
    }
    double const fastest = team.max(ranks, [=](index_t r) { return speed[r]; });
    auto const live = team.count(ranks, [=](index_t r) { return speed[r] > 0; });
    bool const equal =
        !team.any(ranks, [=](index_t r) { return speed[r] > 0 && speed[r] < fastest; });
    // The power of two that takes the fastest speed to 45 bits. It is a normal number, as speeds
    // are from 2^-64 to 2^64.
    std::uint64_t const exponent = bits_of(fastest) >> 52;
    double const per_unit = double_of((std::uint64_t{2 * 1023 + 44} - exponent) << 52);
    return {equal ? 1.0 : per_unit, fastest, live, equal};
  }
};

/// Ranks, their speeds, and the levels (completion times) of loads on them. The numbers are in the
/// memory of the policy, where an update changes them.
///
/// A level is a time. If speeds are equal, it counts tokens; else it counts steps of 2^-16 of the
/// time of a token on a rank of 2^44 units, whose speed is at least half of the fastest rank's and
/// at most equal to it.
struct rank_levels {
  topology where;        ///< ranks and nodes
  double const* speeds;  ///< `[ranks]`, as given; 0: dead
  rank_numbers const* numbers;

  PLIMSOLL_HD index_t size() const { return where.ranks(); }
  PLIMSOLL_HD bool lives(index_t r) const { return speeds[r] > 0; }
  PLIMSOLL_HD index_t live() const { return numbers->live; }
  PLIMSOLL_HD double fastest() const { return numbers->fastest; }
  PLIMSOLL_HD speed_units speed() const { return numbers->units(speeds); }

  /// Returns the tokens that a rank can compute by a level.
  PLIMSOLL_HD std::int64_t room_below(std::int64_t level, index_t r) const {
    speed_units const speed = this->speed();
    std::int64_t const units = speed[r];
    if (speed.equal_speeds) {
      return level * units;
    }
    std::uint64_t const low = static_cast<std::uint64_t>(level) * static_cast<std::uint64_t>(units);
    std::uint64_t const high =
        multiply_high(static_cast<std::uint64_t>(level), static_cast<std::uint64_t>(units));
    return static_cast<std::int64_t>(high << (64 - level_bits) | low >> level_bits);
  }
  /// Returns the lowest level by which a rank can compute the tokens, at most 2^31 - 1.
  PLIMSOLL_HD std::int64_t level_of(std::int64_t tokens, index_t r) const {
    speed_units const speed = this->speed();
    return speed.equal_speeds ? tokens : multiply_divide(tokens, one, speed[r], speed[r] - 1);
  }
  /// Returns the level of ranks with a total speed of `units`; rounded up if speeds are equal, else
  /// down.
  PLIMSOLL_HD std::int64_t mean_level(std::int64_t tokens, std::int64_t units) const {
    return speed().equal_speeds ? (tokens + units - 1) / units
                                : multiply_divide(tokens, one, units);
  }
  /// Returns the tokens that a rank of 2^44 units computes in the same time, rounded down; `tokens`
  /// if speeds are equal.
  PLIMSOLL_HD std::int64_t height_of(std::int64_t tokens, index_t r) const {
    speed_units const speed = this->speed();
    return speed.equal_speeds ? tokens : multiply_divide(tokens, std::int64_t{1} << 44, speed[r]);
  }
  /// Returns a level in tokens of a rank of speed 1.
  PLIMSOLL_HD double time_at(std::int64_t level) const {
    auto const whole = static_cast<double>(level);
    if (numbers->equal_speeds != 0) {
      double const speed = fastest();
      return speed == 1 ? whole : divide(whole, speed);  // a division takes long
    }
    return multiply(scale_by_power_of_two(whole, -level_bits), numbers->per_unit);
  }
  /// Returns the time of a rank for the tokens, in tokens of a rank of speed 1; 0 for a dead rank.
  PLIMSOLL_HD double time_of(std::int64_t tokens, index_t r) const {
    return lives(r) ? divide(static_cast<double>(tokens), speeds[r]) : 0.0;
  }
  /// Returns a level divided by the time in which ranks of `units` together compute the tokens.
  PLIMSOLL_HD double over_mean(std::int64_t level, std::int64_t units, std::int64_t tokens) const {
    return divide(multiply(static_cast<double>(level), static_cast<double>(units)),
                  scale_by_power_of_two(static_cast<double>(tokens),
                                        numbers->equal_speeds != 0 ? 0 : level_bits));
  }

  template <class Team>
  PLIMSOLL_HD std::int64_t total_speed(Team& team) const {
    speed_units const units = speed();
    return units.equal_speeds ? live() : team.sum(size(), [units](index_t r) { return units[r]; });
  }

  /// Returns the lowest level by which all ranks together can compute the tokens, fewer than 2^47.
  template <class Team>
  PLIMSOLL_HD std::int64_t level_for(Team& team, std::int64_t tokens) const {
    std::int64_t const units = total_speed(team);
    std::int64_t low = mean_level(tokens, units);
    if (numbers->equal_speeds != 0) {
      return low;
    }
    // Rounding down loses less than one token per rank.
    std::int64_t high = mean_level(tokens + size(), units) + 1;
    while (low < high) {
      std::int64_t const middle = low + (high - low) / 2;
      auto const room = team.sum(size(), [=, this](index_t r) { return room_below(middle, r); });
      if (room >= tokens) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  static constexpr int level_bits = 60;
  static constexpr std::int64_t one = std::int64_t{1} << level_bits;
};

}}}  // namespace plimsoll::detail

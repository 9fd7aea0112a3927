// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts between tokens and completion times of ranks of any speed, in integers.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/types.hpp>

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

/// Ranks, their speeds, and the levels (completion times) of loads on them.
///
/// A level is a time. If speeds are equal, it counts tokens; else it counts steps of 2^-16 of the
/// time of a token on a rank of 2^44 units, whose speed is at least half of the fastest rank's and
/// at most equal to it.
struct rank_levels {
  topology where;  ///< ranks and nodes
  index_t live;
  speed_units speed;  ///< `[ranks]`
  double fastest;     ///< the highest speed of a live rank

  PLIMSOLL_HD index_t size() const { return where.ranks(); }
  PLIMSOLL_HD bool lives(index_t r) const { return speed.speed[r] > 0; }

  /// Returns the tokens that a rank can compute by a level.
  PLIMSOLL_HD std::int64_t room_below(std::int64_t level, index_t r) const {
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
    return speed.equal_speeds ? tokens : multiply_divide(tokens, one, speed[r], speed[r] - 1);
  }
  /// Returns the level of ranks with a total speed of `units`; rounded up if speeds are equal, else
  /// down.
  PLIMSOLL_HD std::int64_t mean_level(std::int64_t tokens, std::int64_t units) const {
    return speed.equal_speeds ? (tokens + units - 1) / units : multiply_divide(tokens, one, units);
  }
  /// Returns the tokens that a rank of 2^44 units computes in the same time, rounded down; `tokens`
  /// if speeds are equal.
  PLIMSOLL_HD std::int64_t height_of(std::int64_t tokens, index_t r) const {
    return speed.equal_speeds ? tokens : multiply_divide(tokens, std::int64_t{1} << 44, speed[r]);
  }
  /// Returns a level in tokens of a rank of speed 1.
  PLIMSOLL_HD double time_at(std::int64_t level) const {
    auto const whole = static_cast<double>(level);
    return speed.equal_speeds ? divide(whole, fastest)
                              : multiply(scale_by_power_of_two(whole, -level_bits), speed.per_unit);
  }
  /// Returns the time of a rank for the tokens, in tokens of a rank of speed 1; 0 for a dead rank.
  PLIMSOLL_HD double time_of(std::int64_t tokens, index_t r) const {
    return lives(r) ? divide(static_cast<double>(tokens), speed.speed[r]) : 0.0;
  }
  /// Returns a level divided by the time in which ranks of `units` together compute the tokens.
  PLIMSOLL_HD double over_mean(std::int64_t level, std::int64_t units, std::int64_t tokens) const {
    return divide(
        multiply(static_cast<double>(level), static_cast<double>(units)),
        scale_by_power_of_two(static_cast<double>(tokens), speed.equal_speeds ? 0 : level_bits));
  }

  template <class Team>
  PLIMSOLL_HD std::int64_t total_speed(Team& team) const {
    return speed.equal_speeds ? live : team.sum(size(), [this](index_t r) { return speed[r]; });
  }

  /// Returns the lowest level by which all ranks together can compute the tokens, fewer than 2^47.
  template <class Team>
  PLIMSOLL_HD std::int64_t level_for(Team& team, std::int64_t tokens) const {
    std::int64_t const units = total_speed(team);
    std::int64_t low = mean_level(tokens, units);
    if (speed.equal_speeds) {
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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// How high whole tokens stand on ranks of any speed, in integers.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Ranks, their speeds, and how high loads stand on them.
struct rank_levels {
  topology where;  ///< ranks and nodes
  index_t living;
  std::int32_t const* speed;  ///< `[ranks]`, as `rank_speeds` has them
  double unit;
  bool even;

  PLIMSOLL_HD index_t size() const { return where.ranks(); }
  PLIMSOLL_HD bool lives(index_t r) const { return speed[r] > 0; }

  /// A level is a time: in tokens where ranks are alike, else in 2^-16 of what a token takes the
  /// fastest rank. What a rank has room for below a level, and the lowest level that has room for
  /// so many tokens.
  PLIMSOLL_HD std::int64_t room_below(std::int64_t level, index_t r) const {
    if (even) {
      return level * speed[r];
    }
    constexpr std::int64_t fraction = (std::int64_t{1} << 32) - 1;
    return (level >> 32) * speed[r] + ((level & fraction) * speed[r] >> 32);
  }
  PLIMSOLL_HD std::int64_t level_of(std::int64_t tokens, index_t r) const {
    return even ? tokens : ((tokens << 32) + speed[r] - 1) / speed[r];
  }
  /// In tokens of a rank of speed 1.
  PLIMSOLL_HD double time_at(std::int64_t level) const {
    return divide(scale_by_power_of_two(static_cast<double>(level), even ? 0 : -32), unit);
  }
  PLIMSOLL_HD double time_of(std::int64_t tokens, index_t r) const {
    return lives(r)
               ? divide(static_cast<double>(tokens), multiply(unit, static_cast<double>(speed[r])))
               : 0.0;
  }

  template <class Team>
  PLIMSOLL_HD std::int64_t total_speed(Team& team) const {
    return team.sum(size(), [this](index_t r) { return std::int64_t{speed[r]}; });
  }

  /// The lowest level below which there is room for so many tokens.
  template <class Team>
  PLIMSOLL_HD std::int64_t level_for(Team& team, std::int64_t tokens) const {
    std::int64_t const speeds = total_speed(team);
    if (even) {
      return (tokens + speeds - 1) / speeds;
    }
    // Rounding down takes less than a token of every rank.
    auto const filled_by = [speeds](std::int64_t load) {
      return ((load / speeds) << 32) + ((load % speeds) << 32) / speeds;
    };
    std::int64_t low = filled_by(tokens);
    std::int64_t high = filled_by(tokens + size()) + 1;
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
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

// SPDX-License-Identifier: Apache-2.0
// A planning problem, its best plan by exhaustive search, and exact checks of certificates against
// it.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "draws.hpp"

namespace plimsoll_test::certificates_support {

using plimsoll::certificate;
using plimsoll::certificate_status;
using ints = std::vector<std::int32_t>;
using reals = std::vector<double>;

__extension__ using int128 = __int128;

/// Cost of a rank: load in units of 2^-20 / 60, over an integer speed.
struct fraction {
  int128 load = 0;
  int128 speed = 1;
  bool operator<(fraction const& other) const { return load * other.speed < other.load * speed; }
  bool operator==(fraction const& other) const { return load * other.speed == other.load * speed; }
};

/// Returns x * factor, rounded up or down to a whole number; |result| must be below 2^120.
inline int128 scaled(double x, int128 factor, bool up) {
  int exponent = 0;
  auto const mantissa = static_cast<int128>(std::ldexp(std::frexp(x, &exponent), 53)) * factor;
  exponent -= 53;
  if (exponent >= 0) {
    return mantissa << exponent;
  }
  if (exponent < -120) {
    return up && mantissa > 0 ? 1 : 0;
  }
  int128 const below = mantissa >> -exponent;
  return below + (up && (below << -exponent) != mantissa ? 1 : 0);
}

/// Speeds are whole multiples of this unit.
constexpr double speed_unit = 0x1p-16;

inline bool at_most(double x, fraction const& y) {
  // x <= load * 2^-20 / 60 / (speed * 2^-16)
  return scaled(x, y.speed * 60 * 16, true) <= y.load;
}

struct certified_case {
  ints copies;
  reals loads;                      ///< multiples of 2^-20
  std::vector<std::int64_t> speed;  ///< `[ranks]`, in 2^-16
  reals speeds;
  std::vector<std::uint8_t> active;
  ints room;  ///< `[ranks]`
  std::int64_t slots = 0;
  bool has_speeds = false;

  explicit certified_case(std::uint64_t seed) {
    draws draw(seed);
    auto const experts = static_cast<std::size_t>(draw.among(1, 4));
    auto const ranks = static_cast<std::size_t>(draw.among(1, 3));
    slots = std::max<std::int64_t>(draw.among(static_cast<std::int64_t>(experts), 6), 1);
    int const width = draw.any({0, 10, 40});
    int const lift = draw.any({-20, -10, 0});
    for (std::size_t e = 0; e < experts; ++e) {
      double const load =
          std::ldexp(static_cast<double>(draw.among(0, draw.any({3, 1000, 1 << 20}))),
                     lift + draw.among(0, width) / 2);
      loads.push_back(std::floor(load * 0x1p20) * 0x1p-20);
    }
    if (draw.one_in(3)) {  // one load is so large that the others are below a fixed-point unit
      for (double& load : loads) {
        load = static_cast<double>(draw.among(1, 1 << 18)) * 0x1p-20;
      }
      loads[static_cast<std::size_t>(draw.among(0, static_cast<std::int64_t>(experts) - 1))] =
          0x1p45;
    }
    has_speeds = draw.one_in(2);
    for (std::size_t r = 0; r < ranks; ++r) {
      speed.push_back(!has_speeds ? 1 << 16
                                  : draw.any({1 << 16, 1 << 15, 1, 3, 40000, 65535, 50000}));
      speeds.push_back(static_cast<double>(speed.back()) * speed_unit);
      active.push_back(ranks > 1 && draw.one_in(6) ? 0 : 1);
    }
    if (std::count(active.begin(), active.end(), 1) == 0) {
      active[0] = 1;
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const at = [&](std::size_t i) {
        return static_cast<std::int64_t>(i) * slots / static_cast<std::int64_t>(ranks);
      };
      room.push_back(active[r] != 0 ? static_cast<std::int32_t>(at(r + 1) - at(r)) : 0);
    }
    std::int64_t left = -static_cast<std::int64_t>(experts);
    for (std::int32_t const places : room) {
      left += places;
    }
    is_legal = left >= 0;
    copies.assign(experts, 1);
    for (; left > 0 && !draw.one_in(4); --left) {
      auto const e =
          static_cast<std::size_t>(draw.among(0, static_cast<std::int64_t>(experts) - 1));
      copies[e] += copies[e] < 5 ? 1 : 0;
    }
  }
  bool is_legal = true;

  [[nodiscard]] plimsoll::index_t experts() const { return std::ssize(loads); }
  [[nodiscard]] plimsoll::placement_options options() const {
    plimsoll::placement_options result{.on = {.ranks = std::ssize(speed)}};
    result.on.active = active;
    if (has_speeds) {
      result.on.speeds = speeds;
    }
    return result;
  }
  [[nodiscard]] int128 weight(std::size_t e, std::int32_t of) const {
    return static_cast<int128>(loads[e] * 0x1p20) * 60 / of;
  }
  [[nodiscard]] fraction peak_of(ints const& map) const {
    ints counts(loads.size(), 0);
    for (std::int32_t const e : map) {
      counts[static_cast<std::size_t>(std::max(e, 0))] += e >= 0 ? 1 : 0;
    }
    fraction peak;
    for (std::size_t r = 0; r < speed.size(); ++r) {
      fraction cost{0, speed[r]};
      for (std::int64_t s = static_cast<std::int64_t>(r) * slots / std::ssize(speed);
           s < static_cast<std::int64_t>(r + 1) * slots / std::ssize(speed); ++s) {
        std::int32_t const e = map[static_cast<std::size_t>(s)];
        cost.load +=
            e < 0 ? 0 : weight(static_cast<std::size_t>(e), counts[static_cast<std::size_t>(e)]);
      }
      peak = std::max(peak, cost);
    }
    return peak;
  }
  /// Returns the lowest peak of all placements with these replica counts.
  [[nodiscard]] fraction best(ints const& counts) const {
    std::vector<int128> items;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      items.insert(items.end(), static_cast<std::size_t>(counts[e]), weight(e, counts[e]));
    }
    fraction lowest{std::numeric_limits<std::int64_t>::max(), 1};
    lowest.load <<= 30;
    std::vector<int128> carried(speed.size(), 0);
    ints free = room;
    std::function<void(std::size_t, fraction)> const put = [&](std::size_t i, fraction peak) {
      if (!(peak < lowest)) {
        return;
      }
      if (i == items.size()) {
        lowest = peak;
        return;
      }
      for (std::size_t r = 0; r < speed.size(); ++r) {
        if (free[r] > 0) {
          --free[r];
          carried[r] += items[i];
          put(i + 1, std::max(peak, fraction{carried[r], speed[r]}));
          carried[r] -= items[i];
          ++free[r];
        }
      }
    };
    put(0, {});
    return lowest;
  }
  /// Returns the lowest peak of all placements with up to 5 replicas of an expert.
  [[nodiscard]] fraction best_of_any() const {
    fraction lowest{std::numeric_limits<std::int64_t>::max(), 1};
    lowest.load <<= 30;
    std::int64_t places = 0;
    for (std::int32_t const n : room) {
      places += n;
    }
    ints counts(loads.size(), 1);
    std::function<void(std::size_t, std::int64_t)> const choose = [&](std::size_t e,
                                                                      std::int64_t left) {
      if (e == counts.size()) {
        lowest = std::min(lowest, best(counts));
        return;
      }
      for (counts[e] = 1; counts[e] <= std::min<std::int64_t>(left + 1, 5); ++counts[e]) {
        choose(e + 1, left + 1 - counts[e]);
      }
      counts[e] = 1;
    };
    choose(0, places - std::ssize(loads));
    return lowest;
  }
  /// Returns how far rounding may lower a value, as documented: one unit per replica of a rank.
  [[nodiscard]] double rounding() const {
    double const total = std::accumulate(loads.begin(), loads.end(), 0.0);
    double const slowest = *std::min_element(speeds.begin(), speeds.end());
    return static_cast<double>(slots) * std::ldexp(total, -46) / slowest;
  }
};

inline void check_certificate(certified_case const& c, certificate const& got, fraction const& real,
                              fraction const& best) {
  CHECK(got.lower_bound <= got.value);
  if (got.status == certificate_status::optimal) {
    CHECK(got.lower_bound == got.value);
    CHECK(real == best);
    // The value is the optimum, rounded once.
    CHECK(at_most(got.lower_bound * (1 - 0x1p-52), best));
  } else {
    CHECK(at_most(got.lower_bound, best));
    CHECK(got.lower_bound < got.value);
  }
  CHECK_FALSE((real < best));
  double const high = got.value * (1 + 0x1p-52) + c.rounding();
  CHECK(scaled(high, real.speed * 60 * 16, false) + 1 >= real.load);
}

}  // namespace plimsoll_test::certificates_support

// SPDX-License-Identifier: Apache-2.0
// Certificates of planning calls against an exhaustive search for the best plan, in exact
// arithmetic. Loads are multiples of 2^-20 and experts have at most 5 replicas, so that weights are
// whole multiples of 2^-20 / 60.
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

#include "support/draws.hpp"
#include "support/instances.hpp"

namespace plimsoll_test {

using plimsoll::certificate;
using plimsoll::certificate_status;
using ints = std::vector<std::int32_t>;
using reals = std::vector<double>;
__extension__ using wide = __int128;

/// Cost of a rank: load in units of 2^-20 / 60, over an integer speed.
struct fraction {
  wide load = 0;
  wide speed = 1;
  bool operator<(fraction const& other) const { return load * other.speed < other.load * speed; }
  bool operator==(fraction const& other) const { return load * other.speed == other.load * speed; }
};

/// Returns x * factor, rounded up or down to a whole number; |result| must be below 2^120.
wide scaled(double x, wide factor, bool up) {
  int exponent = 0;
  auto const mantissa = static_cast<wide>(std::ldexp(std::frexp(x, &exponent), 53)) * factor;
  exponent -= 53;
  if (exponent >= 0) {
    return mantissa << exponent;
  }
  if (exponent < -120) {
    return up && mantissa > 0 ? 1 : 0;
  }
  wide const below = mantissa >> -exponent;
  return below + (up && (below << -exponent) != mantissa ? 1 : 0);
}

/// Speeds are whole multiples of this unit.
constexpr double speed_unit = 0x1p-16;
bool at_most(double x, fraction const& y) {
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
  [[nodiscard]] wide weight(std::size_t e, std::int32_t of) const {
    return static_cast<wide>(loads[e] * 0x1p20) * 60 / of;
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
    std::vector<wide> items;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      items.insert(items.end(), static_cast<std::size_t>(counts[e]), weight(e, counts[e]));
    }
    fraction lowest{std::numeric_limits<std::int64_t>::max(), 1};
    lowest.load <<= 30;
    std::vector<wide> carried(speed.size(), 0);
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

void check_certificate(certified_case const& c, certificate const& got, fraction const& real,
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

TEST_CASE("certificates: those of place and refine hold for the loads as given") {
  std::int64_t proven = 0;
  for (std::int64_t seed = 0; seed < instances(3000); ++seed) {
    CAPTURE(seed);
    certified_case const c(static_cast<std::uint64_t>(seed));
    if (!c.is_legal) {
      continue;
    }
    plimsoll::matrix_ref<double const> const loads(c.loads.data(), 1, c.experts());
    ints map(static_cast<std::size_t>(c.slots), -7);
    ints counts = c.copies;
    plimsoll::matrix_ref<std::int32_t> const map_view(map.data(), 1, c.slots);
    plimsoll::matrix_ref<std::int32_t> const count_view(counts.data(), 1, c.experts());
    fraction const best = c.best(c.copies);
    auto const placed = plimsoll::place(plimsoll::seq, loads, count_view, c.options(), map_view);
    check_certificate(c, placed[0], c.peak_of(map), best);
    auto const packed = plimsoll::refine(plimsoll::seq, loads, c.options(),
                                         {.tolerance = 0, .max_trials = 0}, map_view, count_view);
    check_certificate(c, packed[0], c.peak_of(map), best);
    if (seed % 4 == 0) {
      auto const joint = plimsoll::refine(plimsoll::seq, loads, c.options(),
                                          {.tolerance = 0, .max_trials = 32}, map_view, count_view);
      if (*std::max_element(counts.begin(), counts.end()) <= 5) {
        std::int64_t const filled = c.slots - std::count(map.begin(), map.end(), -1);
        std::int64_t places = 0;
        for (std::int32_t const n : c.room) {
          places += n;
        }
        bool const may_choose = places > c.experts();
        check_certificate(c, joint[0], c.peak_of(map),
                          may_choose && filled > 0 ? c.best_of_any() : c.best(counts));
      }
    }
    proven += packed[0].status == certificate_status::optimal;
  }
  CHECK(proven > 0);
}

TEST_CASE("certificates: the value of a plan far from its bound is not too low") {
  // Halves are below the fixed-point unit, which has 47 bits for the total.
  std::vector<double> loads{3, 3, 2, 2, 2};
  for (double& load : loads) {
    load = load * 0x1p43 + 0.5;
  }
  ints const counts(loads.size(), 1);
  ints map(6);
  auto const placed =
      plimsoll::place(plimsoll::seq, plimsoll::matrix_ref<double const>(loads.data(), 1, 5),
                      plimsoll::matrix_ref<std::int32_t const>(counts.data(), 1, 5),
                      {.on = {.ranks = 2}}, plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 6));
  CHECK(placed[0].lower_bound <= 6 * 0x1p43 + 1.5);
  CHECK(placed[0].value >= 7 * 0x1p43 + 1.5);
  CHECK(placed[0].value <= 7 * 0x1p43 + 3);
}

TEST_CASE("certificates: those of replicate hold for the loads as given") {
  for (std::int64_t seed = 0; seed < instances(3000); ++seed) {
    CAPTURE(seed);
    certified_case const c(static_cast<std::uint64_t>(seed));
    ints counts(c.loads.size());
    auto const got = plimsoll::replicate(
        plimsoll::seq, plimsoll::matrix_ref<double const>(c.loads.data(), 1, c.experts()), c.slots,
        {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, c.experts()));
    auto const heaviest = [&](ints const& of) {
      fraction result{0, 1 << 16};
      for (std::size_t e = 0; e < of.size(); ++e) {
        result.load = std::max(result.load, c.weight(e, of[e]));
      }
      return result;
    };
    if (*std::max_element(counts.begin(), counts.end()) > 5) {
      continue;
    }
    fraction best = heaviest(counts);
    ints other(counts.size(), 1);
    std::function<void(std::size_t, std::int64_t)> const choose = [&](std::size_t e,
                                                                      std::int64_t left) {
      if (e == other.size()) {
        best = std::min(best, heaviest(other));
        return;
      }
      for (other[e] = 1; other[e] <= std::min<std::int64_t>(left + 1, 5); ++other[e]) {
        choose(e + 1, left + 1 - other[e]);
      }
      other[e] = 1;
    };
    choose(0, c.slots - c.experts());
    certified_case even = c;
    even.speeds.assign(even.speeds.size(), 1.0);
    check_certificate(even, got[0], heaviest(counts), best);
  }
}

TEST_CASE("certificates: replicate, if two loads differ by less than a unit of fixed point") {
  // The replica goes to the lighter expert. The best peak is half a token below the value.
  reals const loads{0x1p45, 0x1p45 + 0.5};
  ints counts(2);
  auto const got =
      plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<double const>(loads.data(), 1, 2), 3,
                          {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 2))[0];
  CHECK(counts == ints{2, 1});
  CHECK(got.status == certificate_status::feasible);
  CHECK(got.lower_bound <= 0x1p45);
  CHECK(got.value >= 0x1p45 + 0.5);
}

/// Latency of a rank: a power of two per token, plus a constant for each rank.
struct steep_cost {
  int per_token[3];
  double idle[3];
  double operator()(plimsoll::index_t rank, double tokens) const {
    return idle[rank] + std::ldexp(tokens, per_token[rank]);
  }
};

TEST_CASE("certificates: those of swap_search hold under costs of any steepness") {
  for (std::int64_t seed = 0; seed < instances(1500); ++seed) {
    CAPTURE(seed);
    draws draw(static_cast<std::uint64_t>(seed) + 77);
    std::int64_t const steps = draw.among(1, 3);
    std::int64_t const experts = draw.among(1, 6);
    std::int64_t const ranks = draw.among(1, 3);
    std::int64_t const slots = experts + draw.among(0, 6);
    ints loads;
    for (std::int64_t i = 0; i < steps * experts; ++i) {
      loads.push_back(draw.among(0, 200));
    }
    steep_cost cost{};
    for (int r = 0; r < 3; ++r) {
      cost.per_token[r] = draw.any({0, 0, 0, 1, 10, 30, 45, 60});
      cost.idle[r] = draw.any({0.0, 0.0, 3.0, 0x1p40});
    }
    auto const room = [&](std::int64_t r) { return (r + 1) * slots / ranks - r * slots / ranks; };
    auto const score = [&](ints const& rank_of) {
      wide sum = 0;
      for (std::int64_t t = 0; t < steps; ++t) {
        std::int64_t tokens[3] = {};
        for (std::size_t e = 0; e < rank_of.size(); ++e) {
          tokens[rank_of[e]] += loads[static_cast<std::size_t>(t * experts) + e];
        }
        wide longest = 0;
        for (std::int64_t r = 0; r < ranks; ++r) {
          if (room(r) > 0) {
            longest = std::max(longest, static_cast<wide>(cost.idle[r]) +
                                            (static_cast<wide>(tokens[r]) << cost.per_token[r]));
          }
        }
        sum += longest;
      }
      return sum;
    };
    ints rank_of(static_cast<std::size_t>(experts), 0);
    wide best = -1;
    std::int64_t total = 1;
    for (std::int64_t e = 0; e < experts; ++e) {
      total *= ranks;
    }
    for (std::int64_t code = 0; code < total; ++code) {
      std::int64_t held[3] = {};
      std::int64_t rest = code;
      for (std::int32_t& r : rank_of) {
        r = static_cast<std::int32_t>(rest % ranks);
        rest /= ranks;
        ++held[r];
      }
      bool fits = true;
      for (std::int64_t r = 0; r < ranks; ++r) {
        fits = fits && held[r] <= room(r);
      }
      wide const here = fits ? score(rank_of) : -1;
      best = fits && (best < 0 || here < best) ? here : best;
    }
    ints map(static_cast<std::size_t>(slots));
    auto const got = plimsoll::swap_search(
        plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, 1, experts),
        cost, {.on = {.ranks = ranks}, .restarts = 3, .min_gain = 0},
        plimsoll::matrix_ref<std::int32_t>(map.data(), 1, slots))[0];
    for (std::int64_t r = 0; r < ranks; ++r) {
      for (std::int64_t s = r * slots / ranks; s < (r + 1) * slots / ranks; ++s) {
        if (map[static_cast<std::size_t>(s)] >= 0) {
          rank_of[static_cast<std::size_t>(map[static_cast<std::size_t>(s)])] =
              static_cast<std::int32_t>(r);
        }
      }
    }
    wide const real = score(rank_of);
    CHECK(scaled(got.lower_bound, 1, true) <= best);
    CHECK(scaled(got.value * (1 + 0x1p-50), 1, true) >= real);
    if (got.status == certificate_status::optimal) {
      CHECK(real - best <= best >> 50);  // costs are rounded to double
    }
  }
}

TEST_CASE("certificates: bounds hold if one rank is far slower than the others") {
  // The latencies of the other ranks are negligible next to the slow rank's; the optimum is 93.
  ints const loads{70, 50, 30, 20, 11, 5};
  ints map(9);
  auto const cost = [](plimsoll::index_t rank, double tokens) {
    return rank == 2 ? tokens * 0x1p60 : tokens;
  };
  auto const got = plimsoll::swap_search(
      plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 6), cost,
      {.on = {.ranks = 3}, .min_gain = 0}, plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 9))[0];
  CHECK(got.lower_bound > 0);
  CHECK(got.lower_bound <= 93);
  CHECK(got.value >= 93);
  CHECK(got.value <= 95);
}

}  // namespace plimsoll_test

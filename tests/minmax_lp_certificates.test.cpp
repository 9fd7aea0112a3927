// SPDX-License-Identifier: Apache-2.0
// Checks certificates of random splits in exact arithmetic, by trying all sets of ranks.
#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/draws.hpp"
#include "support/instances.hpp"
#include "support/wide_natural.hpp"

namespace plimsoll_test { namespace {

using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::split_objective;

constexpr std::size_t n(index_t i) { return static_cast<std::size_t>(i); }

/// A layer with a slot for every pair of expert and rank in `ranks_of`.
struct split_problem {
  index_t experts;
  index_t ranks;
  std::vector<std::uint32_t> ranks_of;  ///< [experts]: a bit for every rank with a copy
  std::vector<double> loads;            ///< [experts]
  bool whole;                           ///< loads are integers and passed as such
  std::vector<double> base = {};        ///< [ranks] or empty
  std::vector<double> speeds = {};      ///< [ranks] or empty
  std::vector<std::uint8_t> active = {};
  double tolerance = 0;
  split_objective goal = split_objective::min_peak;
  index_t max_iterations = index_t{1} << 20;

  [[nodiscard]] bool lives(index_t r) const { return active.empty() || active[n(r)] != 0; }
  [[nodiscard]] double speed(index_t r) const {
    return !lives(r) ? 0 : speeds.empty() ? 1 : speeds[n(r)];
  }
  [[nodiscard]] double base_of(index_t r) const { return base.empty() ? 0 : base[n(r)]; }
  [[nodiscard]] double fastest() const {
    double result = 0;
    for (index_t r = 0; r < ranks; ++r) {
      result = std::max(result, speed(r));
    }
    return result;
  }
  /// Returns the unit of loads in the library: 2^-52 of the power of two above their total.
  [[nodiscard]] double unit() const {
    double total = 0;
    for (double const load : loads) {
      total += load;
    }
    for (double const load : base) {
      total += load;
    }
    int width = 0;
    std::frexp(total, &width);
    return total > 0 ? std::ldexp(1.0, width - 52) : 1;
  }
};

struct solved_split {
  std::vector<std::vector<double>> share;  ///< [ranks][experts]
  certificate result;
};

solved_split solve(split_problem const& p) {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int32_t> const counts(p.loads.size(), 1);
  for (index_t r = 0; r < p.ranks; ++r) {
    for (std::int32_t e = 0; e < p.experts; ++e) {
      if ((p.ranks_of[n(e)] >> r & 1) != 0) {
        map.push_back(e);
      }
    }
    offsets.push_back(static_cast<std::int32_t>(map.size()));
  }
  auto const slots = std::ssize(map);
  plimsoll::minmax_lp const lp(plimsoll::seq,
                               {.physical_to_logical = {map.data(), 1, slots},
                                .replica_count = {counts.data(), 1, p.experts},
                                .ranks = p.ranks,
                                .rank_offsets = {offsets.data(), 1, p.ranks + 1}},
                               {.on = {.active = p.active, .speeds = p.speeds},
                                .tolerance = p.tolerance,
                                .max_iterations = p.max_iterations,
                                .objective = p.goal});
  std::vector<double> split(map.size());
  solved_split out{{}, {}};
  plimsoll::matrix_ref<double> const to(split.data(), 1, slots);
  plimsoll::vector_ref<certificate> const results(&out.result, 1);
  plimsoll::minmax_lp_arrays arrays;
  if (!p.base.empty()) {
    arrays.base_load = plimsoll::matrix_ref<double const>(p.base.data(), 1, p.ranks);
  }
  if (p.whole) {
    std::vector<std::int64_t> const loads(p.loads.begin(), p.loads.end());
    lp.solve(plimsoll::matrix_ref<std::int64_t const>(loads.data(), 1, p.experts), to, results,
             arrays);
  } else {
    lp.solve(plimsoll::matrix_ref<double const>(p.loads.data(), 1, p.experts), to, results, arrays);
  }
  for (index_t r = 0; r < p.ranks; ++r) {
    out.share.emplace_back(n(p.experts), 0.0);
    for (index_t slot = offsets[n(r)]; slot < offsets[n(r) + 1]; ++slot) {
      out.share.back()[n(map[n(slot)])] = split[n(slot)];
    }
  }
  return out;
}

// Scales of loads, speeds and their quotients as natural numbers: load = level * speed.
constexpr int level_bits = 240;
constexpr int speed_bits = 200;
wide_natural exact_load(double load) { return {load, level_bits + speed_bits}; }
wide_natural exact_speed(double speed) { return {speed, speed_bits}; }
wide_natural exact_level(double level) { return {level, level_bits}; }

/// The smallest peak of all splits, as a quotient: the highest level of a set of ranks with the
/// load that only they can take.
struct exact_peak {
  wide_natural load;
  wide_natural speed;
};

exact_peak smallest_peak(split_problem const& p) {
  exact_peak best{exact_load(0), exact_speed(1)};
  std::uint32_t live = 0;
  for (index_t r = 0; r < p.ranks; ++r) {
    live |= p.lives(r) ? 1u << r : 0;
  }
  for (std::uint32_t set = live; set != 0; set = (set - 1) & live) {
    exact_peak one{exact_load(0), exact_speed(0)};
    for (index_t r = 0; r < p.ranks; ++r) {
      if ((set >> r & 1) != 0) {
        one.load = one.load + exact_load(p.base_of(r));
        one.speed = one.speed + exact_speed(p.speed(r));
      }
    }
    for (index_t e = 0; e < p.experts; ++e) {
      if ((p.ranks_of[n(e)] & live & ~set) == 0) {
        one.load = one.load + exact_load(p.loads[n(e)]);
      }
    }
    if (best.load * one.speed < one.load * best.speed) {
      best = one;
    }
  }
  return best;
}

/// Returns a bound on the load of a rank that rounding to units leaves out: less than one unit for
/// each expert and for the base load.
double rounded_off(split_problem const& p) {
  return p.whole && p.base.empty() ? 0 : static_cast<double>(p.experts + 1) * p.unit();
}

void check_certificate(split_problem const& p) {
  solved_split const got = solve(p);
  certificate const& result = got.result;
  exact_peak const least = smallest_peak(p);
  double const unit = p.unit();
  REQUIRE(result.status != certificate_status::infeasible);
  CHECK(result.work <= p.max_iterations);

  // Loads are conserved; integer loads exactly.
  bool conserved = true;
  for (index_t e = 0; e < p.experts; ++e) {
    wide_natural given = exact_load(0);
    for (index_t r = 0; r < p.ranks; ++r) {
      conserved = conserved && got.share[n(r)][n(e)] >= 0;
      given = given + exact_load(got.share[n(r)][n(e)]);
    }
    wide_natural const load = exact_load(p.loads[n(e)]);
    conserved = conserved && given <= load && load <= given + exact_load(p.whole ? 0 : unit);
  }
  CHECK(conserved);

  // lower_bound <= the smallest peak.
  CHECK(exact_level(result.lower_bound) * least.speed <= least.load);
  CHECK(result.lower_bound <= result.value);
  // smallest peak <= peak of the split <= value, and value is the peak to rounding.
  bool reaches_least = false;
  bool below_value = true;
  bool reaches_value = false;
  bool fits = true;
  double const almost = result.value * (1 - 0x1p-50);
  for (index_t r = 0; r < p.ranks; ++r) {
    if (!p.lives(r)) {
      continue;
    }
    wide_natural load = exact_load(p.base_of(r));
    for (double const share : got.share[n(r)]) {
      load = load + exact_load(share);
    }
    wide_natural const speed = exact_speed(p.speed(r));
    wide_natural const slack = exact_load(rounded_off(p));
    reaches_least = reaches_least || (load + slack) * least.speed >= least.load * speed;
    below_value = below_value && load <= exact_level(result.value) * speed + slack;
    reaches_value = reaches_value || load + slack >= exact_level(almost) * speed;
    // Optimal: no rank carries a unit more than its speed times the smallest peak. Unequal speeds
    // are rounded up to multiples of 2^-44 of the fastest one.
    wide_natural const counted =
        p.speeds.empty() ? speed : exact_speed(p.speed(r)) + exact_speed(p.fastest() * 0x1p-44);
    fits = fits &&
           load * least.speed <= least.load * counted + (exact_load(unit) + slack) * least.speed;
  }
  CHECK(reaches_least);
  CHECK(below_value);
  CHECK(reaches_value);
  switch (result.status) {
    case certificate_status::optimal: {
      CHECK(fits);
      break;
    }
    case certificate_status::within_tolerance:
      CHECK(p.goal == split_objective::min_peak);
      CHECK(result.value <= result.lower_bound * (1 + p.tolerance) * (1 + 1e-15));
      break;
    default:
      CHECK(result.status == certificate_status::iteration_limit);
      CHECK(result.work == p.max_iterations);
  }
  if (result.status == certificate_status::optimal && p.goal == split_objective::lexicographic) {
    // In the most even split no part of a share can move to a lower rank. Each level below the
    // first may be off by a unit for every rank above it.
    bool even = true;
    std::vector<double> carried;
    for (index_t r = 0; r < p.ranks; ++r) {
      carried.push_back(p.base_of(r));
      for (double const share : got.share[n(r)]) {
        carried.back() += share;
      }
    }
    for (index_t from = 0; from < p.ranks; ++from) {
      for (index_t to = 0; to < p.ranks; ++to) {
        for (index_t e = 0; p.lives(from) && p.lives(to) && e < p.experts; ++e) {
          double const units = unit * static_cast<double>(2 * p.ranks);
          double const slack = units / p.speed(from) + units / p.speed(to);
          bool const moves = got.share[n(from)][n(e)] > 0 && (p.ranks_of[n(e)] >> to & 1) != 0;
          even = even && !(moves && carried[n(from)] / p.speed(from) >
                                        carried[n(to)] / p.speed(to) * (1 + 1e-8) + slack);
        }
      }
    }
    CHECK(even);
  }
}

std::vector<double> random_speeds(draws& random, index_t ranks) {
  std::vector<double> speeds;
  if (random.one_in(3)) {
    return speeds;
  }
  auto const kind = random.among(0, 3);
  double const scale = random.any({1.0, 1.0, 3.0, 0.1, 0x1p-47, 0x1.8p62});
  for (index_t r = 0; r < ranks; ++r) {
    double speed = 1;
    if (kind == 0) {
      speed = 0x1p-16 + (1 - 0x1p-16) * random.unit();
    } else if (kind == 1) {
      speed = std::ldexp(1 + random.unit(), random.among(-16, -1));
    } else if (kind == 2) {
      speed = random.any({1.0, 0.5, 0x1p-16, 0x1.66666p-16, 0x1.8p-16, 0.3});
    }
    speeds.push_back(speed * scale);
  }
  return speeds;
}

split_problem random_problem(std::uint64_t seed) {
  draws random(seed);
  split_problem p{};
  p.experts = random.among(1, 8);
  p.ranks = random.one_in(8) ? random.among(8, 10) : random.among(1, 6);
  p.speeds = random_speeds(random, p.ranks);
  if (!p.speeds.empty()) {
    // Values that rounding puts just below the range are clamped.
    double const fastest = *std::max_element(p.speeds.begin(), p.speeds.end());
    for (double& speed : p.speeds) {
      speed = std::max(speed, fastest * 0x1p-16);
    }
  }
  if (p.ranks > 1 && random.one_in(4)) {
    p.active.assign(n(p.ranks), 1);
    p.active[n(random.among(0, p.ranks - 1))] = 0;
  }
  p.whole = random.one_in(2);
  auto const kind = random.among(0, 3);
  double const scale = random.any({1.0, 0x1p-60, 0x1p20, 1e-5});
  for (index_t e = 0; e < p.experts; ++e) {
    double load = random.among(0, 20);
    if (kind == 1) {
      load = static_cast<double>(random.bits() >> 24);
    } else if (kind == 2) {
      load = random.one_in(3) ? 0 : 1 << random.among(0, 20);
    } else if (kind == 3) {
      load = random.among(1, 1000) / (random.one_in(5) ? 1 : 100);
    }
    p.loads.push_back(p.whole ? std::floor(load)
                              : (load + random.unit()) * std::min(scale, kind == 1 ? 1 : scale));
    std::uint32_t ranks_of = 0;
    std::uint32_t live = 0;
    for (index_t r = 0; r < p.ranks; ++r) {
      ranks_of |= random.one_in(random.any({2, 3, 5})) ? 1u << r : 0;
      live |= p.lives(r) ? 1u << r : 0;
    }
    if ((ranks_of & live) == 0) {
      ranks_of |= live;
    }
    p.ranks_of.push_back(ranks_of);
  }
  if (random.one_in(3)) {
    for (index_t r = 0; r < p.ranks; ++r) {
      double const base = random.among(0, 20);
      p.base.push_back(!p.lives(r) ? 0 : p.whole ? base : base * random.unit() * scale);
    }
  }
  p.tolerance = random.any({0.0, 0.0, 1e-6, 1e-3});
  p.goal = random.one_in(3) ? split_objective::lexicographic : split_objective::min_peak;
  p.max_iterations = random.one_in(2) ? random.among(1, 9) : index_t{1} << 20;
  return p;
}

TEST_CASE("minmax_lp: certificates hold in exact arithmetic") {
  for (std::int64_t i = 0; i < instances(4000); ++i) {
    CAPTURE(i);
    split_problem const p = random_problem(static_cast<std::uint64_t>(i));
    check_certificate(p);
  }
}

TEST_CASE("minmax_lp: products over a divisor, and levels rounded down") {
  __extension__ using wide = unsigned __int128;
  draws random(5);
  for (std::int64_t i = 0; i < instances(20000); ++i) {
    auto const a = static_cast<std::int64_t>(random.bits() >> random.among(11, 60));
    auto const b = static_cast<std::int64_t>(random.bits() >> random.among(11, 60));
    auto const c = static_cast<std::int64_t>(random.bits() >> random.among(4, 40)) + 1;
    wide const product = static_cast<wide>(a) * static_cast<wide>(b);
    wide const quotient = product / static_cast<wide>(c);
    if ((quotient + 1) >> 63 == 0 && c <= std::int64_t{1} << 60) {
      CAPTURE(i);
      CHECK(plimsoll::detail::multiply_divide(a, b, c) == static_cast<std::int64_t>(quotient));
      bool const rest = product % static_cast<wide>(c) != 0;
      CHECK(plimsoll::detail::multiply_divide(a, b, c, c - 1) ==
            static_cast<std::int64_t>(quotient + rest));
    }
    // A double cannot hold the exact sum of the speeds of many ranks.
    double const level = plimsoll::detail::confinement{a, c}.level({nullptr, 1, false});
    wide_natural const speed = wide_natural(static_cast<double>(c >> 30), 30) +
                               wide_natural(static_cast<double>(c % (1 << 30)), 0);
    CHECK(exact_level(level) * speed <= wide_natural(static_cast<double>(a), level_bits));
  }
}

TEST_CASE("wide_natural: products and sums of doubles") {
  wide_natural const three(3, 0);
  CHECK(three * wide_natural(0x1p-3, 400) == wide_natural(3, 397));
  CHECK(three + wide_natural(0x1p64, 0) > wide_natural(0x1p64, 0));
  CHECK(wide_natural(0x1.fffffffffffffp52, 11) + wide_natural(1, 11) == wide_natural(1, 64));
  CHECK(wide_natural(0x1p31, 1) * wide_natural(0x1p31, 2) == wide_natural(1, 65));
  CHECK(wide_natural(0.75, 2) == three);
  CHECK(wide_natural(0, 5) < wide_natural(0x1p-5, 5));
}

}  // namespace
}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Checks certificates of random splits in exact arithmetic, by trying all sets of ranks.
#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <cstdint>
#include <vector>

#include "support/draws.hpp"
#include "support/instances.hpp"
#include "support/minmax_lp_certificates.hpp"
#include "support/wide_natural.hpp"

namespace plimsoll_test {

using namespace minmax_lp_certificates_support;

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

}  // namespace plimsoll_test

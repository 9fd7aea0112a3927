// SPDX-License-Identifier: Apache-2.0
// Tests of exact_math under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace exact_math_cases {

using plimsoll::index_t;
namespace exact = plimsoll::detail;

/// Operands of all kinds: wide and narrow exponents, subnormals, both signs.
inline std::vector<double> operands(index_t count) {
  plimsoll_test::generator random(99);
  std::vector<double> result{0.0,   -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2250738585072014e-308,
                             0x1p52};
  while (static_cast<index_t>(result.size()) < count) {
    std::uint64_t const bits = random.bits();
    std::uint64_t const narrow = 1023 - 20 + random.bits() % 40;
    result.push_back(exact::double_of((bits & 0x800fffffffffffff) | narrow << 52));
    std::uint64_t const exponent = 300 + random.bits() % 1400;
    result.push_back(exact::double_of((bits & 0x800fffffffffffff) | exponent << 52));
  }
  result.resize(static_cast<std::size_t>(count));
  return result;
}

inline constexpr index_t results_per_pair = 17;

/// Evaluates every function of exact_math on two operands.
PLIMSOLL_HD inline void evaluate(double a, double b, std::uint64_t* out) {
  double const size = a < 0 ? -a : a;
  double const small = exact::double_of((exact::bits_of(a) & 0x800fffffffffffff) | 1030ull << 52);
  auto const whole = static_cast<std::uint64_t>(exact::bits_of(a) >> 11);
  auto const divisor = static_cast<std::uint32_t>(1 + exact::bits_of(b) % 2097151);
  out[0] = exact::bits_of(exact::add(a, b));
  out[1] = exact::bits_of(exact::multiply(a, b));
  out[2] = exact::bits_of(exact::mul_add(a, b, -small));
  out[3] = exact::bits_of(exact::mul_then_add(a, b, -small));
  out[4] = exact::bits_of(exact::divide(a, b == 0 ? 3.0 : b));
  out[5] = exact::bits_of(exact::square_root(size));
  out[6] = exact::divide_floor(whole, divisor);
  out[7] = exact::fixed_point(small < 0 ? -small : small, 40);
  out[8] = exact::bits_of(exact::exp(small));
  out[9] = exact::bits_of(exact::exp(small / 1024));
  out[10] = exact::bits_of(exact::log2(size == 0 ? 1 : size));
  out[11] = exact::bits_of(exact::log2(1 + (small < 0 ? -small : small) / 1024));
  out[12] =
      exact::bits_of(exact::scale_by_power_of_two(small, static_cast<int>(whole % 1800) - 900));
  out[13] = static_cast<std::uint64_t>(exact::bit_width(whole >> (divisor % 60)));
  out[14] = exact::bits_of(exact::mul_then_add(static_cast<float>(small), static_cast<float>(small),
                                               static_cast<float>(-small)));
  out[15] = exact::bits_of(
      static_cast<double>(exact::add(static_cast<float>(small), static_cast<float>(0.1f))));
  out[16] = exact::bits_of(exact::power(size, 0.001 * (1 + divisor % 1000)));
}

struct evaluate_all {
  using device_team = plimsoll::detail::block<256>;
  double const* operands;
  std::uint64_t* results;
  index_t count;
  [[nodiscard]] std::size_t scratch_bytes() const { return 0; }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch, index_t problem) const {
    index_t const n = count;
    double const* const from = operands;
    std::uint64_t* const to = results + problem * n * results_per_pair;
    team.for_each(n, [=](index_t i) {
      evaluate(from[i], from[(i * 7 + problem + 1) % n], to + i * results_per_pair);
    });
  }
};

}  // namespace exact_math_cases

PLIMSOLL_TEST_CASE("exact_math: the same bits under every policy", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  using namespace exact_math_cases;
  index_t const count = 3000;
  index_t const problems = 3;
  std::vector<double> const values = operands(count);
  array_in<double, P> const numbers(values);
  array_in<std::uint64_t, P> results(problems * count * results_per_pair);
  auto const policy = make_policy<P>();
  plimsoll::detail::launch(plimsoll::detail::resolve(policy), problems,
                           evaluate_all{numbers.data(), results.data(), count});
  std::vector<std::uint64_t> const got = results.values();
  std::vector<std::uint64_t> expected(got.size());
  for (index_t problem = 0; problem < problems; ++problem) {
    for (index_t i = 0; i < count; ++i) {
      evaluate(values[static_cast<std::size_t>(i)],
               values[static_cast<std::size_t>((i * 7 + problem + 1) % count)],
               expected.data() + (problem * count + i) * results_per_pair);
    }
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) {
      FAIL("result " << i % static_cast<std::size_t>(results_per_pair) << " of pair "
                     << i / static_cast<std::size_t>(results_per_pair) << ": " << got[i]
                     << " against " << expected[i]);
    }
  }
  // The hash must also be that of every other compiler and set of flags.
  report_hash("exact_math.evaluate", got);
}

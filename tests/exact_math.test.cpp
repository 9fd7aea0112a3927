// SPDX-License-Identifier: Apache-2.0
// Tests of exact_math under the host's policies, and others.
#include "exact_math.cases.hpp"

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

namespace exact = plimsoll::detail;

namespace {

/// |got - exact| in units of the last place of the double next to `exact`.
double ulps(double got, long double exact_value) {
  double const nearest = static_cast<double>(exact_value);
  double const unit = std::nextafter(std::abs(nearest), INFINITY) - std::abs(nearest);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact_value) /
                             static_cast<long double>(unit));
}

// Hides a constant from the optimizer, which may fold it with another rounding.
double opaque(double x) {
  double volatile stored = x;
  return stored;
}

}  // namespace

// The comparisons below need more digits than those of a double.
static_assert(LDBL_MANT_DIG > DBL_MANT_DIG);

TEST_CASE("exact_math: an even split begins where whole numbers say") {
  plimsoll_test::generator random(6);
  auto const check = [&](std::int64_t n, std::int64_t parts) {
    exact::even_split const split(n, parts);
    for (std::int64_t i = 0; i <= parts; i += i < 64 ? 1 : random.between(1, 64)) {
      if (split.begin(i) != i * n / parts) {
        FAIL("part " << i << " of " << n << " / " << parts << " begins at " << split.begin(i));
      }
    }
    CHECK(split.begin(parts) == n);
    CHECK(split.over_parts((parts + 1) * parts - 1) == parts);
  };
  for (std::int64_t parts = 1; parts <= 48; ++parts) {
    for (std::int64_t n = 0; n <= 200; ++n) {
      check(n, parts);
    }
  }
  for (std::int64_t const parts : {32767, 65534, 65535}) {
    for (std::int64_t const n :
         {parts - 1, parts, parts + 1, 2 * parts - 1, std::int64_t{0xffffffff}}) {
      check(n, parts);
    }
  }
  for (int i = 0; i < 2000; ++i) {
    check(random.between(0, 0x7fffffff), random.between(1, 32767));
  }
}

TEST_CASE("exact_math: divide_floor is integer division") {
  std::uint64_t const limit = std::uint64_t{1} << 53;
  auto const check = [&](std::uint64_t a, std::uint32_t b) {
    if (a < limit && exact::divide_floor(a, b) != a / b) {
      FAIL(a << " / " << b << " gave " << exact::divide_floor(a, b));
    }
  };
  // Around every hard multiple of b: the largest quotient, and quotients next to powers of two,
  // where the distance of doubles changes.
  auto const check_divisor = [&](std::uint32_t b) {
    std::uint64_t const largest = (limit - 1) / b;
    for (std::uint64_t const quotient : {largest, largest - 1, largest / 2 + 1}) {
      std::uint64_t const a = quotient * b;
      check(a, b);
      check(a - 1, b);
      check(a + b - 1, b);
    }
    check(limit - 1, b);
  };
  for (std::uint32_t b = 1; b < 1u << 21; ++b) {
    check_divisor(b);
  }
  plimsoll_test::generator random(5);
  for (int i = 0; i < 300000; ++i) {
    auto const b = static_cast<std::uint32_t>(random.between(1, (1 << 21) - 1));
    std::uint64_t const quotient = random.bits() % (limit / b + 1);
    std::uint64_t const power = std::uint64_t{1} << random.between(0, 52);
    for (std::uint64_t const q : {quotient, power, power + 1, power - 1}) {
      if (q > limit / b) {
        continue;
      }
      check(q * b, b);
      check(q * b + b - 1, b);
      if (q > 0) {
        check(q * b - 1, b);
      }
    }
  }
  for (std::uint32_t b = 1; b <= 60; ++b) {
    for (std::uint64_t a = 0; a < 4000; ++a) {
      check(a, b);
    }
  }
}

TEST_CASE("exact_math: products with a reciprocal are quotients") {
  auto const check = [](double x, std::int32_t b) {
    double const expected = exact::divide(x, b);
    if (exact::reciprocal(b).times(x) != expected) {
      FAIL(x << " / " << b << " gave " << exact::reciprocal(b).times(x));
    }
  };
  // Around the dividends whose quotients are closest to the middle of two doubles.
  auto const check_divisor = [&](std::int32_t b) {
    for (double const quotient : {1.0, 1.5, 2 - 0x1p-52, 0x1p52 + 1, 0x1p-20 + 0x1p-70}) {
      auto const bits = exact::bits_of(quotient * b);
      for (std::uint64_t i = 0; i < 5; ++i) {
        check(exact::double_of(bits + i - 2), b);
      }
    }
    for (double const x : {0.0, 1.0, 0x1p47 - 1, exact::reciprocal::least, 0x1p899}) {
      check(x, b);
    }
  };
  for (std::int32_t b = 1; b <= 40000; ++b) {
    check_divisor(b);
  }
  plimsoll_test::generator random(7);
  for (int i = 0; i < 300000; ++i) {
    auto const b = static_cast<std::int32_t>(random.between(1, 0x7fffffff));
    check_divisor(b);
    check(static_cast<double>(random.between(0, 0x7fffffff)), b);
    check(static_cast<double>(random.bits() >> 17), b % 64 + 1);
  }
  CHECK(exact::reciprocal{}.times(5) == 0);
}

TEST_CASE("exact_math: exp within about one unit in the last place") {
  double worst = 0;
  auto const look = [&](double x) {
    worst = std::max(worst, ulps(exact::exp(x), std::exp(static_cast<long double>(x))));
  };
  plimsoll_test::generator random(1);
  for (int i = 0; i < 200000; ++i) {
    look((random.unit() - 0.5) * 1400);
    look((random.unit() - 0.5) * 2);
    look((random.unit() - 0.5) * 1e-6);
  }
  // The argument of the polynomial is largest halfway between multiples of ln 2.
  for (int k = -1000; k <= 1000; ++k) {
    double const middle = (k + 0.5) * 0.6931471805599453;
    look(middle);
    look(std::nextafter(middle, 1e9));
    look(std::nextafter(middle, -1e9));
  }
  MESSAGE("worst error of exp: " << worst << " ulp");
  CHECK(worst < 1.5);
  CHECK(exact::exp(0.0) == 1.0);
  CHECK(exact::exp(-0.0) == 1.0);
  CHECK(exact::exp(1e300) == exact::exp(700.0));
  CHECK(exact::exp(-1e300) == exact::exp(-700.0));
}

TEST_CASE("exact_math: log2 within a few units in the last place") {
  double worst = 0;
  auto const look = [&](double x) {
    worst = std::max(worst, ulps(exact::log2(x), std::log2(static_cast<long double>(x))));
  };
  plimsoll_test::generator random(2);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t const fraction = random.bits() >> 12;
    look(exact::double_of(fraction | (1 + random.bits() % 2046) << 52));
    look(exact::double_of(fraction | (1023 - 2 + random.bits() % 4) << 52));
  }
  MESSAGE("worst error of log2: " << worst << " ulp");
  CHECK(worst < 4);
  // Powers of two give exact results.
  for (int k = -1074; k <= 1023; ++k) {
    if (exact::log2(std::ldexp(1.0, k)) != k) {
      FAIL("log2 of 2^" << k);
    }
  }
  // Next to 1 the result is small, but its relative error is the same.
  double near = 0;
  for (double d = 0x1p-52; d < 0.4; d *= 1.01) {
    near = std::max(near,
                    ulps(exact::log2(1 + d), std::log2(1 + static_cast<long double>((1 + d) - 1))));
    near = std::max(near,
                    ulps(exact::log2(1 - d), std::log2(1 - static_cast<long double>(1 - (1 - d)))));
  }
  MESSAGE("worst error of log2 next to 1: " << near << " ulp");
  CHECK(near < 4);
}

TEST_CASE("exact_math: power") {
  double worst = 0;
  plimsoll_test::generator random(3);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t const fraction = random.bits() >> 12;
    double const x = exact::double_of(fraction | (1 + random.bits() % 2046) << 52);
    double const exponent = static_cast<double>(random.between(1, 1000)) / 1000;
    long double const correct =
        std::pow(static_cast<long double>(x), static_cast<long double>(exponent));
    worst = std::max(worst, static_cast<double>(std::abs(exact::power(x, exponent) / correct - 1)));
  }
  MESSAGE("worst relative error of power: " << worst);
  CHECK(worst < 0x1p-41);  // of exponents up to 1024 in magnitude
  CHECK(exact::power(0, 0.5) == 0);
  CHECK(exact::power(1, 0.37) == 1);
  CHECK(exact::power(0x1p46, 0.5) == 0x1p23);
  CHECK(exact::power(5e-324, 1) == 5e-324);
}

TEST_CASE("exact_math: mul_add rounds once, mul_then_add twice") {
  double const a = opaque(1 + 0x1p-30);
  double const b = opaque(1 - 0x1p-30);
  CHECK(exact::mul_add(a, b, opaque(-1.0)) == -0x1p-60);
  CHECK(exact::mul_then_add(a, b, opaque(-1.0)) == 0.0);
  // It rounds twice also for values that the compiler knows,
  CHECK(exact::mul_then_add(1 + 0x1p-30, 1 - 0x1p-30, -1.0) == 0.0);
  // in single precision,
  auto const af = static_cast<float>(opaque(1 + 0x1p-13));
  auto const bf = static_cast<float>(opaque(1 - 0x1p-13));
  CHECK(exact::mul_then_add(af, bf, -1.0f) == 0.0f);
  // and for a product that the caller adds in the same expression.
  CHECK(exact::multiply(a, b) + opaque(-1.0) == 0.0);
  CHECK(exact::add(a * b, opaque(-1.0)) == 0.0);

  plimsoll_test::generator random(3);
  for (int i = 0; i < 20000; ++i) {
    double const x = random.unit() - 0.5;
    double const y = random.unit() - 0.5;
    double const z = random.unit() - 0.5;
    double volatile product = x * y;
    double volatile sum = product + z;
    if (exact::mul_then_add(x, y, z) != sum || exact::mul_add(x, y, z) != std::fma(x, y, z)) {
      FAIL(x << " * " << y << " + " << z);
    }
  }
}

TEST_CASE("exact_math: fixed_point is floor(x * 2^exponent)") {
  auto const check = [](double x, int exponent) {
    double const exact_value = std::floor(std::ldexp(x, exponent));
    if (exact_value >= 0x1p63) {
      return;
    }
    if (exact::fixed_point(x, exponent) != static_cast<std::uint64_t>(exact_value)) {
      FAIL(x << " * 2^" << exponent << " gave " << exact::fixed_point(x, exponent));
    }
  };
  plimsoll_test::generator random(4);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t const fraction = random.bits() >> 12;
    auto const field = static_cast<int>(random.bits() % 2047);
    // An exponent with which the result is below 2^63.
    check(exact::double_of(fraction | static_cast<std::uint64_t>(field) << 52),
          static_cast<int>(random.between(-70, 62)) - (field - 1023));
    check(random.unit() * 1e6, static_cast<int>(random.between(-30, 42)));
  }
  // Subnormals, zeros, and the largest result.
  for (double const x : {5e-324, 1e-310, 2.2250738585072009e-308, 2.2250738585072014e-308}) {
    for (int exponent = 900; exponent < 1137; ++exponent) {
      check(x, exponent);
    }
    check(x, 0);
    check(x, -1000);
  }
  CHECK(exact::fixed_point(0.0, 40) == 0);
  for (int exponent = -100; exponent <= 1000; ++exponent) {
    check(-0.0, exponent);
  }
  CHECK(exact::fixed_point(0.999, 0) == 0);
  CHECK(exact::fixed_point(1.0, 62) == std::uint64_t{1} << 62);
  CHECK(exact::fixed_point(std::nextafter(0x1p63, 0.0), 0) == (std::uint64_t{1} << 63) - 1024);
  CHECK(exact::fixed_point(DBL_MAX, -1000) == (1u << 24) - 1);
}

TEST_CASE("exact_math: scale_by_power_of_two is ldexp") {
  plimsoll_test::generator random(6);
  for (int i = 0; i < 100000; ++i) {
    double const x = exact::double_of((random.bits() >> 12) | (random.bits() % 2046 + 1) << 52);
    auto const exponent = static_cast<int>(random.between(-2000, 2000));
    double const expected = std::ldexp(x, exponent);
    // The result is rounded more than once only if it is subnormal.
    if (expected >= DBL_MIN && exact::scale_by_power_of_two(x, exponent) != expected) {
      FAIL(x << " * 2^" << exponent);
    }
  }
  CHECK(exact::scale_by_power_of_two(1.0, -1074) == 5e-324);
  CHECK(exact::scale_by_power_of_two(5e-324, 2000) == std::ldexp(5e-324, 2000));
  CHECK(exact::scale_by_power_of_two(1.0, 2000) == INFINITY);
  CHECK(exact::scale_by_power_of_two(0.0, 2000) == 0.0);
  CHECK(exact::scale_by_power_of_two(-3.0, 5) == -96.0);
}

TEST_CASE("exact_math: bit_width") {
  for (int bit = 0; bit < 64; ++bit) {
    std::uint64_t const power = std::uint64_t{1} << bit;
    CHECK(exact::bit_width(power) == std::bit_width(power));
    CHECK(exact::bit_width(power - 1) == std::bit_width(power - 1));
    CHECK(exact::bit_width(power | 1) == std::bit_width(power | 1));
  }
  CHECK(exact::bit_width(~std::uint64_t{0}) == 64);
}

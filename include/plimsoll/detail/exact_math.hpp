// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arithmetic that gives the same bits with every compiler, set of flags and device. Apart from
/// single correctly rounded operations, bodies may use no other floating-point arithmetic.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

// For nvcc, std::bit_cast is a host function unless the user passes a flag.
PLIMSOLL_HD constexpr std::uint64_t bits_of(double x) {
  return __builtin_bit_cast(std::uint64_t, x);
}
PLIMSOLL_HD constexpr double double_of(std::uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}

/// Returns the index of the highest set bit plus one; 0 for 0.
PLIMSOLL_HD inline int bit_width(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return 64 - __clzll(static_cast<long long>(x));
#else
  return x == 0 ? 0 : 64 - __builtin_clzll(x);
#endif
}

/// Returns the index of the lowest set bit of x, which is not 0.
PLIMSOLL_HD inline int lowest_bit(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(x)) - 1;
#else
  return __builtin_ctz(x);
#endif
}
PLIMSOLL_HD inline int lowest_bit(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(x)) - 1;
#else
  return __builtin_ctzll(x);
#endif
}

/// Returns the number of set bits.
PLIMSOLL_HD inline int bit_count(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __popc(x);
#else
  return __builtin_popcount(x);
#endif
}
PLIMSOLL_HD inline int bit_count(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
  return __popcll(x);
#else
  return __builtin_popcountll(x);
#endif
}

/// Returns x as a rounded value: no compiler contracts the operation that computed x with one that
/// uses it.
template <std::floating_point T>
PLIMSOLL_HD inline T rounded(T x) {
#if defined(__CUDA_ARCH__)
  return x;  // the intrinsics below never contract
#elif defined(__x86_64__)
  asm("" : "+x"(x));
  return x;
#elif defined(__aarch64__)
  asm("" : "+w"(x));
  return x;
#else
  T volatile stored = x;
  return stored;
#endif
}

#if defined(__CUDA_ARCH__)
/// Calls the intrinsic for the width of T.
template <auto Narrow, auto Wide, std::floating_point T>
PLIMSOLL_HD inline T by_width(T a, T b) {
  if constexpr (sizeof(T) == 4) {
    return Narrow(a, b);
  } else {
    return Wide(a, b);
  }
}
#endif

/// Returns a + b, rounded once: never contracted with the products that computed a or b.
template <std::floating_point T>
PLIMSOLL_HD inline T add(T a, T b) {
#if defined(__CUDA_ARCH__)
  return by_width<__fadd_rn, __dadd_rn>(a, b);
#else
  return rounded(a) + rounded(b);
#endif
}

/// Returns a * b, rounded once: never contracted with an addition that uses it.
template <std::floating_point T>
PLIMSOLL_HD inline T multiply(T a, T b) {
#if defined(__CUDA_ARCH__)
  return by_width<__fmul_rn, __dmul_rn>(a, b);
#else
  return rounded(a * b);
#endif
}

/// Returns a * b + c, rounded once (fused).
PLIMSOLL_HD inline double mul_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// Returns a * b + c, rounded after the product and after the sum.
template <std::floating_point T>
PLIMSOLL_HD inline T mul_then_add(T a, T b, T c) {
  return add(multiply(a, b), c);
}

PLIMSOLL_HD inline double divide(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}

/// Returns a / b rounded down, for finite a >= 0 and b > 0 with a normal quotient, or a = 0.
PLIMSOLL_HD inline double divide_down(double a, double b) {
  double const nearest = divide(a, b);
  return mul_add(nearest, b, -a) > 0 ? double_of(bits_of(nearest) - 1) : nearest;
}

/// Returns a / b rounded up, with the same preconditions as `divide_down`.
PLIMSOLL_HD inline double divide_up(double a, double b) {
  double const nearest = divide(a, b);
  return mul_add(nearest, b, -a) < 0 ? double_of(bits_of(nearest) + 1) : nearest;
}

/// Returns whether a * b <= c * d, exactly, for numbers whose products neither overflow nor
/// underflow. The rounding of a product is monotone, and an fma computes its rounding error.
PLIMSOLL_HD inline bool product_at_most(double a, double b, double c, double d) {
  double const left = multiply(a, b);
  double const right = multiply(c, d);
  return left < right || (left == right && mul_add(a, b, -left) <= mul_add(c, d, -right));
}

PLIMSOLL_HD inline double square_root(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

/// Divides by an integer, without a division: multiplies by the sum of two doubles that is its
/// reciprocal to 2^-104. The quotient of a double and an integer below 2^31 is at least 2^-32 units
/// in the last place away from the middle between two doubles, so the error does not change how it
/// is rounded.
class reciprocal {
 public:
  /// Zero.
  reciprocal() = default;
  PLIMSOLL_HD explicit reciprocal(std::int32_t divisor)
      : high_(divide(1.0, static_cast<double>(divisor))),
        low_(multiply(mul_add(-high_, static_cast<double>(divisor), 1.0), high_)) {}

  /// Least positive factor of `times`: the products below must not be subnormal.
  static constexpr double least = 0x1p-900;
  /// Returns x / of, rounded as by `divide`, for x = 0 or `least` <= x < 2^900.
  [[nodiscard]] PLIMSOLL_HD double times(double x) const {
    return mul_add(x, high_, multiply(x, low_));
  }

 private:
  double high_ = 0;
  double low_ = 0;
};

/// Returns floor(a / b) for a < 2^53 and b < 2^21, by one division of doubles, which is several
/// times faster than a division of 64-bit integers. The rounded quotient cannot reach the next
/// integer: the exact quotient is at least 1/b below it, and half a unit in the last place of a
/// quotient below 2^53/b is at most 1/(2b).
PLIMSOLL_HD inline std::uint64_t divide_floor(std::uint64_t a, std::uint32_t b) {
  return static_cast<std::uint64_t>(divide(static_cast<double>(a), static_cast<double>(b)));
}

/// Returns floor((a * b + extra) / c) for a, b >= 0 that doubles represent exactly, c > extra >= 0,
/// a * b < 2^113, c <= 2^60 and a quotient below 2^63. The quotient is estimated in doubles; the
/// remainder of the product is then below 2^63 in magnitude, so arithmetic modulo 2^64 computes it
/// exactly.
PLIMSOLL_HD inline std::int64_t multiply_divide(std::int64_t a, std::int64_t b, std::int64_t c,
                                                std::int64_t extra = 0) {
  auto const whole = static_cast<std::int64_t>(
      divide(multiply(static_cast<double>(a), static_cast<double>(b)), static_cast<double>(c)));
  auto const rest =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b) -
                                static_cast<std::uint64_t>(whole) * static_cast<std::uint64_t>(c)) +
      extra;
  if (rest >= 0 && rest < c) {
    return whole;  // the usual case; a GPU takes a hundred instructions for a division
  }
  return whole + rest / c - (rest % c < 0);
}

/// Returns floor(a * b / 2^64).
PLIMSOLL_HD inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<wide>(a) * b >> 64);
#endif
}

/// Divides numbers below 2^32 by a divisor that is known beforehand, several times as fast as the
/// processor's division: the quotient is the upper half of a product with ceil(2^64 / divisor),
/// whose error is too small to change it (Granlund and Montgomery 1994).
class divisor {
 public:
  divisor() = default;
  /// `by`: 1 to 2^32 - 1.
  PLIMSOLL_HD explicit constexpr divisor(std::int64_t by)
      : reciprocal_(~std::uint64_t{0} / static_cast<std::uint64_t>(by) + 1) {}

  [[nodiscard]] PLIMSOLL_HD std::int64_t quotient(std::int64_t x) const {
    auto const number = static_cast<std::uint64_t>(x);
    if (reciprocal_ == 0) {  // 2^64
      return x;
    }
    return static_cast<std::int64_t>(multiply_high(number, reciprocal_));
  }

 private:
  std::uint64_t reciprocal_ = 0;
};

/// Splits [0, n) into `parts` ranges as evenly as integers allow: range i begins at floor(i * n /
/// parts). The divisions are prepared, since bodies call `begin` often and a GPU takes a hundred
/// instructions for a 64-bit division. For i and parts below 2^16 and n below 2^32; with parts = 0,
/// no member may be called.
class even_split {
 public:
  even_split() = default;
  PLIMSOLL_HD constexpr even_split(std::int64_t n, std::int64_t parts)
      : whole_(static_cast<std::uint32_t>(parts > 0 ? n / parts : 0)),
        rest_(static_cast<std::uint32_t>(parts > 0 ? n % parts : 0)),
        by_parts_(parts > 0 ? parts : 1) {}

  [[nodiscard]] PLIMSOLL_HD std::int64_t begin(std::int64_t i) const {
    auto const part = static_cast<std::uint32_t>(i);
    return std::int64_t{part} * whole_ + by_parts_.quotient(std::uint32_t{part * rest_});
  }
  /// Returns x / parts, for x below 2^32.
  [[nodiscard]] PLIMSOLL_HD std::int64_t over_parts(std::int64_t x) const {
    return by_parts_.quotient(x);
  }

 private:
  std::uint32_t whole_ = 0;
  std::uint32_t rest_ = 0;
  divisor by_parts_;
};

/// Returns x * 2^exponent for finite x and |exponent| <= 2000; rounded once if the result is
/// normal.
PLIMSOLL_HD inline double scale_by_power_of_two(double x, int exponent) {
  auto const power = [](int e) { return double_of(static_cast<std::uint64_t>(e + 1023) << 52); };
  PLIMSOLL_NO_UNROLL
  for (; exponent < -1000; exponent += 1000) {
    x = multiply(x, power(-1000));
  }
  PLIMSOLL_NO_UNROLL
  for (; exponent > 1000; exponent -= 1000) {
    x = multiply(x, power(1000));
  }
  return multiply(x, power(exponent));
}

/// Returns x * 2^exponent rounded down, also if the result is subnormal, for x >= 0 and |exponent|
/// <= 1200.
PLIMSOLL_HD inline double scale_rounded_down(double x, int exponent) {
  double const nearest = scale_by_power_of_two(x, exponent);
  bool const above = scale_by_power_of_two(nearest, -exponent) > x;
  return above ? double_of(bits_of(nearest) - 1) : nearest;
}

/// Returns x * 2^exponent rounded up, with the same preconditions as `scale_rounded_down`.
PLIMSOLL_HD inline double scale_rounded_up(double x, int exponent) {
  double const nearest = scale_by_power_of_two(x, exponent);
  bool const below = scale_by_power_of_two(nearest, -exponent) < x;
  return below ? double_of(bits_of(nearest) + 1) : nearest;
}

/// Returns floor(x * 2^exponent), computed in integers only, for finite x >= 0, exponent <= 1137
/// and a result below 2^63.
PLIMSOLL_HD inline std::uint64_t fixed_point(double x, int exponent) {
  std::uint64_t const bits = bits_of(x);
  int const field = static_cast<int>(bits >> 52 & 0x7ff);  // masked, since x may be -0
  std::uint64_t const fraction = bits & ((std::uint64_t{1} << 52) - 1);
  std::uint64_t const mantissa = field == 0 ? fraction : fraction | (std::uint64_t{1} << 52);
  int const shift = exponent + (field == 0 ? -1074 : field - 1075);
  if (shift >= 0) {
    return mantissa << shift;
  }
  return shift <= -64 ? 0 : mantissa >> -shift;
}

/// Returns x plus a tolerance of x * 2^-50: comparing with it makes up for the rounding of decimal
/// options. The double 1.1 is a little above 1.1, which must not add a token, and the double 0.29
/// is a little below 0.29, which must not exclude an expert.
PLIMSOLL_HD inline double almost(double x) { return add(x, multiply(x, 0x1p-50)); }

/// Returns e^x to about one unit in the last place for -700 <= x <= 700 (clamped outside), NaN for
/// NaN: x = k ln 2 + r, a polynomial in r, then an exact scaling by 2^k. Products and sums are
/// rounded separately: on a host without an fma instruction, a function call for each fma would
/// take four times as long.
PLIMSOLL_HD inline double exp(double x) {
  constexpr double log2_e = 1.4426950408889634;
  constexpr double ln2_high = 0.6931471803691238;  // k * ln2_high is exact
  constexpr double ln2_low = 1.9082149292705877e-10;
  constexpr double round_to_integer = 6755399441055744.0;  // 1.5 * 2^52
  if (x != x) {
    return x;
  }
  x = x < -700.0 ? -700.0 : (x > 700.0 ? 700.0 : x);
  double const k = add(mul_then_add(x, log2_e, round_to_integer), -round_to_integer);
  double r = mul_then_add(-k, ln2_high, x);
  r = mul_then_add(-k, ln2_low, r);
  // 1/n! for n = 13 down to 2: the next term is below 2^-60 for |r| <= ln(2)/2.
  constexpr double coefficients[] = {
      1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.7557319223985893e-07,
      2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
      0.008333333333333333,   0.041666666666666664, 0.16666666666666666,   0.5};
  double sum = coefficients[0];
  for (int i = 1; i < 12; ++i) {
    sum = mul_then_add(sum, r, coefficients[i]);
  }
  sum = mul_then_add(multiply(sum, r), r, r);
  return scale_by_power_of_two(add(sum, 1.0), static_cast<int>(k));
}

/// Returns log2(x) to a few units in the last place for finite x > 0: x = 2^k m with m in
/// [sqrt(1/2), sqrt(2)), then the series of atanh((m - 1) / (m + 1)).
PLIMSOLL_HD inline double log2(double x) {
  constexpr double log2_e = 1.4426950408889634;
  int k = 0;
  if (x < 2.2250738585072014e-308) {
    x = multiply(x, 18014398509481984.0);  // 2^54: brings a subnormal into the normal range
    k = -54;
  }
  std::uint64_t const bits = bits_of(x);
  k += static_cast<int>(bits >> 52) - 1023;
  double m = double_of((bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1023} << 52));
  if (m >= 1.4142135623730951) {
    m = multiply(m, 0.5);
    ++k;
  }
  double const z = divide(add(m, -1.0), add(m, 1.0));
  double const z2 = multiply(z, z);
  constexpr double coefficients[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                     1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  double sum = 1.0 / 23;  // |z| <= 0.1716: the next term is below 2^-60
  for (double const coefficient : coefficients) {
    sum = mul_add(sum, z2, coefficient);
  }
  double const tail = multiply(multiply(sum, z2), z);
  return mul_add(multiply(2.0, add(tail, z)), log2_e, k);
}

/// Returns x^exponent for finite x >= 0 and 0 < exponent <= 1, to a relative error of 2^-46 for a
/// result up to 2^47. Out of line, since it is long and kernels seldom need it.
PLIMSOLL_NOINLINE PLIMSOLL_HD inline double power(double x, double exponent) {
  constexpr double ln2 = 0.6931471805599453;
  constexpr double round_to_integer = 6755399441055744.0;  // 1.5 * 2^52
  if (!(x > 0)) {
    return 0;
  }
  double const y = multiply(log2(x), exponent);
  double const k = add(add(y, round_to_integer), -round_to_integer);
  return scale_by_power_of_two(exp(multiply(add(y, -k), ln2)), static_cast<int>(k));
}

}}}  // namespace plimsoll::detail

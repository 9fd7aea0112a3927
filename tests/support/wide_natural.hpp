// SPDX-License-Identifier: Apache-2.0
// Natural numbers up to 2^1024, so that oracles compare sums and products of doubles exactly.
#pragma once

#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace plimsoll_test {

class wide_natural {
 public:
  wide_natural() = default;
  /// Makes x * 2^exponent, which must be a whole number below 2^1024, for x >= 0.
  wide_natural(double x, int exponent) {
    int width = 0;
    auto mantissa = static_cast<std::uint64_t>(std::ldexp(std::frexp(x, &width), 53));
    int shift = width - 53 + exponent;
    for (; shift < 0 && mantissa != 0; ++shift) {
      mantissa /= 2;
    }
    auto const at = static_cast<std::size_t>(shift / digit_bits);
    for (std::size_t half = 0; half < 2 && mantissa != 0; ++half) {
      std::uint64_t const part = (mantissa >> half * digit_bits & 0xffffffff) << shift % digit_bits;
      digits_[at + half] |= static_cast<std::uint32_t>(part);
      digits_[at + half + 1] |= static_cast<std::uint32_t>(part >> digit_bits);
    }
  }

  friend wide_natural operator+(wide_natural const& a, wide_natural const& b) {
    wide_natural result;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      carry += std::uint64_t{a.digits_[i]} + b.digits_[i];
      result.digits_[i] = static_cast<std::uint32_t>(carry);
      carry >>= digit_bits;
    }
    return result;
  }
  friend wide_natural operator*(wide_natural const& a, wide_natural const& b) {
    wide_natural result;
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; a.digits_[i] != 0 && i + j < a.digits_.size(); ++j) {
        carry += std::uint64_t{a.digits_[i]} * b.digits_[j] + result.digits_[i + j];
        result.digits_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= digit_bits;
      }
    }
    return result;
  }
  friend bool operator==(wide_natural const&, wide_natural const&) = default;
  friend std::strong_ordering operator<=>(wide_natural const& a, wide_natural const& b) {
    for (std::size_t i = a.digits_.size(); i-- > 0;) {
      if (a.digits_[i] != b.digits_[i]) {
        return a.digits_[i] <=> b.digits_[i];
      }
    }
    return std::strong_ordering::equal;
  }

 private:
  static constexpr int digit_bits = 32;
  std::array<std::uint32_t, 32> digits_{};  ///< lowest digit first
};

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Drifting Zipf popularity of experts, and integer token counts in proportion to it.
///
/// All arithmetic is in integers: a popularity is stored as its base-2 logarithm in units of 2^-16.
/// The same options therefore give the same counts on every machine, which `std::pow` and
/// `std::exp` do not guarantee.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <plimsoll/random.hpp>

namespace examples {

/// Base-2 logarithm in units of 2^-16.
using log2_t = std::int64_t;
inline constexpr int log2_bits = 16;

/// Converts a number to a fixed-point logarithm, rounded to the nearest unit.
[[nodiscard]] inline log2_t to_log2(double value) {
  return std::llround(std::ldexp(value, log2_bits));
}

/// Returns log2(n) for n >= 1: squares the mantissa repeatedly; each square of at least 2 gives a
/// bit.
[[nodiscard]] constexpr log2_t log2_of(std::uint32_t n) {
  int const whole = static_cast<int>(std::bit_width(n)) - 1;
  std::uint64_t mantissa = std::uint64_t{n} << (31 - whole);  // [1, 2) in units of 2^-31
  log2_t result = whole;
  for (int bit = 0; bit < log2_bits; ++bit) {
    mantissa = (mantissa * mantissa) >> 31;
    bool const above_two = (mantissa >> 32) != 0;
    mantissa >>= above_two ? 1 : 0;
    result = 2 * result + (above_two ? 1 : 0);
  }
  return result;
}

/// Returns 2^(1/2), 2^(1/4), ... 2^(1/65536) in units of 2^-31, each the integer square root of the
/// one before.
[[nodiscard]] constexpr std::array<std::uint64_t, log2_bits> binary_roots_of_two() {
  std::array<std::uint64_t, log2_bits> roots{};
  std::uint64_t last = std::uint64_t{1} << 32;
  for (std::uint64_t& root : roots) {
    std::uint64_t const square = last << 31;
    root = 0;
    for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
      if ((root + bit) * (root + bit) <= square) {
        root += bit;
      }
    }
    last = root;
  }
  return roots;
}

/// Bits of the largest weight; total * weight, from which counts are computed, then fits in 64
/// bits.
inline constexpr int weight_bits = 24;
/// The total number of token copies must stay below 2^40 for the same reason.
inline constexpr std::int64_t total_limit = std::int64_t{1} << (64 - weight_bits);

/// Returns 2^(exponent + weight_bits) for an exponent <= 0, but at least 1.
[[nodiscard]] constexpr std::uint64_t weight_of(log2_t exponent) {
  constexpr std::array<std::uint64_t, log2_bits> roots = binary_roots_of_two();
  log2_t const whole = exponent >> log2_bits;  // rounds down
  if (whole < -weight_bits) {
    return 1;
  }
  std::uint64_t mantissa = std::uint64_t{1} << 31;
  for (int i = 0; i < log2_bits; ++i) {
    bool const set = ((exponent >> (log2_bits - 1 - i)) & 1) != 0;
    if (set) {
      mantissa = (mantissa * roots[static_cast<std::size_t>(i)]) >> 31;
    }
  }
  return std::max<std::uint64_t>(mantissa >> (31 - weight_bits - whole), 1);
}

/// Returns a nearly normal number with mean 0 and variance 1, in units of 2^-16: the sum of twelve
/// uniform numbers.
[[nodiscard]] inline log2_t normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  constexpr std::int64_t mean_of_twelve = 6 * 65535;
  std::int64_t sum = -mean_of_twelve;
  for (std::uint64_t word = 0; word < 3; ++word) {
    std::uint64_t bits = plimsoll::random::bits(seed, stream, 3 * index + word);
    for (int part = 0; part < 4; ++part, bits >>= 16) {
      sum += static_cast<std::int64_t>(bits & 0xffff);
    }
  }
  return sum;
}

/// The popularity of every expert of one layer.
class layer_popularity {
 public:
  /// Starts with Zipf popularity: the expert at place k has weight (k + 1)^-skew, and places are
  /// random.
  layer_popularity(std::uint64_t seed, std::uint64_t layer, std::size_t experts, double skew)
      : seed_(seed), layer_(layer), log2_(experts) {
    std::vector<std::pair<std::uint64_t, std::size_t>> order(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      order[e] = {plimsoll::random::bits(seed_, 2 * layer_, e), e};
    }
    std::sort(order.begin(), order.end());
    log2_t const exponent = to_log2(skew);
    for (std::size_t place = 0; place < experts; ++place) {
      log2_t const log_of_place = log2_of(static_cast<std::uint32_t>(place + 1));
      log2_[order[place].second] = -((exponent * log_of_place) >> log2_bits);
    }
  }

  /// Advances one step: multiplies every popularity by exp(drift * z), z standard normal.
  void walk(double drift) {
    constexpr double log2_of_e = 1.4426950408889634;
    log2_t const scale = to_log2(drift * log2_of_e);
    std::uint64_t const first = steps_++ * log2_.size();
    for (std::size_t e = 0; e < log2_.size(); ++e) {
      log2_[e] += (scale * normal(seed_, 2 * layer_ + 1, first + e)) >> log2_bits;
    }
  }

  /// Returns weights in proportion to the popularity; the largest is 2^24.
  [[nodiscard]] std::vector<std::uint64_t> weights() const {
    log2_t const largest = *std::max_element(log2_.begin(), log2_.end());
    std::vector<std::uint64_t> result(log2_.size());
    std::transform(log2_.begin(), log2_.end(), result.begin(),
                   [largest](log2_t value) { return weight_of(value - largest); });
    return result;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t layer_;
  std::uint64_t steps_ = 0;
  std::vector<log2_t> log2_;
};

namespace detail {

/// Divides `total` over the experts in `open` in proportion to their weights, by largest
/// remainders. No count exceeds its exact share rounded up.
inline void apportion(std::span<std::uint64_t const> weights, std::span<std::size_t const> open,
                      std::uint64_t total, std::span<std::int32_t> counts) {
  std::uint64_t sum = 0;
  for (std::size_t const e : open) {
    sum += weights[e];
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> remainders;
  std::uint64_t left = total;
  for (std::size_t const e : open) {
    std::uint64_t const share = total * weights[e];
    counts[e] = static_cast<std::int32_t>(share / sum);
    left -= share / sum;
    remainders.emplace_back(sum - share % sum, e);  // ascending: the largest remainder first
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::uint64_t i = 0; i < left; ++i) {
    ++counts[remainders[static_cast<std::size_t>(i)].second];
  }
}

}  // namespace detail

/// Computes counts in proportion to `weights` that sum to `total`, none above `cap`, since a token
/// visits an expert at most once. Tokens above the cap go to the other experts, again in
/// proportion. Needs cap * weights.size() >= total and total < total_limit.
inline void count_tokens(std::span<std::uint64_t const> weights, std::int64_t total,
                         std::int64_t cap, std::span<std::int32_t> counts) {
  std::vector<std::size_t> open(weights.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  auto left = static_cast<std::uint64_t>(total);
  auto const most = static_cast<std::uint64_t>(cap);
  for (bool capped = true; capped && !open.empty();) {
    std::uint64_t sum = 0;
    for (std::size_t const e : open) {
      sum += weights[e];
    }
    // All shares are compared before any is removed, so that the order of experts does not matter.
    auto const above = [&](std::size_t e) { return left * weights[e] / sum >= most; };
    auto const first =
        std::stable_partition(open.begin(), open.end(), [&](std::size_t e) { return !above(e); });
    capped = first != open.end();
    for (auto at = first; at != open.end(); ++at) {
      counts[*at] = static_cast<std::int32_t>(cap);
    }
    left -= most * static_cast<std::uint64_t>(open.end() - first);
    open.erase(first, open.end());
  }
  detail::apportion(weights, open, left, counts);
}

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Radix selection: finds the threshold of the largest keys digit by digit, without sorting.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Threshold of the largest keys, which are those that `has` accepts. If not all keys at the
/// threshold are among the largest, `taken` of them are.
struct radix_threshold {
  std::uint64_t prefix = 0;
  int shift = 64;        ///< bits below the prefix; 64: every key is accepted
  index_t taken = 0;     ///< how many of the keys with this prefix are among the largest
  bool complete = true;  ///< all of those are

  [[nodiscard]] PLIMSOLL_HD bool has(std::uint64_t key) const {
    return shift >= 64 || key >> shift >= prefix;
  }
  [[nodiscard]] PLIMSOLL_HD bool is_last(std::uint64_t key) const {
    return shift < 64 && key >> shift == prefix;
  }
};

inline constexpr int radix_bits = 8;  // of a digit; the lowest may have fewer
inline constexpr index_t radix_bins = index_t{1} << radix_bits;

/// Scratch of `radix_select`.
struct radix_arrays {
  scratch_ref memory;

  std::int32_t* counts = memory.take(radix_bins);  ///< keys of each digit
  /// Keys of higher digits, from the highest digit on.
  std::int32_t* above = memory.take(radix_bins);
};

/// Finds the threshold of the `wanted` largest of those of n keys for which eligible(i) is true;
/// 0 < wanted <= the number of eligible keys. key_of(i) is below 2^bits.
template <class Team, class KeyOf, class Eligible>
PLIMSOLL_HD radix_threshold radix_select(Team& team, scratch memory, index_t n, index_t wanted,
                                         int bits, KeyOf key_of, Eligible eligible) {
  radix_arrays const arrays{memory};
  std::int32_t* const counts = arrays.counts;
  std::int32_t* const above = arrays.above;
  radix_threshold result{0, bits, wanted, false};
  while (result.shift > 0 && !result.complete) {
    std::uint64_t const prefix = result.prefix;
    int const width = minimum{}(result.shift, radix_bits);
    int const shift = result.shift - width;
    std::uint64_t const mask = (std::uint64_t{1} << width) - 1;
    team.histogram(
        n,
        [=](index_t i) {
          std::uint64_t const key = key_of(i) >> shift;
          // An empty prefix matches all keys; the shift is below 64.
          return eligible(i) && key >> width == prefix ? static_cast<std::int32_t>(key & mask) : -1;
        },
        counts, radix_bins);
    team.exclusive_scan(
        radix_bins, [counts](index_t i) { return counts[radix_bins - 1 - i]; }, above);
    index_t const wanted_here = result.taken;
    index_t const position =
        team.max(radix_bins, [=](index_t i) { return above[i] < wanted_here ? i : index_t{0}; });
    index_t const digit = radix_bins - 1 - position;
    result.taken -= above[position];
    result.complete = result.taken == counts[digit];
    result.prefix = prefix << width | static_cast<std::uint64_t>(digit);
    result.shift = shift;
  }
  return result;
}

}}}  // namespace plimsoll::detail

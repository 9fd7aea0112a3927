// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counter-based random numbers: a value depends on (seed, subsequence, index) only, so that every
/// thread, rank and backend draws the same numbers without sharing state. The generator is
/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace random {

/// One block of four 32-bit words.
struct philox_block {
  std::uint32_t word[4];
};

/// Computes Philox4x32-10 of a 128-bit counter and a 64-bit key, in constant time and without
/// state.
PLIMSOLL_HD constexpr philox_block philox(philox_block counter, std::uint32_t key0,
                                          std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53u} * counter.word[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = philox_block{{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                            static_cast<std::uint32_t>(b),
                            static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                            static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Returns 64 uniform bits for (seed, subsequence, index).
PLIMSOLL_HD constexpr std::uint64_t bits(std::uint64_t seed, std::uint64_t subsequence,
                                         std::uint64_t index) {
  philox_block const block = philox(
      philox_block{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    static_cast<std::uint32_t>(subsequence),
                    static_cast<std::uint32_t>(subsequence >> 32)}},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return (static_cast<std::uint64_t>(block.word[1]) << 32) | block.word[0];
}

/// Returns a multiple of 2^-53, uniform in [0, 1), for (seed, subsequence, index).
PLIMSOLL_HD constexpr double uniform(std::uint64_t seed, std::uint64_t subsequence,
                                     std::uint64_t index) {
  return static_cast<double>(bits(seed, subsequence, index) >> 11) * 0x1p-53;
}

}}}  // namespace plimsoll::random

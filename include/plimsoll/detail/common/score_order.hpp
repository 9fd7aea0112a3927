// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps scores to integers in the same order.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Key of NaN, which ranks below every number; 0, below it, is free to mean no score.
inline constexpr std::uint32_t nan_key = 1;

/// Replaces any NaN by the same one, since processors produce different bits.
PLIMSOLL_HD inline float one_nan(float x) { return x == x ? x : __builtin_nanf(""); }

/// Returns a key that rises with the score; both zeros have the same key. It has no branches, so
/// that compilers vectorize loops over it.
PLIMSOLL_HD inline std::uint32_t key_of(float score) {
  // Integers throughout: compiler options may round subnormal floats to 0 or ignore signs of 0.
  auto const given = __builtin_bit_cast(std::uint32_t, score);
  // A mask and an arithmetic shift: g++ would select and multiply by twice as many instructions.
  std::uint32_t const bits = given & -static_cast<std::uint32_t>(given != 0x80000000u);
  auto const flip = static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u;
  return (bits & 0x7fffffffu) <= 0x7f800000u ? bits ^ flip : nan_key;
}

/// Returns the key, where scores are given by their keys.
PLIMSOLL_HD inline std::uint32_t key_of(std::uint32_t key) { return key; }

/// Score, or key, that is above no other.
template <class Score>
inline constexpr Score no_score = 0;
template <>
inline constexpr float no_score<float> = __builtin_nanf("");

/// Returns the score of a key.
PLIMSOLL_HD inline float score_of(std::uint32_t key) {
  constexpr std::uint32_t sign = 0x80000000u;
  return key == nan_key ? __builtin_nanf("")
                        : __builtin_bit_cast(float, (key & sign) != 0 ? key & ~sign : ~key);
}

/// Packs a key and an index so that the largest packed number has the largest key and, of equal
/// keys, the lowest index.
PLIMSOLL_HD inline std::uint64_t with_index(std::uint32_t key, index_t i) {
  return std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(i);
}
PLIMSOLL_HD inline std::int32_t index_in(std::uint64_t packed) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(packed));
}

}}}  // namespace plimsoll::detail

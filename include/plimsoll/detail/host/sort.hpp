// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sorting of a serial team.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Sorts keys of which all but a few rise: takes out neighbors that fall, and merges them back.
/// Returns false, with the keys in any order, if there are more than a few.
inline bool sort_few_outliers(std::uint64_t* keys, index_t n) {
  constexpr index_t most = 16;
  std::uint64_t out[most];
  index_t outliers = 0;
  index_t rising = 0;
  for (index_t i = 0; i < n; ++i) {
    if (rising == 0 || keys[i] >= keys[rising - 1]) {
      keys[rising++] = keys[i];
    } else if (outliers + 2 > most) {
      std::copy(out, out + outliers, keys + rising);  // as many as keys are missing before i
      return false;
    } else {
      out[outliers++] = keys[--rising];
      out[outliers++] = keys[i];
    }
  }
  std::sort(out, out + outliers);
  for (index_t to = n - 1; outliers > 0; --to) {
    bool const is_outlier = rising == 0 || out[outliers - 1] > keys[rising - 1];
    keys[to] = is_outlier ? out[--outliers] : keys[--rising];
  }
  return true;
}

/// Sorts 48 to 1024 keys by an LSD radix sort, others by std::sort. No branch of a radix sort
/// depends on a key, while std::sort mispredicts every other comparison of new keys. The keys of
/// planners are loads above 16-bit ids, listed by ascending id, so the passes skip the id bits, and
/// leading and trailing bits that are the same in all keys. Keys listed in another order were
/// sorted before, and few of them have changed.
inline void sort_keys(std::uint64_t* keys, index_t n) {
  constexpr index_t fewest = 48;  // below this, std::sort is faster
  constexpr index_t most = 1024;
  if (n < fewest || n > most) {
    std::sort(keys, keys + n);
    return;
  }
  constexpr std::uint64_t id_bits = 0xffff;
  constexpr int widest = 8;
  std::uint64_t ones = 0;
  std::uint64_t zeros = 0;
  std::uint64_t id = 0;
  bool ids_rise = true;
  for (index_t i = 0; i < n; ++i) {
    ones |= keys[i];
    zeros |= ~keys[i];
    ids_rise &= id <= (keys[i] & id_bits);
    id = keys[i] & id_bits;
  }
  if (!ids_rise && sort_few_outliers(keys, n)) {
    return;
  }
  std::uint64_t const differ = ones & zeros & ~(ids_rise ? id_bits : 0);
  if (differ == 0) {
    return;
  }
  int const low = std::countr_zero(differ);
  int const high = 64 - std::countl_zero(differ);
  int const digits = (high - low + widest - 1) / widest;
  int const width = (high - low + digits - 1) / digits;
  std::uint64_t const mask = (std::uint64_t{1} << width) - 1;

  std::uint64_t buffer[most];
  std::uint64_t* from = keys;
  std::uint64_t* to = buffer;
  for (int shift = low; shift < high; shift += width) {
    std::uint16_t position[1 << widest];
    std::fill(position, position + mask + 1, std::uint16_t{0});
    for (index_t i = 0; i < n; ++i) {
      ++position[from[i] >> shift & mask];
    }
    std::uint16_t before = 0;
    for (std::uint64_t digit = 0; digit <= mask; ++digit) {
      before = static_cast<std::uint16_t>(before + std::exchange(position[digit], before));
    }
    for (index_t i = 0; i < n; ++i) {
      to[position[from[i] >> shift & mask]++] = from[i];
    }
    std::swap(from, to);
  }
  if (from != keys) {
    std::copy(from, from + n, keys);
  }
}

/// Sorts keys of any other type.
template <class Key>
void sort_keys(Key* keys, index_t n) {
  std::sort(keys, keys + n);
}

}}}  // namespace plimsoll::detail

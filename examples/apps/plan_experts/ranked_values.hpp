// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the k-th smallest of any number of values, without holding them in memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "byte_store.hpp"

namespace examples {

/// Non-negative values in a `byte_store`.
class ranked_values {
 public:
  explicit ranked_values(std::string name) : store_(std::move(name)) {}

  void add(double value) {
    auto const bits = std::bit_cast<std::uint64_t>(value);
    store_.append({reinterpret_cast<char const*>(&bits), sizeof bits});
  }

  [[nodiscard]] std::uint64_t count() const { return store_.size() / sizeof(std::uint64_t); }

  /// Returns the value at index `rank` of the sorted values; `rank` is below `count()`. This is a
  /// radix selection: the bits of non-negative doubles sort as the doubles do, so each pass counts
  /// sixteen bits, from the top.
  [[nodiscard]] double at(std::uint64_t rank) const {
    std::uint64_t prefix = 0;
    for (int shift = 48; shift >= 0; shift -= 16) {
      std::vector<std::uint64_t> having(1 << 16);
      for_each([&](std::uint64_t bits) {
        if (shift == 48 || bits >> (shift + 16) == prefix) {
          ++having[bits >> shift & 0xffff];
        }
      });
      std::size_t digit = 0;
      for (; having[digit] <= rank; ++digit) {
        rank -= having[digit];
      }
      prefix = prefix << 16 | digit;
    }
    return std::bit_cast<double>(prefix);
  }

 private:
  template <class Visit>
  void for_each(Visit&& visit) const {
    constexpr std::uint64_t at_once = 1 << 15;
    std::vector<std::uint64_t> some;
    for (std::uint64_t first = 0; first < count(); first += some.size()) {
      some.resize(static_cast<std::size_t>(std::min(at_once, count() - first)));
      store_.read(first * sizeof(std::uint64_t), reinterpret_cast<char*>(some.data()),
                  some.size() * sizeof(std::uint64_t));
      std::for_each(some.begin(), some.end(), visit);
    }
  }

  byte_store store_;
};

}  // namespace examples

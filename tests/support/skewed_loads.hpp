// SPDX-License-Identifier: Apache-2.0
// Loads for planning tests, and helper functions.
#pragma once

#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>

#include <cstdint>
#include <vector>

namespace plimsoll_test {

using plimsoll::index_t;

/// Skewed whole-number loads `[layers, experts]`, some of them zero and some equal.
inline std::vector<std::int64_t> skewed_loads(index_t layers, index_t experts, std::uint64_t seed) {
  std::vector<std::int64_t> loads;
  for (index_t i = 0; i < layers * experts; ++i) {
    double const u = plimsoll::random::uniform(seed, 0, static_cast<std::uint64_t>(i));
    loads.push_back(u < 0.05 ? 0 : static_cast<std::int64_t>(20.0 / (0.02 + u * u)));
  }
  return loads;
}

template <class T>
std::vector<T> as(std::vector<std::int64_t> const& values) {
  return std::vector<T>(values.begin(), values.end());
}

inline std::vector<std::int64_t> row_of(std::vector<std::int64_t> const& matrix, index_t row,
                                        index_t columns) {
  return {matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns};
}

}  // namespace plimsoll_test

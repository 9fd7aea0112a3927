// SPDX-License-Identifier: Apache-2.0
// Made-up tokens of experts that drift, and how balanced a map is with them. Integers decide, so that every
// machine prints the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cpp_engines {

/// Tokens of one layer in one step. A few experts are hot; others become hot every `hot_steps`.
inline std::vector<int> drifting_tokens(int layer, int step, int experts, int hot_steps = 200) {
  std::uint32_t state = static_cast<std::uint32_t>(layer * 7919 + step * 104729 + 1);
  std::vector<int> tokens;
  for (int e = 0; e < experts; ++e) {
    state = state * 1664525U + 1013904223U;
    int const hot = (e * 5 + layer * 3 + step / hot_steps) % 16;
    tokens.push_back(20 + static_cast<int>(state >> 28U) + (hot == 0 ? 400 : hot < 4 ? 120 : 0));
  }
  return tokens;
}

/// Mean over the live ranks of their tokens, over the most of a rank; every expert's tokens are
/// split evenly among its copies.
/// @param map [ranks][slots of a rank], -1 in empty slots
inline double balancedness(std::vector<std::vector<int>> const& map,
                           std::vector<int> const& tokens) {
  std::vector<int> copies(tokens.size());
  for (auto const& rank : map) {
    for (int const expert : rank) {
      if (expert >= 0) {
        ++copies[static_cast<std::size_t>(expert)];
      }
    }
  }
  double sum = 0;
  double most = 0;
  int live = 0;
  for (auto const& rank : map) {
    double of_rank = 0;
    bool is_live = false;
    for (int const expert : rank) {
      if (expert >= 0) {
        auto const e = static_cast<std::size_t>(expert);
        of_rank += static_cast<double>(tokens[e]) / copies[e];
        is_live = true;
      }
    }
    sum += of_rank;
    most = std::max(most, of_rank);
    live += is_live ? 1 : 0;
  }
  return sum / live / most;
}

}  // namespace cpp_engines

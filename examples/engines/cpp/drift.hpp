// SPDX-License-Identifier: Apache-2.0
// Made-up loads and figures for the drivers in the folders beside this file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace cpp_engines {

inline void expect(bool holds, char const* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

/// Prints what a call is refused for.
template <class Call>
void print_refusal(Call call) {
  try {
    call();
  } catch (std::runtime_error const& error) {
    std::printf("  refused: %s\n", error.what());
    return;
  }
  expect(false, "a wrong input was taken");
}

/// Draws loads whose busy experts change slowly. Integers only: the same loads on every machine.
class drifting_loads {
 public:
  /// @param steps steps in which the first ranking of experts gives way to the second
  drifting_loads(int experts, int steps) : experts_(experts), steps_(steps) {}

  /// Draws the loads of a layer in a step, [experts].
  std::vector<std::int64_t> draw(int step, int layer) {
    std::vector<std::int64_t> loads;
    for (int expert = 0; expert < experts_; ++expert) {
      // The expert at place p of a ranking has 1 / (p + 1) of the load of its first one.
      int const first = 960 / (1 + (7 * expert + 5 * layer) % experts_);
      int const second = 960 / (1 + (11 * expert + 3 * layer + 8) % experts_);
      std::int64_t const mean = (first * (steps_ - step) + second * step) / steps_;
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
      auto const random = static_cast<std::int64_t>(state_ >> 33);
      loads.push_back(mean + random % (1 + mean / 2));
    }
    return loads;
  }

 private:
  int experts_, steps_;
  std::uint64_t state_ = 1;
};

inline std::vector<int> count_copies(int const* map, std::size_t slots, std::size_t experts) {
  std::vector<int> copies(experts, 0);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (map[slot] != -1) {
      ++copies.at(static_cast<std::size_t>(map[slot]));
    }
  }
  return copies;
}

inline bool has_all_experts(int const* map, std::size_t slots, std::size_t experts) {
  std::vector<int> const copies = count_copies(map, slots, experts);
  return std::find(copies.begin(), copies.end(), 0) == copies.end();
}

/// Mean over ranks / maximum over ranks, where the copies of an expert share its load evenly. Ranks
/// without experts do not count.
/// @param map [ranks, slots_per_rank]
inline double balancedness(std::vector<std::int64_t> const& loads, int const* map,
                           std::size_t ranks, std::size_t slots_per_rank) {
  std::vector<int> const copies = count_copies(map, ranks * slots_per_rank, loads.size());
  std::vector<double> of_ranks(ranks, 0.0);
  for (std::size_t slot = 0; slot < ranks * slots_per_rank; ++slot) {
    if (map[slot] != -1) {
      auto const expert = static_cast<std::size_t>(map[slot]);
      of_ranks[slot / slots_per_rank] += static_cast<double>(loads[expert]) / copies[expert];
    }
  }
  double const total = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
  auto const idle = std::count(of_ranks.begin(), of_ranks.end(), 0.0);
  return total / static_cast<double>(of_ranks.size() - static_cast<std::size_t>(idle)) /
         *std::max_element(of_ranks.begin(), of_ranks.end());
}

/// Slots that get an expert of another rank.
inline int count_moves(int const* before, int const* after, std::size_t ranks,
                       std::size_t slots_per_rank) {
  int moves = 0;
  for (std::size_t slot = 0; slot < ranks * slots_per_rank; ++slot) {
    int const* const rank = before + slot / slots_per_rank * slots_per_rank;
    moves += std::find(rank, rank + slots_per_rank, after[slot]) == rank + slots_per_rank ? 1 : 0;
  }
  return moves;
}

}  // namespace cpp_engines

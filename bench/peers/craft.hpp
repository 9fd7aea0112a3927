// SPDX-License-Identifier: Apache-2.0
// CRAFT in a straightforward form with the standard library, for comparison: algorithm 1 plan by
// plan and step by step, with the layers on all cores, and algorithm 2 as a table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "eplb.hpp"

namespace plimsoll_bench::peers {

/// Returns the replicas of every layer for loads `[steps, layers, experts]`. `counts` must rise,
/// and `budget` is for all layers together.
inline std::vector<std::int32_t> craft_loops(std::int32_t const* loads, std::size_t steps,
                                             std::size_t layers, std::size_t experts,
                                             std::size_t ranks,
                                             std::vector<std::size_t> const& counts,
                                             std::size_t budget) {
  std::size_t const width = counts.size() + 1;
  std::vector<double> balancedness(layers * width);
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<double> carried(ranks);
    std::vector<double> sum(experts, 0.0);
    for (std::size_t t = 0; t < steps; ++t) {
      for (std::size_t e = 0; e < experts; ++e) {
        sum[e] += loads[(t * layers + l) * experts + e];
      }
    }
    for (std::size_t k = 0; k < width; ++k) {
      std::size_t const total = experts + (k == 0 ? 0 : counts[k - 1]);
      plan const p = eplb_heaps(sum.data(), experts, ranks, total);
      double mean = 0;
      for (std::size_t t = 0; t < steps; ++t) {
        std::int32_t const* const load = loads + (t * layers + l) * experts;
        std::fill(carried.begin(), carried.end(), 0.0);
        double all = 0;
        std::size_t const room = (total + ranks - 1) / ranks;
        for (std::size_t slot = 0; slot < p.map.size(); ++slot) {
          if (std::int32_t const e = p.map[slot]; e >= 0) {
            double const share =
                static_cast<double>(load[e]) / p.counts[static_cast<std::size_t>(e)];
            carried[slot / room] += share;
            all += share;
          }
        }
        double const peak = *std::max_element(carried.begin(), carried.end());
        mean += peak > 0 ? all / static_cast<double>(ranks) / peak : 1;
      }
      balancedness[l * width + k] = mean / static_cast<double>(steps);
    }
  }

  std::vector<double> best(budget + 1, 0.0);
  std::vector<std::vector<std::size_t>> choice(layers, std::vector<std::size_t>(budget + 1, 0));
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<double> next = best;
    for (std::size_t c = 0; c <= budget; ++c) {
      for (std::size_t k = 0; k < counts.size() && counts[k] <= c; ++k) {
        double const value =
            best[c - counts[k]] + balancedness[l * width + k + 1] - balancedness[l * width];
        if (value > next[c]) {
          next[c] = value;
          choice[l][c] = k + 1;
        }
      }
    }
    best = next;
  }
  std::vector<std::int32_t> replicas(layers);
  for (std::size_t l = layers, c = budget; l-- > 0;) {
    if (std::size_t const k = choice[l][c]; k > 0) {
      replicas[l] = static_cast<std::int32_t>(counts[k - 1]);
      c -= counts[k - 1];
    }
  }
  return replicas;
}

}  // namespace plimsoll_bench::peers

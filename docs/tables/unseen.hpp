// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recorded loads cut into steps to plan from and steps to judge the plan by, for tables of plans
/// in steps that they were not made from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "../../examples/apps/plan_experts/npy.hpp"
#include "traces.hpp"

namespace examples {

using plimsoll::index_t;

/// Steps to plan from and steps to judge the plan by, [steps, layers, experts] each.
struct cut {
  index_t layers = 0;
  index_t experts = 0;
  std::vector<std::int64_t> seen = {};
  std::vector<std::int64_t> unseen = {};

  [[nodiscard]] index_t steps_of(std::vector<std::int64_t> const& loads) const {
    return std::ssize(loads) / (layers * experts);
  }
  [[nodiscard]] plimsoll::tensor_ref<std::int64_t const> history() const {
    return {seen.data(), steps_of(seen), layers, experts};
  }
  /// Returns the sum of the steps to plan from, [layers, experts].
  [[nodiscard]] std::vector<std::int64_t> sums() const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(layers * experts), 0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      result[i % result.size()] += seen[i];
    }
    return result;
  }
};

/// Rows of a table: the cuts of one trace, and the ranks, each with as many extra slots.
struct workload {
  std::string name;
  std::string file;
  int least_steps;
  std::vector<index_t> ranks;
  /// Pairs of the first and the last step of history and of future.
  std::function<std::vector<std::pair<std::vector<index_t>, std::vector<index_t>>>(index_t)> cuts;
};

inline std::vector<index_t> range(index_t first, index_t last, index_t stride = 1) {
  std::vector<index_t> result;
  for (index_t i = first; i <= last; i += stride) {
    result.push_back(i);
  }
  return result;
}

inline std::vector<workload> workloads() {
  std::string const glm = "glm-5.2-ten-domains/counts_by_chunk.npy";
  return {{"GLM-5.2, one domain",
           glm,
           80,
           {8, 16, 32, 64},
           [](index_t) {
             std::vector<std::pair<std::vector<index_t>, std::vector<index_t>>> result;
             for (index_t domain = 0; domain < 10; ++domain) {
               result.emplace_back(range(8 * domain, 8 * domain + 3),
                                   range(8 * domain + 4, 8 * domain + 7));
             }
             return result;
           }},
          {"GLM-5.2, ten domains",
           glm,
           80,
           {8, 32},
           [](index_t) {
             return std::vector{std::pair{range(0, 79, 8), range(5, 79, 8)}};
           }},
          {"gpt-oss-20b, decoding",
           "gpt-oss-20b-decode/counts_by_decode_step.npy",
           251,
           {8},
           [](index_t) {
             return std::vector{std::pair{range(12, 60), range(61, 250)}};
           }},
          {"DeepSeek-V2-Lite, four tasks",
           "deepseek-v2-lite-esft/counts_by_256tok.npy",
           16,
           {8, 16, 32},
           [](index_t steps) {
             std::vector<std::pair<std::vector<index_t>, std::vector<index_t>>> result;
             for (index_t first = 0; first + 16 <= steps; first += 8) {
               result.emplace_back(range(first, first + 7), range(first + 8, first + 15));
             }
             return result;
           }}};
}

inline cut cut_of(npy::array<std::int64_t> const& recorded, std::vector<index_t> const& seen,
                  std::vector<index_t> const& unseen) {
  cut result{recorded.shape[1], recorded.shape[2]};
  index_t const size = result.layers * result.experts;
  auto const copy = [&](std::vector<index_t> const& steps, std::vector<std::int64_t>& to) {
    for (index_t const step : steps) {
      auto const* const from = recorded.values.data() + step * size;
      to.insert(to.end(), from, from + size);
    }
  };
  copy(seen, result.seen);
  copy(unseen, result.unseen);
  return result;
}

struct mean {
  double sum = 0;
  double count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  [[nodiscard]] std::string cell() const {
    char text[40];
    std::snprintf(text, sizeof text, "%.4f", sum / count);
    return text;
  }
};

/// Balancedness with the even and with the optimal split.
struct judged {
  mean even;
  mean optimal;

  /// Adds every layer in every unseen step.
  template <class Placement>
  void add(cut const& c, Placement const& plan) {
    plimsoll::placement_ref const placed = plan.ref();
    index_t const slots = placed.physical_to_logical.extent(1);
    auto const ranks = static_cast<std::size_t>(placed.ranks);
    plimsoll::minmax_lp lp(plimsoll::seq, placed, {.tolerance = 0});
    std::vector<double> split(static_cast<std::size_t>(c.layers * slots));
    for (index_t step = 0; step < c.steps_of(c.unseen); ++step) {
      plimsoll::matrix_ref<std::int64_t const> const loads(
          c.unseen.data() + step * c.layers * c.experts, c.layers, c.experts);
      lp.solve(loads, plimsoll::matrix_ref<double>(split.data(), c.layers, slots));
      for (index_t layer = 0; layer < c.layers; ++layer) {
        std::vector<double> rank_loads(ranks, 0.0);
        for (index_t slot = 0; slot < slots; ++slot) {
          std::int32_t const e = placed.physical_to_logical(layer, slot);
          if (e >= 0) {
            rank_loads[static_cast<std::size_t>(((slot + 1) * placed.ranks - 1) / slots)] +=
                static_cast<double>(loads(layer, e)) / placed.replica_count(layer, e);
          }
        }
        double total = 0;
        for (double const one : rank_loads) {
          total += one;
        }
        if (total > 0) {
          double const average = total / static_cast<double>(ranks);
          even.add(average / *std::max_element(rank_loads.begin(), rank_loads.end()));
          optimal.add(average / lp.certificates()[static_cast<std::size_t>(layer)].value);
        }
      }
    }
  }
  [[nodiscard]] std::string cells() const { return even.cell() + " | " + optimal.cell(); }
};

}  // namespace examples

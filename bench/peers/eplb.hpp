// SPDX-License-Identifier: Apache-2.0
// EPLB as one would write it down with the standard library, for comparison. Two ways that
// published engines go about it, in our own code and without their languages' overhead:
// `loops` scans all experts and all ranks for the next best one, `heaps` uses priority queues over
// doubles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

namespace plimsoll_bench::peers {

struct plan {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> counts;
};

/// The replicas of a layer, heaviest first.
template <class Load>
std::vector<std::pair<double, std::int32_t>> sorted_replicas(
    Load const* loads, std::vector<std::int32_t> const& counts) {
  std::vector<std::pair<double, std::int32_t>> replicas;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    for (std::int32_t copy = 0; copy < counts[e]; ++copy) {
      replicas.emplace_back(-static_cast<double>(loads[e]) / counts[e],
                            static_cast<std::int32_t>(e));
    }
  }
  std::sort(replicas.begin(), replicas.end());
  return replicas;
}

inline plan eplb_loops(std::int32_t const* loads, std::size_t experts, std::size_t ranks,
                       std::size_t slots) {
  plan result{std::vector<std::int32_t>(slots), std::vector<std::int32_t>(experts, 1)};
  for (std::size_t extra = experts; extra < slots; ++extra) {
    std::size_t best = 0;
    for (std::size_t e = 1; e < experts; ++e) {
      if (static_cast<double>(loads[e]) / result.counts[e] >
          static_cast<double>(loads[best]) / result.counts[best]) {
        best = e;
      }
    }
    ++result.counts[best];
  }
  std::size_t const room = slots / ranks;
  std::vector<double> carried(ranks, 0.0);
  std::vector<std::size_t> used(ranks, 0);
  for (auto const& [weight, expert] : sorted_replicas(loads, result.counts)) {
    std::size_t best = ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (used[r] < room && (best == ranks || carried[r] < carried[best])) {
        best = r;
      }
    }
    result.map[best * room + used[best]++] = expert;
    carried[best] -= weight;
  }
  return result;
}

/// Every rank has the same slots in the map; -1 in those that remain empty.
template <class Load>
plan eplb_heaps(Load const* loads, std::size_t experts, std::size_t ranks, std::size_t slots) {
  std::size_t const room = (slots + ranks - 1) / ranks;
  plan result{std::vector<std::int32_t>(room * ranks, -1), std::vector<std::int32_t>(experts, 1)};
  std::priority_queue<std::pair<double, std::size_t>> heaviest;
  for (std::size_t e = 0; e < experts; ++e) {
    heaviest.emplace(static_cast<double>(loads[e]), e);
  }
  for (std::size_t extra = experts; extra < slots; ++extra) {
    std::size_t const e = heaviest.top().second;
    heaviest.pop();
    ++result.counts[e];
    heaviest.emplace(static_cast<double>(loads[e]) / result.counts[e], e);
  }
  using rank = std::pair<double, std::size_t>;
  std::priority_queue<rank, std::vector<rank>, std::greater<>> lightest;
  for (std::size_t r = 0; r < ranks; ++r) {
    lightest.emplace(0.0, r);
  }
  std::vector<std::size_t> used(ranks, 0);
  for (auto const& [weight, expert] : sorted_replicas(loads, result.counts)) {
    auto const [load, r] = lightest.top();
    lightest.pop();
    result.map[r * room + used[r]++] = expert;
    if (used[r] < room) {
      lightest.emplace(load - weight, r);
    }
  }
  return result;
}

}  // namespace plimsoll_bench::peers

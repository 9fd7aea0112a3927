// SPDX-License-Identifier: Apache-2.0
// Named inputs of the benchmarks, the same on every machine, and how goals are measured.
#pragma once

#include <benchmark/benchmark.h>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll_bench {

using plimsoll::index_t;

/// `[layers, experts]` token counts: log-normal-like popularity (the exponential of a sum of four
/// uniforms), about 4096 tokens per expert, a skew of about 10 between the hottest and the mean.
inline std::vector<std::int32_t> lognormal_loads(index_t layers, index_t experts,
                                                 std::uint64_t seed = 1) {
  std::vector<std::int32_t> loads;
  for (index_t i = 0; i < layers * experts; ++i) {
    double z = -2;
    for (std::uint64_t draw = 0; draw < 4; ++draw) {
      z += plimsoll::random::uniform(seed, draw, static_cast<std::uint64_t>(i));
    }
    loads.push_back(static_cast<std::int32_t>(4096 * plimsoll::detail::exp(1.7 * z)));
  }
  return loads;
}

inline double percentile_99(std::vector<double> const& times) {
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * 99 + 99) / 100 - 1];
}

/// A goal is the median of 200 single runs, with their 99th percentile beside it.
inline void as_goal(benchmark::internal::Benchmark* b) {
  b->Iterations(1)
      ->Repetitions(200)
      ->ReportAggregatesOnly()
      ->ComputeStatistics("p99", percentile_99)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

template <class T>
plimsoll::matrix_ref<T> matrix(std::vector<T>& elements, index_t rows, index_t columns) {
  return {elements.data(), rows, columns};
}

}  // namespace plimsoll_bench

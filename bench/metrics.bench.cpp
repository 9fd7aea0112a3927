// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/metrics.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t rows = 58 * 16;
constexpr index_t columns = 64;

void measure(benchmark::State& state) {
  auto loads = lognormal_loads(rows, columns);
  std::vector<plimsoll::balance_stats> out(rows);
  for (auto _ : state) {
    plimsoll::measure(plimsoll::seq, matrix(loads, rows, columns), out);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(measure)->Name("metrics/measure");

// Balancedness only, with the standard library.
void accumulate(benchmark::State& state) {
  auto const loads = lognormal_loads(rows, columns);
  std::vector<double> out(rows);
  for (auto _ : state) {
    for (index_t r = 0; r < rows; ++r) {
      auto const first = loads.begin() + r * columns;
      double const sum = std::accumulate(first, first + columns, 0.0);
      out[static_cast<std::size_t>(r)] =
          sum / static_cast<double>(columns) / *std::max_element(first, first + columns);
    }
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(accumulate)->Name("metrics/measure/vs:accumulate");

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/placement.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench {
namespace {

// Arguments: experts, ranks. One layer, one copy of each expert, no slot to spare.
void place(benchmark::State& state) {
  index_t const experts = state.range(0);
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> counts(loads.size(), 1);
  std::vector<std::int32_t> map(loads.size());
  for (auto _ : state) {
    auto certificates =
        plimsoll::place(plimsoll::seq, matrix(loads, 1, experts), matrix(counts, 1, experts),
                        {.ranks = state.range(1)}, matrix(map, 1, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(place)
    ->Name("placement/place")
    ->ArgNames({"experts", "ranks"})
    ->Args({64, 8})
    ->Args({256, 64})
    ->Args({4096, 64});

}  // namespace
}  // namespace plimsoll_bench

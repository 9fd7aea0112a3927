// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/knapsack.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Arguments: classes, capacity. The options are those of CRAFT: 0, 1, 2, 4, ... 64 replicas per
// layer.
void knapsack(benchmark::State& state) {
  index_t const classes = state.range(0);
  index_t const capacity = state.range(1);
  constexpr index_t options = 8;
  std::vector<std::int64_t> weights;
  std::vector<double> values;
  for (index_t l = 0; l < classes; ++l) {
    double gain = 0;
    for (index_t k = 0; k < options; ++k) {
      weights.push_back(k == 0 ? 0 : index_t{1} << (k - 1));
      values.push_back(gain);
      gain += plimsoll::random::uniform(1, static_cast<std::uint64_t>(l),
                                        static_cast<std::uint64_t>(k)) /
              static_cast<double>(k + 1);
    }
  }
  std::vector<std::int32_t> choices(static_cast<std::size_t>(classes));
  for (auto _ : state) {
    plimsoll::knapsack(
        plimsoll::seq,
        plimsoll::tensor_ref<std::int64_t const>(weights.data(), 1, classes, options),
        plimsoll::tensor_ref<double const>(values.data(), 1, classes, options),
        {.capacity = capacity}, matrix(choices, 1, classes));
    benchmark::DoNotOptimize(choices.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(knapsack)
    ->Name("knapsack/knapsack")
    ->ArgNames({"classes", "capacity"})
    ->Args({58, 512})
    ->Args({58, 3712});

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <plimsoll/execution/omp.hpp>
#endif
#include <plimsoll/systems/craft.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "peers/craft.hpp"

namespace plimsoll_bench { namespace {

// The shape of DeepSeek-V3 and the recording of CRAFT's paper: 3000 steps, 58 layers of 256
// experts, 64 ranks, eight replicas per rank.
constexpr index_t steps = 3000;
constexpr index_t layers = 58;
constexpr index_t experts = 256;
constexpr index_t ranks = 64;
constexpr index_t budget = 8 * ranks;
constexpr index_t slots = experts + ranks;

std::vector<std::int32_t> const& recorded() {
  static std::vector<std::int32_t> const loads = drifting_loads(steps, layers, experts);
  return loads;
}

template <auto const& Policy>
void craft(benchmark::State& state) {
  plimsoll::tensor_ref<std::int32_t const> const loads(recorded().data(), steps, layers, experts);
  std::vector<std::int32_t> map(layers * slots);
  std::vector<std::int32_t> offsets(layers * (ranks + 1));
  std::vector<std::int32_t> counts(layers * experts);
  for (auto _ : state) {
    auto plan = plimsoll::craft(Policy, loads, {.on = {.ranks = ranks}, .budget = budget},
                                matrix(map, layers, slots), matrix(offsets, layers, ranks + 1),
                                matrix(counts, layers, experts));
    benchmark::DoNotOptimize(plan.allocation.replicas.data());
  }
}
#ifdef _OPENMP
BENCHMARK(craft<plimsoll::omp>)->Name("goal/craft")->Apply(as_goal<50>);
#endif
BENCHMARK(craft<plimsoll::seq>)->Name("craft/one_core")->Unit(benchmark::kMillisecond);

void loops(benchmark::State& state) {
  std::vector<std::int32_t> const& loads = recorded();
  for (auto _ : state) {
    auto replicas = peers::craft_loops(loads.data(), steps, layers, experts, ranks,
                                       {1, 2, 4, 8, 16, 32, 64}, budget);
    benchmark::DoNotOptimize(replicas.data());
  }
}
BENCHMARK(loops)->Name("goal/craft/vs:loops")->Apply(as_goal<5>);

}  // namespace
}  // namespace plimsoll_bench

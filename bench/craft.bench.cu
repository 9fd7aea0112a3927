// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/craft.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Recorded loads are in device memory, maps are written to device memory, the allocation to the
// host.
void craft(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t steps = 3000;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t ranks = 64;
  constexpr index_t slots = experts + ranks;
  static stream const work;
  static device_array<std::int32_t> const loads(drifting_loads(steps, layers, experts));
  static device_array<std::int32_t> const map(layers * slots);
  static device_array<std::int32_t> const offsets(layers * (ranks + 1));
  static device_array<std::int32_t> const counts(layers * experts);
  for (auto _ : state) {
    auto plan = plimsoll::craft(
        plimsoll::gpu(work.get()),
        plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
        {.on = {.ranks = ranks}, .budget = 8 * ranks},
        plimsoll::matrix_ref<std::int32_t>(map.data(), layers, slots),
        plimsoll::matrix_ref<std::int32_t>(offsets.data(), layers, ranks + 1),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
    benchmark::DoNotOptimize(plan.allocation.replicas.data());
  }
}
BENCHMARK(craft)->Name("goal/craft")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

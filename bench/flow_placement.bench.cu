// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/flow_placement.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// From loads in device memory to maps in device memory.
void flow_placement(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t steps = 16;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  static stream const work;
  static device_array<std::int32_t> const loads(drifting_loads(steps, layers, experts));
  static device_array<std::int32_t> const map(layers * slots);
  static device_array<std::int32_t> const counts(layers * experts);
  for (auto _ : state) {
    auto reports = plimsoll::place_by_flow(
        plimsoll::gpu(work.get()),
        plimsoll::tensor_ref<std::int32_t>(loads.data(), steps, layers, experts),
        {.on = {.ranks = 64}}, plimsoll::matrix_ref<std::int32_t>(map.data(), layers, slots),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
    benchmark::DoNotOptimize(reports.data());
  }
}
BENCHMARK(flow_placement)->Name("goal/flow_placement")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

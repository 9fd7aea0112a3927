// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/gem.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// From a trace and curves in device memory to a placement in device memory.
template <index_t Layers, index_t Experts, index_t Ranks>
void gem(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static gem_input const in(Layers, Experts, Ranks);
  static stream const work;
  static device_array<std::int32_t> const loads(in.loads);
  static device_array<std::int64_t> const tokens(in.tokens);
  static device_array<double> const latency(in.latency);
  static device_array<double> const speeds(in.speeds);
  static device_array<std::int32_t> const map(Layers * Experts);
  static device_array<std::int32_t> const counts(Layers * Experts);
  index_t const samples = std::ssize(in.tokens);
  plimsoll::latency_curves const curves{
      {tokens.data(), samples}, {latency.data(), 1, samples}, 512, {speeds.data(), Ranks}};
  for (auto _ : state) {
    auto certificates = plimsoll::gem(
        plimsoll::gpu(work.get()),
        plimsoll::tensor_ref<std::int32_t const>(loads.data(), gem_input::steps, Layers, Experts),
        curves, {.on = {.ranks = Ranks}},
        plimsoll::matrix_ref<std::int32_t>(map.data(), Layers, Experts),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), Layers, Experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(gem<48, 16, 4>)->Name("goal/gem_small")->Apply(as_goal<>);
BENCHMARK(gem<58, 256, 32>)->Name("goal/gem_large")->Apply(as_goal<50>);

}  // namespace
}  // namespace plimsoll_bench

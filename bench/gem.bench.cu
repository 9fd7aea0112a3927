// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/gem.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench {
namespace {

// From a trace and curves in device memory to a placement in device memory.
void gem(benchmark::State& state, gem_input const& in) {
  if (gpu_missing(state)) {
    return;
  }
  stream const work;
  device_array<std::int32_t> const loads(in.loads);
  device_array<std::int64_t> const tokens(in.tokens);
  device_array<double> const latency(in.latency);
  device_array<double> const speeds(in.speeds);
  device_array<std::int32_t> const map(in.layers * in.experts);
  device_array<std::int32_t> const counts(in.layers * in.experts);
  index_t const samples = std::ssize(in.tokens);
  plimsoll::latency_curves const curves{
      {tokens.data(), samples}, {latency.data(), 1, samples}, 512, {speeds.data(), in.ranks}};
  for (auto _ : state) {
    auto certificates =
        plimsoll::gem(plimsoll::gpu(work.get()),
                      plimsoll::tensor_ref<std::int32_t const>(loads.data(), gem_input::steps,
                                                               in.layers, in.experts),
                      curves, {.ranks = in.ranks},
                      plimsoll::matrix_ref<std::int32_t>(map.data(), in.layers, in.experts),
                      plimsoll::matrix_ref<std::int32_t>(counts.data(), in.layers, in.experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
void small(benchmark::State& state) { gem(state, gem_input(48, 16, 4)); }
void large(benchmark::State& state) { gem(state, gem_input(58, 256, 32)); }
BENCHMARK(small)->Name("goal/gem_small")->Apply(as_goal<>);
BENCHMARK(large)->Name("goal/gem_large")->Apply(as_goal<50>);

}  // namespace
}  // namespace plimsoll_bench

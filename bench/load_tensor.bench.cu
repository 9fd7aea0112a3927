// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/load_tensor.hpp>

#include <cstdint>
#include <vector>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t experts = 256;

/// Times `enqueue(policy)` and the wait for it.
template <class F>
void time_on_device(benchmark::State& state, stream const& work, F enqueue) {
  auto const policy = plimsoll::gpu(work.get());
  for (auto _ : state) {
    enqueue(policy);
    plimsoll::detail::check_cuda(cudaStreamSynchronize(work.get()), "cudaStreamSynchronize");
  }
}

void count_tokens(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t tokens = 16384;
  constexpr index_t k = 8;
  std::vector<std::int32_t> ids;
  for (index_t i = 0; i < tokens * k; ++i) {
    double const u = plimsoll::random::uniform(1, 9, static_cast<std::uint64_t>(i));
    ids.push_back(static_cast<std::int32_t>(u * u * experts));
  }
  stream const work;
  device_array<std::int32_t> const in(ids);
  device_array<std::int64_t> const counts(experts);
  device_array<plimsoll::routing_counters> const counters(1);
  time_on_device(state, work, [&](plimsoll::gpu_policy const& policy) {
    plimsoll::count_tokens(policy, plimsoll::matrix_ref<std::int32_t>(in.data(), tokens, k), {},
                           plimsoll::vector_ref<std::int64_t>(counts.data(), experts),
                           plimsoll::vector_ref<plimsoll::routing_counters>(counters.data(), 1));
  });
}
BENCHMARK(count_tokens)
    ->Name("load_tensor/count_tokens")
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void sum_steps(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t steps = 300;
  constexpr index_t layers = 58;
  stream const work;
  device_array<std::int32_t> const loads(lognormal_loads(steps * layers, experts));
  device_array<std::int64_t> const out(layers * experts);
  time_on_device(state, work, [&](plimsoll::gpu_policy const& policy) {
    plimsoll::sum_steps(policy,
                        plimsoll::tensor_ref<std::int32_t>(loads.data(), steps, layers, experts),
                        plimsoll::matrix_ref<std::int64_t>(out.data(), layers, experts));
  });
}
BENCHMARK(sum_steps)->Name("load_tensor/sum_steps")->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

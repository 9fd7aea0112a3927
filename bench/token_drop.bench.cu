// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/token_drop.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t tokens = 16384;
constexpr index_t experts = 256;
constexpr index_t k = 8;

device_array<float> const& scores() {
  static device_array<float> const made(router_logits(tokens, experts));
  return made;
}

// Scores and all outputs, in device memory.
struct masked_batch {
  stream work;
  device_array<std::int32_t> ids{tokens * k};
  device_array<float> weights{tokens * k};
  device_array<std::int32_t> positions{tokens * k};
  device_array<std::int32_t> counts{experts};
  device_array<std::int32_t> offsets{experts + 1};
  device_array<plimsoll::capacity_report> report{1};
  plimsoll::token_drop<plimsoll::gpu_policy> drop{
      plimsoll::gpu(work.get()),
      {.function = plimsoll::score_function::none,
       .route = {.k = k},
       .limit = {.experts = experts, .max_tokens = tokens}}};
  replayed step{work.get(), [this] {
                  drop.apply(
                      plimsoll::matrix_ref<float const>(scores().data(), tokens, experts),
                      {.ids = {ids.data(), tokens, k},
                       .weights = {weights.data(), tokens, k},
                       .positions = {positions.data(), tokens, k},
                       .counts = {counts.data(), experts},
                       .offsets = {offsets.data(), experts + 1},
                       .report = plimsoll::scalar_ref<plimsoll::capacity_report>(report.data())});
                }};
};
void token_drop(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  scores();
  static masked_batch batch;
  for (auto _ : state) {
    state.SetIterationTime(batch.step.run());
  }
}
BENCHMARK(token_drop)->Name("goal/token_drop")->Apply(as_goal_timed_by_itself<>)->UseManualTime();

__global__ void read_all(float4 const* values, index_t n, float* unlikely) {
  float sum = 0;
  for (index_t i = blockIdx.x * index_t{blockDim.x} + threadIdx.x; i < n;
       i += index_t{gridDim.x} * blockDim.x) {
    float4 const v = values[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  if (sum == -12345.0f) {
    *unlikely = sum;  // so that the compiler cannot remove the reads
  }
}

// The least work of any method that reads all scores.
void one_read(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  float const* const values = scores().data();
  static stream const work;
  static device_array<float> const out(1);
  static replayed step(work.get(), [values] {
    read_all<<<1056, 256, 0, work.get()>>>(reinterpret_cast<float4 const*>(values),
                                           tokens * experts / 4, out.data());
  });
  for (auto _ : state) {
    state.SetIterationTime(step.run());
  }
}
BENCHMARK(one_read)
    ->Name("goal/token_drop/vs:one_read")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();

}  // namespace
}  // namespace plimsoll_bench

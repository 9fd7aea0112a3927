// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/waterline.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench {
namespace {

// From counts that are reduced to the wider table, all in device memory.
void waterline(benchmark::State& state, plimsoll::reach candidates) {
  if (gpu_missing(state)) {
    return;
  }
  step_batch const& b = step_batch::one();
  stream const work;
  device_array<std::int32_t> const ids(b.ids);
  device_array<float> const weights(b.weights);
  device_array<std::int64_t> const loads(b.loads);
  device_array<std::int32_t> const wider_ids(b.tokens * (b.k + 1));
  device_array<float> const wider_weights(b.tokens * (b.k + 1));
  plimsoll::waterline_options options{.ranks = step_batch::ranks,
                                      .slots = step_batch::slots,
                                      .top_k = step_batch::k,
                                      .max_tokens = step_batch::tokens};
  options.candidates = candidates;
  plimsoll::waterline const line(plimsoll::gpu(work.get()), options);
  replayed step(work.get(), [&] {
    line.plan(plimsoll::matrix_ref<std::int64_t const>(loads.data(), 2, b.ranks), b.busiest);
    line.fill(plimsoll::matrix_ref<std::int32_t const>(ids.data(), b.tokens, b.k),
              {.weights = {weights.data(), b.tokens, b.k}},
              plimsoll::matrix_ref<std::int32_t>(wider_ids.data(), b.tokens, b.k + 1),
              {.weights = {wider_weights.data(), b.tokens, b.k + 1}});
  });
  for (auto _ : state) {
    state.SetIterationTime(step.run());
  }
}
void visited(benchmark::State& state) { waterline(state, plimsoll::reach::visited); }
BENCHMARK(visited)->Name("goal/waterline")->Apply(as_goal_timed_by_itself<>)->UseManualTime();

void all_ranks(benchmark::State& state) { waterline(state, plimsoll::reach::all); }
BENCHMARK(all_ranks)->Name("waterline/all_ranks")->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

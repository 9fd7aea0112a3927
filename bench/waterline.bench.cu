// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/waterline.hpp>

#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// From summed counts to the wider table, all in device memory.
template <plimsoll::candidate_ranks Candidates>
void waterline(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static step_batch const& b = step_batch::one();
  static stream const work;
  static device_array<std::int32_t> const ids(b.ids);
  static device_array<float> const weights(b.weights);
  static device_array<std::int64_t> const loads(b.loads);
  static device_array<std::int32_t> const wider_ids(b.tokens * (b.k + 1));
  static device_array<float> const wider_weights(b.tokens * (b.k + 1));
  static plimsoll::waterline const line(plimsoll::gpu(work.get()),
                                        {.on = {.ranks = step_batch::ranks},
                                         .slots = step_batch::slots,
                                         .top_k = step_batch::k,
                                         .max_tokens = step_batch::tokens,
                                         .candidates = Candidates});
  static replayed step(work.get(), [] {
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
BENCHMARK(waterline<plimsoll::candidate_ranks::visited>)
    ->Name("goal/waterline")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();
BENCHMARK(waterline<plimsoll::candidate_ranks::all>)
    ->Name("waterline/all_ranks")
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

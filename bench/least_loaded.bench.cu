// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/least_loaded.hpp>

#include <cstddef>
#include <cstdint>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

plimsoll::least_loaded_options options_of(zipf_steps const& in) {
  plimsoll::least_loaded_options options;
  options.experts = in.experts;
  options.on.ranks = in.ranks;
  options.max_token_copies = zipf_steps::tokens * zipf_steps::k;
  return options;
}

// Plans from the loads of all ranks, all in device memory.
struct planned_step {
  zipf_steps const& in;
  stream work;
  device_array<std::int32_t> loads{in.loads};
  plimsoll::least_loaded<plimsoll::gpu_policy> planner{plimsoll::gpu(work.get()), options_of(in)};
  replayed plan{work.get(), [this] {
                  planner.plan(plimsoll::vector_ref<std::int32_t const>(loads.data(), in.experts));
                }};

  explicit planned_step(zipf_steps const& steps) : in(steps) {}

  /// Returns the seconds of planning step number `step`.
  double run(index_t step) {
    plimsoll::detail::check_cuda(
        cudaMemcpyAsync(loads.data(), in.loads_of(step).data,
                        static_cast<std::size_t>(in.experts) * sizeof(std::int32_t),
                        cudaMemcpyHostToDevice, work.get()),
        "cudaMemcpyAsync");
    return plan.run();
  }
};

// Plans the steps in turn, one in each run.
void plan_in_turn(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static zipf_steps const in(256, 64);
  static planned_step planned(in);
  static index_t run = 0;
  for (auto _ : state) {
    state.SetIterationTime(planned.run(run++ % zipf_steps::steps));
  }
}
BENCHMARK(plan_in_turn)
    ->Name("goal/least_loaded")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();

void plan_of_shape(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  zipf_steps const in(state.range(0), state.range(1));
  planned_step planned(in);
  for (auto _ : state) {
    state.SetIterationTime(planned.run(0));
  }
}
BENCHMARK(plan_of_shape)
    ->Name("least_loaded/plan")
    ->Args({128, 8})
    ->Args({384, 32})
    ->Args({1024, 512})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// All calls of one rank without the all-gather: counts, plan, exchange, routes and rows.
void step(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t rank = 5;
  constexpr index_t tokens = zipf_steps::tokens;
  constexpr index_t k = zipf_steps::k;
  zipf_steps const in(256, 64);
  stream const work;
  device_array<std::int32_t> const ids(in.ids(0, rank));
  device_array<std::int32_t> const counts(in.counts(0));
  device_array<std::int32_t> const row(static_cast<std::size_t>(in.experts));
  device_array<std::int32_t> const destinations(tokens * k);
  device_array<std::int32_t> const rows(tokens * k);
  device_array<std::int32_t> const arranged(2 * tokens * k);
  device_array<plimsoll::spill_segment> const groups(static_cast<std::size_t>(in.experts));
  device_array<plimsoll::spill_counters> const counters(1);
  plimsoll::least_loaded planner(plimsoll::gpu(work.get()), options_of(in));
  plimsoll::matrix_ref<std::int32_t const> const of_tokens(ids.data(), tokens, k);
  replayed all(work.get(), [&] {
    planner.count(of_tokens, plimsoll::vector_ref<std::int32_t>(row.data(), in.experts));
    planner.add_up(plimsoll::matrix_ref<std::int32_t const>(counts.data(), in.ranks, in.experts));
    planner.plan();
    planner.exchange();
    planner.route(rank, of_tokens,
                  plimsoll::matrix_ref<std::int32_t>(destinations.data(), tokens, k),
                  plimsoll::matrix_ref<std::int32_t>(rows.data(), tokens, k),
                  plimsoll::vector_ref<plimsoll::spill_counters>(counters.data(), 1));
    planner.arrange(rank, plimsoll::vector_ref<std::int32_t>(arranged.data(), 2 * tokens * k),
                    plimsoll::vector_ref<plimsoll::spill_segment>(groups.data(), in.experts));
  });
  for (auto _ : state) {
    state.SetIterationTime(all.run());
  }
}
BENCHMARK(step)->Name("least_loaded/step")->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

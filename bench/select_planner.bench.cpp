// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/execution/omp.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

template <plimsoll::split_rule Split>
void select_planner(benchmark::State& state) {
  constexpr index_t steps = 16;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  auto const loads = drifting_loads(steps, layers, experts);
  for (auto _ : state) {
    auto plan = plimsoll::select_planner(
        plimsoll::omp,
        plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts), 320,
        {.on = {.ranks = 64}, .split = Split});
    benchmark::DoNotOptimize(plan.chosen);
  }
}
BENCHMARK(select_planner<plimsoll::split_rule::optimal>)
    ->Name("goal/select_planner")
    ->Apply(as_goal<>);
BENCHMARK(select_planner<plimsoll::split_rule::even>)
    ->Name("select_planner/even")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll_bench

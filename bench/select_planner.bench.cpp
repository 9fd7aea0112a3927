// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/execution/omp.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

template <plimsoll::split_rule Split, index_t steps = 16, bool HasExponents = false>
void select_planner(benchmark::State& state) {
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  auto const loads = drifting_loads(steps, layers, experts);
  for (auto _ : state) {
    auto plan = plimsoll::select_planner(
        plimsoll::omp,
        plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts), 320,
        {.on = {.ranks = 64},
         .split = Split,
         .flow_exponents =
             HasExponents ? std::vector<double>{0.9, 0.8, 0.7, 0.6} : std::vector<double>{}});
    benchmark::DoNotOptimize(plan.chosen);
  }
}
BENCHMARK(select_planner<plimsoll::split_rule::optimal>)
    ->Name("goal/select_planner")
    ->Apply(as_goal<>);
BENCHMARK(select_planner<plimsoll::split_rule::optimal, 16, true>)
    ->Name("goal/select_planner_exponents")
    ->Apply(as_goal<20>);
BENCHMARK(select_planner<plimsoll::split_rule::optimal, 3000>)
    ->Name("goal/select_planner_long")
    ->Apply(as_goal<3>);
BENCHMARK(select_planner<plimsoll::split_rule::optimal, 3000, true>)
    ->Name("goal/select_planner_long_exponents")
    ->Apply(as_goal<3>);
BENCHMARK(select_planner<plimsoll::split_rule::even>)
    ->Name("select_planner/even")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/flow_placement.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t experts = 256;
constexpr index_t slots = 320;
constexpr index_t ranks = 64;

template <index_t Steps, plimsoll::split_rule Split>
void flow_placement(benchmark::State& state) {
  auto const loads = drifting_loads(Steps, 1, experts);
  std::vector<std::int32_t> map(slots);
  std::vector<std::int32_t> counts(experts);
  for (auto _ : state) {
    auto reports = plimsoll::place_by_flow(
        plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), Steps, 1, experts),
        {.on = {.ranks = ranks}, .split = Split}, matrix(map, 1, slots),
        matrix(counts, 1, experts));
    benchmark::DoNotOptimize(reports.data());
  }
}
BENCHMARK(flow_placement<16, plimsoll::split_rule::optimal>)
    ->Name("goal/flow_placement")
    ->Apply(as_goal<>);
BENCHMARK(flow_placement<4, plimsoll::split_rule::optimal>)
    ->Name("goal/flow_placement_short")
    ->Apply(as_goal<>);
BENCHMARK(flow_placement<16, plimsoll::split_rule::even>)
    ->Name("flow_placement/even")
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

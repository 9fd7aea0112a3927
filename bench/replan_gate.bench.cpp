// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/execution/omp.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

/// A layer of 256 experts in 288 slots of 32 ranks, 58 of them, and one candidate. Arguments:
/// steps, whether the split is optimal.
void replan_gate(benchmark::State& state) {
  index_t const layers = 58;
  index_t const experts = 256;
  index_t const slots = 288;
  index_t const steps = state.range(0);
  std::vector<std::int32_t> const loads = lognormal_loads(steps * layers, experts);
  auto const planned = [&](index_t step) {
    return plimsoll::eplb(plimsoll::omp,
                          plimsoll::matrix_ref<std::int32_t const>(
                              loads.data() + step * layers * experts, layers, experts),
                          slots, {.on = {.ranks = 32}});
  };
  auto const in_use = planned(0);
  auto const plan = planned(steps - 1);
  plimsoll::replan_options<> const options{
      .split = state.range(1) != 0 ? plimsoll::split_rule::optimal : plimsoll::split_rule::even,
      .cost = {.per_token = 1e-8},
      .horizon = 100,
      .expert_bytes = 1 << 24};
  for (auto _ : state) {
    plimsoll::replan_decision const decision = plimsoll::decide_replan(
        plimsoll::omp,
        plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
        in_use.ref(), {{plan.ref()}}, options);
    benchmark::DoNotOptimize(decision.chosen);
  }
}
BENCHMARK(replan_gate)
    ->Name("replan_gate/replan_gate")
    ->ArgNames({"steps", "optimal"})
    ->Args({16, 0})
    ->Args({16, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/systems/lplb.hpp>

#include <cstddef>

#include "split_inputs.hpp"

namespace plimsoll_bench { namespace {

template <class Policy>
void update(benchmark::State& state, Policy const& policy, index_t extra_slots) {
  placed_layers const in(extra_slots);
  plimsoll::lplb planner(policy, in.placement(0), plimsoll::lplb_options{});
  std::size_t which = 0;
  for (auto _ : state) {
    which = 1 - which;
    planner.update(0, in.placement(which));
    benchmark::ClobberMemory();
  }
  planner.check();
}
void goal(benchmark::State& state) { update(state, plimsoll::seq, 64); }
BENCHMARK(goal)->Name("goal/lplb_update")->Apply(as_goal<>);
// The team form sorts slots, and colors experts in rounds.
int const update_forms = register_forms(
    "lplb/update", [](auto& state, auto const& policy) { update(state, policy, state.range(0)); },
    [](auto* both) { both->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond); });

void construct(benchmark::State& state) {
  placed_layers const in(state.range(0));
  for (auto _ : state) {
    plimsoll::lplb planner(plimsoll::seq, in.placement(0), plimsoll::lplb_options{});
    benchmark::DoNotOptimize(planner.quotas().data);
  }
}
BENCHMARK(construct)->Name("lplb/construct")->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

void plan(benchmark::State& state) {
  placed_layers const in(state.range(0));
  plimsoll::lplb planner(plimsoll::seq, in.placement(0), plimsoll::lplb_options{});
  for (auto _ : state) {
    planner.plan(plimsoll::matrix_ref<std::int32_t const>(in.counts.data(), in.layers, in.experts));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(plan)->Name("lplb/plan")->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

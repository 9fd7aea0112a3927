// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/systems/lplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "split_inputs.hpp"

namespace plimsoll_bench { namespace {

/// EPLB's placements of 58 layers, two of each, and a step's tokens.
struct placed_layers {
  static constexpr index_t layers = 58;
  static constexpr index_t experts = planned_layer::experts;

  index_t slots;
  std::vector<std::int32_t> maps[2];
  std::vector<std::int32_t> counts;  ///< [layers, experts]

  explicit placed_layers(index_t extra_slots) : slots(experts + extra_slots) {
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      for (std::uint64_t which : {0u, 1u}) {
        drifted_layer const one(extra_slots, 2 * layer + which);
        maps[which].insert(maps[which].end(), one.map.begin(), one.map.end());
        if (which == 0) {
          counts.insert(counts.end(), one.now.begin(), one.now.end());
        }
      }
    }
  }
  [[nodiscard]] plimsoll::placement_ref placement(std::size_t which) const {
    return {.physical_to_logical = {maps[which].data(), layers, slots},
            .replica_count = {nullptr, layers, experts},
            .ranks = planned_layer::ranks};
  }
};

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

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/lplb.hpp>

#include <cstddef>
#include <cstdint>

#include "device_inputs.cuh"
#include "split_inputs.hpp"

namespace plimsoll_bench { namespace {

// Plans and dispatches one layer, from the counts that all ranks share to the slot of every token
// copy, all in device memory.
void lplb(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static routed_layer const in(64);
  static stream const work;
  static device_array<std::int32_t> const map(in.map);
  static device_array<std::int32_t> const loads(in.loads);
  static device_array<std::int32_t> const ids(in.ids);
  static device_array<std::int32_t> const slots(in.ids.size());
  static device_array<plimsoll::dispatch_counters> const counters(1);
  static plimsoll::lplb planner(
      plimsoll::gpu(work.get()),
      plimsoll::placement_ref{.physical_to_logical = {map.data(), 1, in.slots},
                              .replica_count = {nullptr, 1, in.experts},
                              .ranks = in.ranks},
      {.max_token_copies = in.tokens * in.k});
  static replayed step(work.get(), [] {
    planner.plan(plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, in.experts));
    planner.dispatch(0, plimsoll::matrix_ref<std::int32_t const>(ids.data(), in.tokens, in.k),
                     plimsoll::matrix_ref<std::int32_t>(slots.data(), in.tokens, in.k),
                     plimsoll::vector_ref<plimsoll::dispatch_counters>(counters.data(), 1));
  });
  for (auto _ : state) {
    state.SetIterationTime(step.run());
  }
}
BENCHMARK(lplb)->Name("goal/lplb")->Apply(as_goal_timed_by_itself<>)->UseManualTime();

// Two new placements of all layers, from maps in device memory, in one graph.
void update(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static placed_layers const in(64);
  static stream const work;
  static device_array<std::int32_t> const maps[2] = {device_array(in.maps[0]),
                                                     device_array(in.maps[1])};
  static auto const placement = [](std::size_t which) {
    plimsoll::placement_ref on = in.placement(which);
    on.physical_to_logical.data = maps[which].data();
    return on;
  };
  static plimsoll::lplb planner(plimsoll::gpu(work.get()), placement(0), plimsoll::lplb_options{});
  static replayed both(work.get(), [] {
    planner.update(0, placement(1));
    planner.update(0, placement(0));
  });
  for (auto _ : state) {
    state.SetIterationTime(both.run() / 2);
  }
  planner.check();
}
BENCHMARK(update)->Name("goal/lplb_update")->Apply(as_goal_timed_by_itself<>)->UseManualTime();

}  // namespace
}  // namespace plimsoll_bench

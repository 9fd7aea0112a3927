// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/migration.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// From maps in device memory to a map in device memory and a list on the host.
void migration(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  constexpr index_t ranks = 64;
  static stream const work;
  static auto const loads = drifting_loads(2, layers, experts);
  auto const plan = [](index_t step) {
    return plimsoll::eplb(plimsoll::seq,
                          plimsoll::matrix_ref<std::int32_t const>(
                              loads.data() + step * layers * experts, layers, experts),
                          slots, {.on = {.ranks = ranks}});
  };
  auto const upload = [&plan](index_t step) {
    auto const made = plan(step);
    return plimsoll::copy_placement(
        plimsoll::gpu(work.get()),
        plimsoll::array(plimsoll::gpu(work.get()), made.physical_to_logical.to_host(), layers,
                        slots),
        plimsoll::array(plimsoll::gpu(work.get()), made.replica_count.to_host(), layers, experts),
        ranks);
  };
  static auto const from = upload(0);
  static auto const to = upload(1);
  static device_array<std::int32_t> const map(layers * slots);
  for (auto _ : state) {
    auto report = plimsoll::align(plimsoll::gpu(work.get()), from.ref(), to.ref(), {},
                                  plimsoll::matrix_ref<std::int32_t>(map.data(), layers, slots));
    plimsoll::placement_ref aligned = to.ref();
    aligned.physical_to_logical =
        plimsoll::matrix_ref<std::int32_t const>(map.data(), layers, slots);
    auto transfers = plimsoll::plan_transfers(plimsoll::gpu(work.get()), from.ref(), aligned,
                                              {.on = {.nodes = 8}});
    benchmark::DoNotOptimize(report.layers.data());
    benchmark::DoNotOptimize(transfers.list.data());
  }
}
BENCHMARK(migration)->Name("goal/migration")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

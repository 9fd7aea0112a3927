// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t steps = 400;
constexpr index_t layers = 8;
constexpr index_t experts = 256;
constexpr index_t ranks = 64;

/// Recorded loads, and plans with 0, 1, 2, ... times 64 replicas in each layer.
struct recording {
  std::vector<std::int32_t> loads = drifting_loads(steps, layers, experts);
  index_t plans;
  index_t slots = experts + (plans - 1) * ranks;
  std::vector<std::int32_t> map =
      std::vector<std::int32_t>(static_cast<std::size_t>(plans * layers * slots), -1);
  std::vector<std::int32_t> offsets =
      std::vector<std::int32_t>(static_cast<std::size_t>(plans * layers * (ranks + 1)));
  std::vector<std::int32_t> counts =
      std::vector<std::int32_t>(static_cast<std::size_t>(plans * layers * experts));

  explicit recording(index_t n) : plans(n) {
    for (index_t row = 0; row < plans * layers; ++row) {
      for (index_t rank = 0; rank <= ranks; ++rank) {
        offsets[static_cast<std::size_t>(row * (ranks + 1) + rank)] =
            static_cast<std::int32_t>(rank * (experts / ranks + row / layers));
      }
    }
    for (index_t plan = 0; plan < plans; ++plan) {
      index_t const row = plan * layers;
      plimsoll::eplb(
          plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(loads.data(), layers, experts),
          {.on = {.ranks = ranks},
           .rank_offsets = {offsets.data() + row * (ranks + 1), layers, ranks + 1}},
          plimsoll::matrix_ref<std::int32_t>(map.data() + row * slots, layers, slots),
          plimsoll::matrix_ref<std::int32_t>(counts.data() + row * experts, layers, experts));
    }
  }

  [[nodiscard]] plimsoll::tensor_ref<std::int32_t const> view() const {
    return {loads.data(), steps, layers, experts};
  }
  [[nodiscard]] plimsoll::placement_ref placement(index_t plan, index_t n) const {
    index_t const row = plan * layers;
    return {.physical_to_logical = {map.data() + row * slots, n * layers, slots},
            .replica_count = {counts.data() + row * experts, n * layers, experts},
            .ranks = ranks,
            .rank_offsets = {offsets.data() + row * (ranks + 1), n * layers, ranks + 1}};
  }
};

template <class Policy>
void replay(benchmark::State& state, Policy const& policy) {
  recording const in(state.range(0));
  std::vector<double> balancedness(static_cast<std::size_t>(in.plans * layers));
  for (auto _ : state) {
    plimsoll::replay(policy, in.view(), in.placement(0, in.plans), {},
                     matrix(balancedness, in.plans, layers));
    benchmark::DoNotOptimize(balancedness.data());
    benchmark::ClobberMemory();
  }
}
int const replay_forms = register_forms(
    "replay/replay", [](auto& state, auto const& policy) { replay(state, policy); },
    [](auto* both) { both->ArgName("plans")->Arg(1)->Arg(4)->Unit(benchmark::kMicrosecond); });

// The same result from two primitives, with the rank loads of all steps as intermediate array.
void rank_loads_and_measure(benchmark::State& state) {
  recording const in(state.range(0));
  std::vector<double> loads(static_cast<std::size_t>(steps * layers * ranks));
  std::vector<plimsoll::balance_stats> rows(static_cast<std::size_t>(steps * layers));
  for (auto _ : state) {
    for (index_t plan = 0; plan < in.plans; ++plan) {
      plimsoll::rank_loads(plimsoll::seq, in.view(), in.placement(plan, 1),
                           plimsoll::tensor_ref<double>(loads.data(), steps, layers, ranks));
      plimsoll::measure(plimsoll::seq, matrix(loads, steps * layers, ranks), rows);
      benchmark::DoNotOptimize(rows.data());
      benchmark::ClobberMemory();
    }
  }
}
BENCHMARK(rank_loads_and_measure)
    ->Name("replay/rank_loads_and_measure")
    ->ArgName("plans")
    ->Arg(1)
    ->Arg(4)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

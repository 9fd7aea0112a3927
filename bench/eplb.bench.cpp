// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "peers/eplb.hpp"

namespace plimsoll_bench { namespace {

// DeepSeek-V3's shape: 58 layers of 256 experts, 320 slots on 64 ranks.
constexpr index_t layers = 58;
constexpr index_t experts = 256;
constexpr index_t slots = 320;
constexpr index_t ranks = 64;

void eplb(benchmark::State& state) {
  auto loads = lognormal_loads(layers, experts);
  std::vector<std::int32_t> map(layers * slots);
  std::vector<std::int32_t> counts(layers * experts);
  for (auto _ : state) {
    auto certificates =
        plimsoll::eplb(plimsoll::seq, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                       matrix(map, layers, slots), matrix(counts, layers, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(eplb)->Name("goal/eplb")->Apply(as_goal<>);

// DeepSeek-V3 as its authors place it: 8 groups on 4 nodes of 8 ranks, 32 redundant experts.
void hierarchical(benchmark::State& state) {
  constexpr index_t replicas = 288;
  auto loads = lognormal_loads(layers, experts);
  std::vector<std::int32_t> map(layers * replicas);
  std::vector<std::int32_t> counts(layers * experts);
  for (auto _ : state) {
    auto certificates =
        plimsoll::eplb(plimsoll::seq, matrix(loads, layers, experts),
                       {.on = {.ranks = 32, .nodes = 4}, .groups = 8},
                       matrix(map, layers, replicas), matrix(counts, layers, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(hierarchical)->Name("eplb/hierarchical")->Unit(benchmark::kMicrosecond);

template <auto Peer>
void peer(benchmark::State& state) {
  auto const loads = lognormal_loads(layers, experts);
  for (auto _ : state) {
    for (index_t l = 0; l < layers; ++l) {
      auto plan = Peer(loads.data() + l * experts, experts, ranks, slots);
      benchmark::DoNotOptimize(plan.map.data());
    }
  }
}
BENCHMARK(peer<peers::eplb_loops>)->Name("goal/eplb/vs:loops")->Apply(as_goal<>);
BENCHMARK(peer<peers::eplb_heaps<std::int32_t>>)->Name("goal/eplb/vs:heaps")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

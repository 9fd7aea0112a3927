// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/replication.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Places one layer with one copy of each expert and no spare slot. Arguments: experts, ranks.
template <class Policy>
void place(benchmark::State& state, Policy const& policy) {
  index_t const experts = state.range(0);
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> counts(loads.size(), 1);
  std::vector<std::int32_t> map(loads.size());
  for (auto _ : state) {
    auto certificates =
        plimsoll::place(policy, matrix(loads, 1, experts), matrix(counts, 1, experts),
                        {.on = {.ranks = state.range(1)}}, matrix(map, 1, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
// The team form places on many ranks at a time, however many there are.
int const place_forms = register_forms(
    "placement/place", [](auto& state, auto const& policy) { place(state, policy); },
    [](auto* both) {
      both->ArgNames({"experts", "ranks"})
          ->Args({64, 8})
          ->Args({256, 32})
          ->Args({256, 64})
          ->Args({4096, 64})
          ->Args({4096, 1024});
    });

// DeepSeek-V3's layer: 256 experts, 320 slots on 64 ranks of 8 nodes.
constexpr index_t experts = 256;
constexpr index_t slots = 320;
constexpr index_t ranks = 64;
constexpr index_t nodes = 8;

void place_with(benchmark::State& state, plimsoll::placement_options options) {
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> counts(experts);
  std::vector<std::int32_t> map(slots);
  options.on.ranks = ranks;
  options.on.nodes = nodes;
  plimsoll::replicate(plimsoll::seq, matrix(loads, 1, experts), slots, {.where = options},
                      matrix(counts, 1, experts));
  for (auto _ : state) {
    auto certificates = plimsoll::place(plimsoll::seq, matrix(loads, 1, experts),
                                        matrix(counts, 1, experts), options, matrix(map, 1, slots));
    benchmark::DoNotOptimize(certificates.data());
  }
}

void place_speeds(benchmark::State& state) {
  std::vector<double> speeds(ranks, 1.0);
  speeds[5] = 0.75;
  place_with(state, {.on = {.speeds = plimsoll::vector_ref<double const>(speeds.data(), ranks)}});
}
BENCHMARK(place_speeds)->Name("placement/place/speeds");

void place_apart(benchmark::State& state, plimsoll::anti_affinity rule) {
  place_with(state, {.replica_anti_affinity = rule,
                     .anti_affinity_strength = plimsoll::strictness::required});
}
BENCHMARK_CAPTURE(place_apart, rank, plimsoll::anti_affinity::rank)->Name("placement/place/rank");
BENCHMARK_CAPTURE(place_apart, node, plimsoll::anti_affinity::node)->Name("placement/place/node");

void place_groups(benchmark::State& state) {
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> lists(experts);
  std::vector<std::int32_t> offsets(nodes + 1);
  for (auto _ : state) {
    auto certificates =
        plimsoll::place_groups(plimsoll::seq, matrix(loads, 1, experts), state.range(0), slots,
                               {.on = {.ranks = ranks, .nodes = nodes}}, matrix(lists, 1, experts),
                               matrix(offsets, 1, nodes + 1));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(place_groups)->Name("placement/place_groups")->ArgName("groups")->Arg(8)->Arg(64);

}  // namespace
}  // namespace plimsoll_bench

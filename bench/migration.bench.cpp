// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/migration.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t layers = 58;
constexpr index_t experts = 256;
constexpr index_t slots = 320;
constexpr index_t ranks = 64;

/// The placements that EPLB makes for two steps of `drifting_loads`. EPLB does not know the placement
/// in use, so that nearly all experts move.
struct two_plans {
  plimsoll::placement<plimsoll::seq_policy> from;
  plimsoll::placement<plimsoll::seq_policy> to;

  static plimsoll::placement<plimsoll::seq_policy> of_step(index_t step) {
    auto const loads = drifting_loads(2, layers, experts);
    return plimsoll::eplb(plimsoll::seq,
                          plimsoll::matrix_ref<std::int32_t const>(
                              loads.data() + step * layers * experts, layers, experts),
                          slots, {.on = {.ranks = ranks}});
  }
  two_plans() : from(of_step(0)), to(of_step(1)) {}
};

template <plimsoll::relabeling Relabel, index_t Nodes>
void align(benchmark::State& state) {
  two_plans const plans;
  std::vector<std::int32_t> map(static_cast<std::size_t>(layers * slots));
  for (auto _ : state) {
    auto report =
        plimsoll::align(plimsoll::seq, plans.from.ref(), plans.to.ref(),
                        {.on = {.nodes = Nodes}, .relabel = Relabel}, matrix(map, layers, slots));
    benchmark::DoNotOptimize(report.layers.data());
  }
}
BENCHMARK(align<plimsoll::relabeling::per_layer, 1>)
    ->Name("align/per_layer")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(align<plimsoll::relabeling::per_layer, 8>)
    ->Name("align/per_layer_nodes")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(align<plimsoll::relabeling::all_layers, 1>)
    ->Name("align/all_layers")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(align<plimsoll::relabeling::none, 1>)->Name("align/none")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

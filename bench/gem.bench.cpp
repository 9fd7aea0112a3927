// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <plimsoll/execution/omp.hpp>
#endif
#include <plimsoll/systems/gem.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "peers/gem.hpp"

namespace plimsoll_bench { namespace {

/// Llama-4-Scout's shape, which the paper maps in 8.8 s.
gem_input const& small() {
  static gem_input const input(48, 16, 4);
  return input;
}
gem_input const& large() {
  static gem_input const input(58, 256, 32);
  return input;
}

template <auto const& Policy>
void gem(benchmark::State& state, gem_input const& in) {
  plimsoll::tensor_ref<std::int32_t const> const loads(in.loads.data(), gem_input::steps, in.layers,
                                                       in.experts);
  std::vector<std::int32_t> map(in.loads.size() / gem_input::steps);
  std::vector<std::int32_t> counts(map.size());
  for (auto _ : state) {
    auto certificates =
        plimsoll::gem(Policy, loads, in.curves(), {.on = {.ranks = in.ranks}},
                      matrix(map, in.layers, in.experts), matrix(counts, in.layers, in.experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
#ifdef _OPENMP
void small_on_all_cores(benchmark::State& state) { gem<plimsoll::omp>(state, small()); }
void large_on_all_cores(benchmark::State& state) { gem<plimsoll::omp>(state, large()); }
BENCHMARK(small_on_all_cores)->Name("goal/gem_small")->Apply(as_goal<>);
BENCHMARK(large_on_all_cores)->Name("goal/gem_large")->Apply(as_goal<5>);
#endif
void small_on_one_core(benchmark::State& state) { gem<plimsoll::seq>(state, small()); }
BENCHMARK(small_on_one_core)->Name("gem_small/one_core")->Unit(benchmark::kMillisecond);

// A plain implementation of GEM by nested loops, on one core, for comparison.
void loops(benchmark::State& state) {
  gem_input const& in = small();
  for (auto _ : state) {
    double sum = 0;
    for (index_t layer = 0; layer < in.layers; ++layer) {
      peers::gem_loops const search(in.loads.data() + layer * in.experts, gem_input::steps,
                                    in.layers * in.experts, in.experts, in.ranks, in.curves());
      sum += search.search(30);
    }
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(loops)->Name("goal/gem_small/vs:loops")->Apply(as_goal<3>);

}  // namespace
}  // namespace plimsoll_bench

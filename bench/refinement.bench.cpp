// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/execution/omp.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Refines EPLB's plan to within 0.1 % of the bound; the time includes a copy of the plan.
// Arguments: layers, experts, slots, ranks.
void refine(benchmark::State& state, plimsoll::refinement_options const& options) {
  index_t const layers = state.range(0);
  index_t const experts = state.range(1);
  index_t const slots = state.range(2);
  index_t const ranks = state.range(3);
  auto loads = lognormal_loads(layers, experts);
  std::vector<std::int32_t> counts(loads.size());
  std::vector<std::int32_t> start(static_cast<std::size_t>(layers * slots));
  plimsoll::eplb(plimsoll::seq, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                 matrix(start, layers, slots), matrix(counts, layers, experts));
  std::vector<std::int32_t> map(start.size());
  for (auto _ : state) {
    std::copy(start.begin(), start.end(), map.begin());
    auto certificates =
        plimsoll::refine(plimsoll::seq, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                         options, matrix(map, layers, slots), matrix(counts, layers, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}

void packing(benchmark::State& state) { refine(state, {.max_trials = 0}); }
void joint(benchmark::State& state) { refine(state, {}); }
BENCHMARK(packing)
    ->Name("refinement/packing")
    ->ArgNames({"layers", "experts", "slots", "ranks"})
    ->Args({58, 256, 320, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(joint)
    ->Name("refinement/joint")
    ->ArgNames({"layers", "experts", "slots", "ranks"})
    ->Args({58, 256, 320, 64})
    ->Args({24, 32, 48, 16})
    ->Unit(benchmark::kMillisecond);

/// A decoding batch: 8 tokens an expert on average, whose number varies. No plan reaches the bound,
/// since tokens are whole.
void few_tokens(benchmark::State& state) {
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t ranks = 32;
  constexpr index_t slots = experts + ranks;
  std::vector<std::int32_t> loads = lognormal_loads(layers, experts);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    double const mean = loads[i] / 828.0;  // 8 in all
    double const draw = plimsoll::random::uniform(6, 0, i) + plimsoll::random::uniform(6, 1, i) - 1;
    loads[i] = static_cast<std::int32_t>(std::max(0.0, mean + 2 * std::sqrt(mean) * draw));
  }
  std::vector<std::int32_t> counts(loads.size());
  std::vector<std::int32_t> start(static_cast<std::size_t>(layers * slots));
  plimsoll::eplb(plimsoll::seq, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                 matrix(start, layers, slots), matrix(counts, layers, experts));
  std::vector<std::int32_t> map(start.size());
  for (auto _ : state) {
    std::copy(start.begin(), start.end(), map.begin());
    auto certificates =
        plimsoll::refine(plimsoll::omp, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                         {}, matrix(map, layers, slots), matrix(counts, layers, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(few_tokens)->Name("goal/refine")->Apply(as_goal<50>);

}  // namespace
}  // namespace plimsoll_bench

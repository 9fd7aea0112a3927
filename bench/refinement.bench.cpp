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

/// Shape of a model and its ranks.
struct model {
  index_t layers;
  index_t experts;
  index_t slots;
  index_t ranks;
};

/// Refines EPLB's plan to within 0.1 % of the bound; the time includes a copy of the plan.
template <class P>
void refine(benchmark::State& state, P const& policy, model const& of,
            std::vector<std::int32_t> loads, plimsoll::refinement_options const& options) {
  plimsoll::placement_options const where{.on = {.ranks = of.ranks}};
  auto const load = matrix(loads, of.layers, of.experts);
  std::vector<std::int32_t> counts(loads.size());
  std::vector<std::int32_t> start(static_cast<std::size_t>(of.layers * of.slots));
  plimsoll::eplb(plimsoll::seq, load, {.on = where.on}, matrix(start, of.layers, of.slots),
                 matrix(counts, of.layers, of.experts));
  std::vector<std::int32_t> map(start.size());
  for (auto _ : state) {
    std::copy(start.begin(), start.end(), map.begin());
    auto certificates =
        plimsoll::refine(policy, load, where, options, matrix(map, of.layers, of.slots),
                         matrix(counts, of.layers, of.experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}

// Arguments: layers, experts, slots, ranks.
void refine_lognormal(benchmark::State& state, plimsoll::refinement_options const& options) {
  model const of{state.range(0), state.range(1), state.range(2), state.range(3)};
  refine(state, plimsoll::seq, of, lognormal_loads(of.layers, of.experts), options);
}

void packing(benchmark::State& state) { refine_lognormal(state, {.max_trials = 0}); }
void joint(benchmark::State& state) { refine_lognormal(state, {}); }
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
  model const of{58, 256, 256 + 32, 32};
  std::vector<std::int32_t> loads = lognormal_loads(of.layers, of.experts);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    double const mean = loads[i] / 828.0;  // 8 in all
    double const draw = plimsoll::random::uniform(6, 0, i) + plimsoll::random::uniform(6, 1, i) - 1;
    loads[i] = static_cast<std::int32_t>(std::max(0.0, mean + 2 * std::sqrt(mean) * draw));
  }
  refine(state, plimsoll::omp, of, loads, {});
}
BENCHMARK(few_tokens)->Name("goal/refine")->Apply(as_goal<50>);

}  // namespace
}  // namespace plimsoll_bench

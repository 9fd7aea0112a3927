// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../tests/support/split_instances.hpp"
#include "split_inputs.hpp"
#ifdef PLIMSOLL_BENCH_CLP
#include "peers/minmax_lp.hpp"
#endif

namespace plimsoll_bench { namespace {

constexpr index_t experts = drifted_layer::experts;

/// Returns 200 layers; each run of a goal solves the next one.
std::vector<drifted_layer> const& instances(index_t extra) {
  static auto const make = [](index_t extra_slots) {
    std::vector<drifted_layer> made;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      made.emplace_back(extra_slots, seed);
    }
    return made;
  };
  static std::vector<drifted_layer> const few = make(64);
  static std::vector<drifted_layer> const many = make(256);
  return extra == 64 ? few : many;
}

template <index_t Extra>
void solve(benchmark::State& state) {
  static std::size_t run = 0;
  drifted_layer const& in = instances(Extra)[run++ % 200];
  plimsoll::minmax_lp lp(plimsoll::seq, in.placement());
  std::vector<double> split(static_cast<std::size_t>(in.slots));
  auto const step = [&](std::vector<std::int32_t> const& loads) {
    lp.solve(plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, experts),
             matrix(split, 1, in.slots));
  };
  step(in.before);
  for (auto _ : state) {
    step(in.now);
    benchmark::DoNotOptimize(split.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(solve<64>)->Name("goal/minmax_lp")->Apply(as_goal<>);
BENCHMARK(solve<256>)->Name("goal/minmax_lp_dense")->Apply(as_goal<>);

/// Solves the goals' instances in turn to optimality, by sweeps and blocking flows.
template <class Policy>
void solve_in_turn(benchmark::State& state, Policy const& policy) {
  std::vector<drifted_layer> const& in = instances(state.range(0));
  std::vector<plimsoll::minmax_lp<Policy>> prepared;
  for (drifted_layer const& layer : in) {
    prepared.emplace_back(policy, layer.placement(), plimsoll::minmax_lp_options{.tolerance = 0});
  }
  std::vector<double> split(in[0].map.size());
  std::size_t run = 0;
  for (auto _ : state) {
    std::size_t const i = run++ % in.size();
    prepared[i].solve(plimsoll::matrix_ref<std::int32_t const>(in[i].now.data(), 1, experts),
                      matrix(split, 1, in[i].slots));
    benchmark::ClobberMemory();
  }
}
int const solve_in_turn_forms = register_forms(
    "minmax_lp/solve", [](auto& state, auto const& policy) { solve_in_turn(state, policy); },
    [](auto* both) { both->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond); });

/// Splits experts that have a copy on each of range(0) ranks: sweeps do nearly all the work.
template <class Policy>
void solve_wide(benchmark::State& state, Policy const& policy) {
  constexpr index_t wide = 16;
  index_t const ranks = state.range(0);
  std::vector<std::int32_t> map;
  for (index_t slot = 0; slot < wide * ranks; ++slot) {
    map.push_back(static_cast<std::int32_t>(slot % wide));
  }
  std::vector<std::int32_t> const loads = lognormal_loads(1, wide);
  index_t const slots = wide * ranks;
  plimsoll::minmax_lp lp(policy, {.physical_to_logical = {map.data(), 1, slots},
                                  .replica_count = {nullptr, 1, wide},
                                  .ranks = ranks});
  std::vector<double> split(map.size());
  for (auto _ : state) {
    lp.solve(plimsoll::matrix_ref<std::int32_t const>(loads.data(), 1, wide),
             matrix(split, 1, slots));
    benchmark::ClobberMemory();
  }
}
int const solve_wide_forms = register_forms(
    "minmax_lp/solve_wide", [](auto& state, auto const& policy) { solve_wide(state, policy); },
    [](auto* both) { both->ArgName("ranks")->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond); });

/// Measures the slowest of the thousand test instances, solved to optimality; the time of an
/// instance is the best of five runs.
void slowest_instance(benchmark::State& state) {
  double worst = 0;
  for (auto _ : state) {
    worst = 0;
    for (int i = 0; i < 1000; ++i) {
      auto const in = plimsoll_test::make_split_instance(i);
      plimsoll::minmax_lp lp(plimsoll::seq, in.placement(), {.tolerance = 0});
      std::vector<double> split(in.phy2log.size());
      double best = 1;
      for (int run = 0; run < 5; ++run) {
        auto const start = std::chrono::steady_clock::now();
        lp.solve(plimsoll::matrix_ref<std::int64_t const>(in.loads.data(), 1, in.experts),
                 matrix(split, 1, in.slots()));
        std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
      }
      worst = std::max(worst, best);
    }
    state.SetIterationTime(worst);
  }
}
BENCHMARK(slowest_instance)
    ->Name("minmax_lp/slowest_of_1000")
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);

#ifdef PLIMSOLL_BENCH_CLP
template <index_t Extra>
void clp(benchmark::State& state) {
  static std::size_t run = 0;
  drifted_layer const& in = instances(Extra)[run++ % 200];
  peers::clp_split model(in.map, in.before, drifted_layer::ranks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.peak(in.now));
  }
}
BENCHMARK(clp<64>)->Name("goal/minmax_lp/vs:clp")->Apply(as_goal<>);
BENCHMARK(clp<256>)->Name("goal/minmax_lp_dense/vs:clp")->Apply(as_goal<>);
#endif

}  // namespace
}  // namespace plimsoll_bench

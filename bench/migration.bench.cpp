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

/// The placements that EPLB makes for two steps of `drifting_loads`. EPLB does not know the
/// placement in use, so that nearly all experts move.
struct two_plans {
  std::vector<std::int32_t> loads = drifting_loads(2, layers, experts);
  plimsoll::placement<plimsoll::seq_policy> from = plan(0);
  plimsoll::placement<plimsoll::seq_policy> to = plan(1);

  /// Returns the loads of the first `n` layers in a step.
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> of_step(index_t step,
                                                                 index_t n = layers) const {
    return {loads.data() + step * layers * experts, n, experts};
  }
  [[nodiscard]] plimsoll::placement<plimsoll::seq_policy> plan(index_t step) const {
    return plimsoll::eplb(plimsoll::seq, of_step(step), slots, {.on = {.ranks = ranks}});
  }
  static two_plans const& one() {
    static two_plans const plans;
    return plans;
  }
};

/// Returns the first layer of a placement.
plimsoll::placement_ref first_layer(plimsoll::placement_ref const& plan) {
  return {{plan.physical_to_logical.data, 1, slots}, {plan.replica_count.data, 1, experts}, ranks};
}

template <plimsoll::relabeling Relabel, index_t Nodes>
void align(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
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

/// One layer, with a tenth of the moves of the new placement, or without a limit.
template <plimsoll::split_rule Split, std::int64_t Moves>
void plan_within(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  std::vector<std::int32_t> map(slots);
  std::vector<std::int32_t> counts(experts);
  for (auto _ : state) {
    auto reports =
        plimsoll::plan_within(plimsoll::seq, plans.of_step(1, 1), first_layer(plans.from.ref()),
                              first_layer(plans.to.ref()), {}, {.split = Split, .max_moves = Moves},
                              matrix(map, 1, slots), matrix(counts, 1, experts));
    benchmark::DoNotOptimize(reports.data());
  }
}
BENCHMARK(plan_within<plimsoll::split_rule::even, 25>)
    ->Name("plan_within/even")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(plan_within<plimsoll::split_rule::optimal, 25>)
    ->Name("plan_within/optimal")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(plan_within<plimsoll::split_rule::even, plimsoll::unlimited>)
    ->Name("plan_within/even_unlimited")
    ->Unit(benchmark::kMicrosecond);

/// One layer over eight steps, with a tenth of the moves of the new placement.
void plan_within_steps(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  std::vector<std::int32_t> const history = drifting_loads(8, 1, experts);
  std::vector<std::int32_t> map(slots);
  std::vector<std::int32_t> counts(experts);
  for (auto _ : state) {
    auto reports = plimsoll::plan_within(
        plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(history.data(), 8, 1, experts),
        first_layer(plans.from.ref()), first_layer(plans.to.ref()), {},
        {.split = plimsoll::split_rule::optimal, .max_moves = 25}, matrix(map, 1, slots),
        matrix(counts, 1, experts));
    benchmark::DoNotOptimize(reports.data());
  }
}
BENCHMARK(plan_within_steps)->Name("plan_within/steps")->Unit(benchmark::kMicrosecond);

template <plimsoll::round_rule Rule>
void transfers(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  auto const aligned = plimsoll::align(plimsoll::seq, plans.from.ref(), plans.to.ref());
  for (auto _ : state) {
    auto plan = plimsoll::transfers(plimsoll::seq, plans.from.ref(), aligned.ref(),
                                    {.on = {.nodes = 8}, .rounds = Rule});
    benchmark::DoNotOptimize(plan.list.data());
  }
}
BENCHMARK(transfers<plimsoll::round_rule::one_peer>)
    ->Name("transfers/one_peer")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(transfers<plimsoll::round_rule::send_and_receive>)
    ->Name("transfers/send_and_receive")
    ->Unit(benchmark::kMicrosecond);

void validate(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  auto const from = plans.from.ref();
  auto const aligned = plimsoll::align(plimsoll::seq, from, plans.to.ref());
  auto const plan = plimsoll::transfers(plimsoll::seq, from, aligned.ref());
  for (auto _ : state) {
    plimsoll::validate(plimsoll::seq, from, aligned.ref(), plan);
  }
}
BENCHMARK(validate)->Name("validate/transfers")->Unit(benchmark::kMicrosecond);

void migration(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  std::vector<std::int32_t> map(static_cast<std::size_t>(layers * slots));
  for (auto _ : state) {
    auto report = plimsoll::align(plimsoll::seq, plans.from.ref(), plans.to.ref(), {},
                                  matrix(map, layers, slots));
    plimsoll::placement_ref to = plans.to.ref();
    to.physical_to_logical = matrix(map, layers, slots);
    auto plan = plimsoll::transfers(plimsoll::seq, plans.from.ref(), to, {.on = {.nodes = 8}});
    benchmark::DoNotOptimize(report.layers.data());
    benchmark::DoNotOptimize(plan.list.data());
  }
}
BENCHMARK(migration)->Name("goal/migration")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

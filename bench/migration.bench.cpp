// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/execution/omp.hpp>
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

/// A window of eight steps of `drifting_loads`, the placement that EPLB made for the step before,
/// and the one that it makes for the last step. A tenth of the slots may get other experts.
struct window_of_steps {
  static constexpr index_t steps = 8;

  index_t layers;
  index_t experts;
  index_t slots;
  index_t ranks;
  std::vector<std::int32_t> loads = drifting_loads(steps + 1, layers, experts);
  plimsoll::placement<plimsoll::seq_policy> from = plan(0);
  plimsoll::placement<plimsoll::seq_policy> to = plan(steps);

  [[nodiscard]] plimsoll::placement<plimsoll::seq_policy> plan(index_t step) const {
    return plimsoll::eplb(plimsoll::seq,
                          plimsoll::matrix_ref<std::int32_t const>(
                              loads.data() + step * layers * experts, layers, experts),
                          slots, {.on = {.ranks = ranks}});
  }
  [[nodiscard]] plimsoll::tensor_ref<std::int32_t const> window() const {
    return {loads.data() + layers * experts, steps, layers, experts};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> of_layer(index_t layer) const {
    plimsoll::matrix_ref<std::int32_t const> result(loads.data() + (layers + layer) * experts,
                                                    steps, experts);
    result.strides[0] = layers * experts;
    return result;
  }
  [[nodiscard]] plimsoll::migration_options budget(index_t planned_layers) const {
    return {.split = plimsoll::split_rule::optimal, .max_moves = planned_layers * slots / 10};
  }
};

template <class P>
void plan_window(benchmark::State& state, P const& policy, window_of_steps const& in,
                 bool validate) {
  std::vector<std::int32_t> map(static_cast<std::size_t>(in.layers * in.slots));
  std::vector<std::int32_t> counts(static_cast<std::size_t>(in.layers * in.experts));
  plimsoll::migration_options options = in.budget(in.layers);
  options.judge_on = validate ? plimsoll::judged_steps::unseen : plimsoll::judged_steps::all;
  for (auto _ : state) {
    auto reports = plimsoll::plan_within(policy, in.window(), in.from.ref(), in.to.ref(), {},
                                         options, matrix(map, in.layers, in.slots),
                                         matrix(counts, in.layers, in.experts));
    benchmark::DoNotOptimize(reports.data());
  }
}
template <bool Validate>
void plan_model(benchmark::State& state) {
  plan_window(state, plimsoll::omp, {layers, experts, slots, ranks}, Validate);
}
BENCHMARK(plan_model<false>)->Name("goal/plan_within")->Apply(as_goal<20>);
BENCHMARK(plan_model<true>)->Name("goal/plan_within_validated")->Apply(as_goal<20>);

// Arguments: layers, experts, slots, ranks.
void plan_growing(benchmark::State& state) {
  plan_window(state, plimsoll::seq,
              {state.range(0), state.range(1), state.range(2), state.range(3)}, false);
}
BENCHMARK(plan_growing)
    ->Name("plan_within/growth")
    ->ArgNames({"layers", "experts", "slots", "ranks"})
    ->Args({1, 256, 320, 64})
    ->Args({4, 256, 320, 64})
    ->Args({16, 256, 320, 64})
    ->Args({1, 512, 640, 64})
    ->Args({1, 1024, 1280, 64})
    ->Args({1, 2048, 4096, 64})
    ->Args({1, 1024, 1280, 128})
    ->Args({1, 1024, 1280, 256})
    ->Args({1, 1024, 1280, 512})
    ->Unit(benchmark::kMillisecond);

/// Plans one layer after the other by an object that was made before.
template <plimsoll::migration_candidates Candidates, bool Validate>
void plan_layers(benchmark::State& state) {
  window_of_steps const in{layers, experts, slots, ranks};
  plimsoll::migration_options options = in.budget(1);
  options.judge_on = Validate ? plimsoll::judged_steps::unseen : plimsoll::judged_steps::all;
  options.candidates = Candidates;
  plimsoll::layer_planner planner(plimsoll::seq, in.from.ref().of_layer(0), window_of_steps::steps,
                                  {}, options);
  std::vector<std::int32_t> map(slots);
  std::vector<std::int32_t> counts(experts);
  index_t layer = 0;
  for (auto _ : state) {
    auto report = planner.plan(in.of_layer(layer), in.from.ref().of_layer(layer),
                               in.to.ref().of_layer(layer), map, counts);
    benchmark::DoNotOptimize(report);
    layer = (layer + 1) % layers;
  }
}
BENCHMARK(plan_layers<plimsoll::migration_candidates::all, false>)
    ->Name("goal/plan_within_layer")
    ->Apply(as_goal<>);
BENCHMARK(plan_layers<plimsoll::migration_candidates::all, true>)
    ->Name("goal/plan_within_layer_validated")
    ->Apply(as_goal<>);
BENCHMARK(plan_layers<plimsoll::migration_candidates::one_bonus, true>)
    ->Name("goal/plan_within_layer_short")
    ->Apply(as_goal<>);

template <plimsoll::round_rule Rule>
void transfers(benchmark::State& state) {
  two_plans const& plans = two_plans::one();
  auto const aligned = plimsoll::align(plimsoll::seq, plans.from.ref(), plans.to.ref());
  for (auto _ : state) {
    auto plan = plimsoll::plan_transfers(plimsoll::seq, plans.from.ref(), aligned.ref(),
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
  auto const plan = plimsoll::plan_transfers(plimsoll::seq, from, aligned.ref());
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
    auto plan = plimsoll::plan_transfers(plimsoll::seq, plans.from.ref(), to, {.on = {.nodes = 8}});
    benchmark::DoNotOptimize(report.layers.data());
    benchmark::DoNotOptimize(plan.list.data());
  }
}
BENCHMARK(migration)->Name("goal/migration")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

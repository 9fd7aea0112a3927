// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "inputs.hpp"
#include "peers/least_loaded.hpp"

namespace plimsoll_bench { namespace {

/// Returns steps of DeepSeek-V3's experts on 64 ranks.
zipf_steps const& deepseek() {
  static zipf_steps const steps(256, 64);
  return steps;
}

plimsoll::least_loaded_options options_of(zipf_steps const& in) {
  plimsoll::least_loaded_options options;
  options.experts = in.experts;
  options.on.ranks = in.ranks;
  options.max_token_copies = zipf_steps::tokens * zipf_steps::k;
  return options;
}

/// The loads and transfers of a planned step.
struct outcome {
  std::vector<std::int64_t> loads;  ///< [ranks]
  std::int64_t transfers;
};

/// Plans the steps in turn, one in each run, so that no run repeats a recent step. Reports the
/// highest peak over the mean and the mean number of transfers of the first 20 steps.
template <class Plan, class Outcome>
void plan_in_turn(benchmark::State& state, zipf_steps const& in, Plan plan, Outcome outcome_of) {
  constexpr index_t looked_at = 20;
  double peak = 0;
  double transfers = 0;
  for (index_t i = 0; i < looked_at; ++i) {
    plan(in.loads_of(i));
    outcome const of = outcome_of(in.loads_of(i));
    if (std::accumulate(of.loads.begin(), of.loads.end(), std::int64_t{0}) != in.copies()) {
      state.SkipWithError("tokens are lost");
      return;
    }
    peak = std::max(peak, static_cast<double>(*std::max_element(of.loads.begin(), of.loads.end())));
    transfers += static_cast<double>(of.transfers);
  }
  state.counters["imbalance"] =
      peak * static_cast<double>(in.ranks) / static_cast<double>(in.copies());
  state.counters["transfers"] = transfers / looked_at;

  static index_t step = 0;  // a goal calls this function once for every run
  for (index_t i = 0; i < 8; ++i) {
    plan(in.loads_of(step++ % zipf_steps::steps));
  }
  for (auto _ : state) {
    plan(in.loads_of(step++ % zipf_steps::steps));
    benchmark::ClobberMemory();
  }
}

template <class Cost = void, class Policy = plimsoll::seq_policy>
void plan_steps(benchmark::State& state, zipf_steps const& in,
                plimsoll::least_loaded_options const& options,
                plimsoll::spill_price<Cost> const& price = {}, Policy const& policy = {}) {
  plimsoll::least_loaded<Policy, Cost> planner(policy, options, price);
  plan_in_turn(
      state, in, [&](auto const& loads) { planner.plan(loads); },
      [&](auto const& loads) -> outcome {
        plimsoll::validate(plimsoll::seq, planner.plan_ref(), loads, options);
        auto const of_ranks = planner.rank_loads();
        return {{of_ranks.data, of_ranks.data + options.on.ranks}, planner.report()->transfers};
      });
}

void plan(benchmark::State& state) { plan_steps(state, deepseek(), options_of(deepseek())); }
BENCHMARK(plan)->Name("goal/least_loaded")->Apply(as_goal<>);

void llep(benchmark::State& state) {
  peers::spill_lists lists;
  plan_in_turn(
      state, deepseek(),
      [&](auto const& loads) {
        peers::llep_lists planner(loads.data, 256, 64);
        lists = planner.plan(1, 1024, 1.3);
      },
      [&](auto const&) -> outcome {
        return {lists.loads, std::ssize(lists.transfers)};
      });
}
BENCHMARK(llep)->Name("goal/least_loaded/vs:llep")->Apply(as_goal<>);

void ultra_ep(benchmark::State& state) {
  peers::ultra_ep_search search(256, 64, {});
  peers::ultra_ep_search::plan plan;
  plan_in_turn(
      state, deepseek(), [&](auto const& loads) { plan = search.search(loads.data); },
      [&](auto const&) -> outcome {
        return {plan.loads, std::ssize(plan.replicas)};
      });
}
BENCHMARK(ultra_ep)->Name("goal/least_loaded/vs:ultraep")->Apply(as_goal<>);

// Plans every step, even with balanced loads.
template <class Policy>
void plan_of_shape(benchmark::State& state, Policy const& policy) {
  zipf_steps const in(state.range(0), state.range(1));
  auto options = options_of(in);
  options.lambda = 0;
  plan_steps(state, in, options, {}, policy);
}
// By the list of visits.
int const plan_of_shape_forms = register_forms(
    "least_loaded/plan", [](auto& state, auto const& policy) { plan_of_shape(state, policy); },
    [](auto* both) {
      both->Args({128, 8})
          ->Args({256, 64})
          ->Args({384, 32})
          ->Args({1024, 512})
          ->Unit(benchmark::kMicrosecond);
    });

void stays_home(benchmark::State& state) {
  auto options = options_of(deepseek());
  options.lambda = 100;
  plan_steps(state, deepseek(), options);
}
BENCHMARK(stays_home)->Name("least_loaded/plan/stays_home")->Unit(benchmark::kMicrosecond);

void limited(benchmark::State& state) {
  auto options = options_of(deepseek());
  options.max_imports = 2;
  options.max_exports = 8;
  plan_steps(state, deepseek(), options);
}
BENCHMARK(limited)->Name("least_loaded/plan/limited")->Unit(benchmark::kMicrosecond);

void nodes(benchmark::State& state) {
  auto options = options_of(deepseek());
  options.on.nodes = 8;
  plan_steps(state, deepseek(), options);
}
BENCHMARK(nodes)->Name("least_loaded/plan/nodes")->Unit(benchmark::kMicrosecond);

// The experts that were popular in the first step have a second home.
void several_homes(benchmark::State& state) {
  zipf_steps const& in = deepseek();
  index_t const slots = in.experts + in.ranks;
  std::vector<std::int32_t> map(static_cast<std::size_t>(slots));
  std::vector<std::int32_t> counts(static_cast<std::size_t>(in.experts));
  plimsoll::eplb(plimsoll::seq,
                 plimsoll::matrix_ref<std::int32_t const>(in.loads.data(), 1, in.experts),
                 {.on = {.ranks = in.ranks}}, matrix(map, 1, slots), matrix(counts, 1, in.experts));
  auto options = options_of(in);
  options.residents.physical_to_logical = {map.data(), 1, slots};
  options.residents.ranks = in.ranks;
  plan_steps(state, in, options);
}
BENCHMARK(several_homes)->Name("least_loaded/plan/several_homes")->Unit(benchmark::kMicrosecond);

// Times in microseconds: an expert of 88 MB, 450 GB/s within a node of 8 ranks, 50 GB/s between
// nodes.
void priced(benchmark::State& state) {
  auto options = options_of(deepseek());
  options.on.nodes = 8;
  options.expert_bytes = 88000000;
  plimsoll::spill_price<plimsoll::moe_cost> const price{
      {.launch = 10, .per_token = 0.18, .per_expert = 18}, 450e3, 50e3};
  plan_steps(state, deepseek(), options, price);
}
BENCHMARK(priced)->Name("least_loaded/plan/priced")->Unit(benchmark::kMicrosecond);

/// One rank's calls of a step.
struct rank_step {
  static constexpr index_t rank = 5;

  zipf_steps const& in = deepseek();
  std::vector<std::int32_t> counts = in.counts(1);
  std::vector<std::int32_t> row = std::vector<std::int32_t>(static_cast<std::size_t>(in.experts));
  std::vector<std::int32_t> id = in.ids(1, rank);
  std::vector<std::int32_t> destinations = std::vector<std::int32_t>(id.size());
  std::vector<std::int32_t> rows = std::vector<std::int32_t>(id.size());
  std::vector<std::int32_t> arranged = std::vector<std::int32_t>(2 * id.size());
  std::vector<plimsoll::spill_segment> groups =
      std::vector<plimsoll::spill_segment>(static_cast<std::size_t>(in.experts));
  std::vector<plimsoll::spill_counters> counters = std::vector<plimsoll::spill_counters>(1);
  plimsoll::least_loaded<plimsoll::seq_policy> planner{plimsoll::seq, options_of(in)};

  rank_step() {
    count();
    add_up();
    planner.plan();
    planner.exchange();
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> ids() const {
    return {id.data(), zipf_steps::tokens, zipf_steps::k};
  }
  void count() { planner.count(ids(), row); }
  void add_up() { planner.add_up(matrix(counts, in.ranks, in.experts)); }
  void exchange() { planner.exchange(); }
  void route() {
    planner.route(rank, ids(), matrix(destinations, zipf_steps::tokens, zipf_steps::k),
                  matrix(rows, zipf_steps::tokens, zipf_steps::k), counters);
  }
  void arrange() { planner.arrange(rank, arranged, groups); }
};

template <void (rank_step::*Part)()>
void part_of_step(benchmark::State& state) {
  rank_step step;
  for (auto _ : state) {
    (step.*Part)();
    benchmark::ClobberMemory();
  }
  step.planner.check();
}
BENCHMARK(part_of_step<&rank_step::count>)
    ->Name("least_loaded/count")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(part_of_step<&rank_step::add_up>)
    ->Name("least_loaded/add_up")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(part_of_step<&rank_step::exchange>)
    ->Name("least_loaded/exchange")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(part_of_step<&rank_step::route>)
    ->Name("least_loaded/route")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(part_of_step<&rank_step::arrange>)
    ->Name("least_loaded/arrange")
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

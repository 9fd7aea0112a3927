// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/waterline.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "peers/waterline.hpp"

namespace plimsoll_bench { namespace {

struct outputs {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  explicit outputs(step_batch const& b)
      : ids(b.ids.size() + static_cast<std::size_t>(b.tokens)), weights(ids.size()) {}
};

plimsoll::waterline_options options_of(step_batch const& b) {
  return {.on = {.ranks = b.ranks}, .slots = b.slots, .top_k = b.k, .max_tokens = b.tokens};
}

template <class Policy = plimsoll::seq_policy>
void waterline(benchmark::State& state, plimsoll::waterline_options const& options, index_t source,
               Policy const& policy = {}) {
  step_batch const& b = step_batch::one();
  outputs out(b);
  plimsoll::waterline line(policy, options);
  for (auto _ : state) {
    line.plan(b.loads_view(), source);
    line.fill(b.ids_view(), source, {.weights = b.weights_view()},
              matrix(out.ids, b.tokens, b.k + 1),
              {.weights = matrix(out.weights, b.tokens, b.k + 1)});
    benchmark::ClobberMemory();
  }
  state.counters["moved"] = static_cast<double>(line.report()->moved);
}

// The rank that most rows must leave: no other has more work.
void busiest(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  waterline(state, options_of(b), b.busiest);
}
BENCHMARK(busiest)->Name("goal/waterline")->Apply(as_goal<>);

void idlest(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  waterline(state, options_of(b), b.idlest);
}
BENCHMARK(idlest)->Name("waterline/stays_home")->Unit(benchmark::kMicrosecond);

void all_ranks(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  auto options = options_of(b);
  options.candidates = plimsoll::candidate_ranks::all;
  waterline(state, options, b.busiest);
}
BENCHMARK(all_ranks)->Name("waterline/all_ranks")->Unit(benchmark::kMicrosecond);

template <class Policy>
void plan(benchmark::State& state, Policy const& policy) {
  step_batch const& b = step_batch::one();
  auto options = options_of(b);
  options.on.nodes = state.range(0);
  plimsoll::waterline line(policy, options);
  for (auto _ : state) {
    line.plan(b.loads_view(), b.busiest);
    benchmark::ClobberMemory();
  }
}
int const plan_forms = register_forms(
    "waterline/plan", [](auto& state, auto const& policy) { plan(state, policy); },
    [](auto* both) { both->ArgName("nodes")->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond); });

/// The whole step, of which only the plan and the ranks of rows within a tile differ.
template <class Policy>
void plan_and_fill(benchmark::State& state, Policy const& policy) {
  step_batch const& b = step_batch::one();
  waterline(state, options_of(b), b.busiest, policy);
}
int const plan_and_fill_forms = register_forms(
    "waterline/plan_and_fill",
    [](auto& state, auto const& policy) { plan_and_fill(state, policy); },
    [](auto* both) { both->Unit(benchmark::kMicrosecond); });

template <bool Literal>
void sampled(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  auto options = options_of(b);
  options.method = plimsoll::fill_method::sampled;
  options.arithmetic =
      Literal ? plimsoll::fill_arithmetic::sglang : plimsoll::fill_arithmetic::exact;
  waterline(state, options, b.busiest);
}
BENCHMARK(sampled<false>)->Name("waterline/sampled")->Unit(benchmark::kMicrosecond);
BENCHMARK(sampled<true>)->Name("waterline/literal")->Unit(benchmark::kMicrosecond);

void count(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  plimsoll::waterline line(plimsoll::seq, options_of(b));
  std::vector<std::int64_t> loads(b.loads.size());
  for (auto _ : state) {
    line.count(b.ids_view(), 0, matrix(loads, 2, b.ranks));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(count)->Name("waterline/count")->Unit(benchmark::kMicrosecond);

peers::routed_batch peer_batch(step_batch const& b) {
  return {static_cast<std::size_t>(b.tokens),
          static_cast<std::size_t>(b.k),
          static_cast<std::size_t>(b.ranks),
          static_cast<std::int32_t>(b.slots / b.ranks),
          b.ids.data(),
          b.weights.data()};
}

void one_pass(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  outputs out(b);
  for (auto _ : state) {
    peers::stay_at_home(peer_batch(b), 0, out.ids.data(), out.weights.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(one_pass)->Name("goal/waterline/vs:one_pass")->Apply(as_goal<>);

void waterfill_loop(benchmark::State& state) {
  step_batch const& b = step_batch::one();
  outputs out(b);
  peers::waterfill_loop peer;
  for (auto _ : state) {
    peer.run(peer_batch(b), b.loads.data(), b.loads.data() + b.ranks,
             static_cast<std::int32_t>(b.busiest), out.ids.data(), out.weights.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(waterfill_loop)->Name("goal/waterline/vs:waterfill_loop")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

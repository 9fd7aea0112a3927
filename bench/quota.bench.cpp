// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/quota.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "split_inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t experts = routed_layer::experts;
constexpr index_t tokens = routed_layer::tokens;
constexpr index_t per_token = routed_layer::k;

/// A step with its optimal split and quotas.
struct step : routed_layer {
  std::vector<double> split;
  std::vector<std::int32_t> quotas;
  std::vector<plimsoll::quota_report> reports = std::vector<plimsoll::quota_report>(1);

  explicit step(index_t extra) : routed_layer(extra), split(map.size()), quotas(map.size()) {
    plimsoll::minmax_lp lp(plimsoll::seq, placement());
    lp.solve(loads_view(), matrix(split, 1, slots));
    round(plimsoll::seq);
  }
  template <class Policy>
  void round(Policy const& policy) {
    plimsoll::round_split(policy, loads_view(), placement(), matrix(split, 1, slots),
                          matrix(quotas, 1, slots), reports);
  }
};

template <class Policy>
void round(benchmark::State& state, Policy const& policy) {
  step in(state.range(0));
  for (auto _ : state) {
    in.round(policy);
    benchmark::DoNotOptimize(in.quotas.data());
    benchmark::ClobberMemory();
  }
  state.counters["moves"] = static_cast<double>(in.reports[0].moves);
}
// The team form rounds by groups of ranks that fractions connect, over sorted slots.
int const round_forms = register_forms(
    "quota/round", [](auto& state, auto const& policy) { round(state, policy); },
    [](auto* both) { both->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond); });

template <class Policy = plimsoll::seq_policy>
void dispatch(benchmark::State& state, plimsoll::dispatch_method rule, index_t of_tokens = tokens,
              Policy const& policy = {}) {
  step in(state.range(0));
  std::vector<std::int32_t> slots(in.ids.size());
  std::vector<plimsoll::dispatch_counters> counters(1);
  for (auto _ : state) {
    plimsoll::dispatch(
        policy, plimsoll::matrix_ref<std::int32_t const>(in.ids.data(), of_tokens, per_token),
        in.map, in.quotas, {.experts = experts, .method = rule},
        plimsoll::matrix_ref<std::int32_t>(slots.data(), of_tokens, per_token), counters);
    benchmark::DoNotOptimize(slots.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK_CAPTURE(dispatch, in_order, plimsoll::dispatch_method::in_order)
    ->Name("quota/dispatch_in_order")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(dispatch, sampled, plimsoll::dispatch_method::sampled)
    ->Name("quota/dispatch_sampled")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);
// A step of decoding, in which listing the slots takes as long as dispatching.
BENCHMARK_CAPTURE(dispatch, few, plimsoll::dispatch_method::in_order, 64)
    ->Name("quota/dispatch_few")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(dispatch, few_team, plimsoll::dispatch_method::in_order, 64, team_forms)
    ->Name("quota/dispatch_few/team_form")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);

/// Measures the alternative without quotas: each token draws a replica of its expert from the
/// prefix sums of its shares, with a simple generator.
void inverse_cdf(benchmark::State& state) {
  step in(state.range(0));
  std::vector<std::int32_t> chosen(in.ids.size());
  std::vector<std::vector<std::int32_t>> slots_of(experts);
  for (std::size_t slot = 0; slot < in.map.size(); ++slot) {
    slots_of[static_cast<std::size_t>(in.map[slot])].push_back(static_cast<std::int32_t>(slot));
  }
  std::uint64_t random = 1;
  std::vector<std::vector<double>> until(experts);
  for (auto _ : state) {
    for (std::size_t e = 0; e < experts; ++e) {
      until[e].clear();
      double sum = 0;
      for (std::int32_t const slot : slots_of[e]) {
        until[e].push_back(sum += in.split[static_cast<std::size_t>(slot)]);
      }
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      auto const e = static_cast<std::size_t>(in.ids[i]);
      random = random * 6364136223846793005u + 1442695040888963407u;
      double const drawn = static_cast<double>(random >> 11) * 0x1p-53 * until[e].back();
      auto const at = std::upper_bound(until[e].begin(), until[e].end() - 1, drawn);
      chosen[i] = slots_of[e][static_cast<std::size_t>(at - until[e].begin())];
    }
    benchmark::DoNotOptimize(chosen.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(inverse_cdf)
    ->Name("quota/inverse_cdf_per_token")
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/top_k.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "peers/token_drop.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t tokens = 16384;
constexpr index_t experts = 256;
constexpr index_t k = 8;

/// Pairs as they come from an engine's router.
struct routed {
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(tokens * k);
  std::vector<float> scores = std::vector<float>(tokens * k);

  routed() {
    std::vector<float> const logits = router_logits(tokens, experts);
    plimsoll::top_k(plimsoll::seq,
                    plimsoll::matrix_ref<float const>(logits.data(), tokens, experts), {.k = k},
                    matrix(ids, tokens, k), matrix(scores, tokens, k));
  }
};

routed const& pairs() {
  static routed const result;
  return result;
}

void mask(benchmark::State& state, plimsoll::capacity_options options) {
  options.experts = experts;
  options.top_k = k;
  options.max_tokens = tokens;
  routed const& in = pairs();
  std::vector<std::int32_t> ids(in.ids.size());
  std::vector<std::int32_t> positions(in.ids.size());
  std::vector<std::int32_t> counts(experts);
  std::vector<plimsoll::capacity_report> report(1);
  plimsoll::capacity_mask mask(plimsoll::seq, options);
  for (auto _ : state) {
    mask.apply(plimsoll::matrix_ref<std::int32_t const>(in.ids.data(), tokens, k),
               plimsoll::matrix_ref<float const>(in.scores.data(), tokens, k),
               {.ids = matrix(ids, tokens, k),
                .positions = matrix(positions, tokens, k),
                .counts = counts,
                .report = report});
    benchmark::ClobberMemory();
  }
  state.counters["dropped"] = report[0].dropped_fraction;
}
BENCHMARK_CAPTURE(mask, score, plimsoll::capacity_options{})
    ->Name("capacity_mask/score")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(mask, order, plimsoll::capacity_options{.drop_by = plimsoll::drop_policy::order})
    ->Name("capacity_mask/order")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(mask, ranks, plimsoll::capacity_options{.ranks = 32})
    ->Name("capacity_mask/ranks")
    ->Unit(benchmark::kMillisecond);

void nth_element(benchmark::State& state) {
  routed const& in = pairs();
  std::vector<std::int32_t> ids;
  peers::token_drop_nth_element peer(tokens, experts, k);
  for (auto _ : state) {
    ids = in.ids;
    peer.mask(ids.data(), in.scores.data(), tokens * k / experts);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(nth_element)->Name("capacity_mask/nth_element")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include "peers/token_drop.hpp"

#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <plimsoll/execution/omp.hpp>
#endif
#include <plimsoll/systems/token_drop.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t tokens = 16384;
constexpr index_t experts = 256;
constexpr index_t k = 8;

std::vector<float> const& logits() {
  static std::vector<float> const values = router_logits(tokens, experts);
  return values;
}
plimsoll::matrix_ref<float const> logits_view() { return {logits().data(), tokens, experts}; }

/// Outputs of the mask that a layer uses.
struct outputs {
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(tokens * k);
  std::vector<float> weights = std::vector<float>(tokens * k);
  std::vector<std::int32_t> positions = std::vector<std::int32_t>(tokens * k);
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(experts);
  std::vector<std::int32_t> offsets = std::vector<std::int32_t>(experts + 1);
  std::vector<plimsoll::capacity_report> report = std::vector<plimsoll::capacity_report>(1);

  plimsoll::kept_pairs kept() {
    return {.ids = matrix(ids, tokens, k),
            .weights = matrix(weights, tokens, k),
            .positions = matrix(positions, tokens, k),
            .counts = counts,
            .offsets = offsets,
            .report = report};
  }
};

template <auto const& Policy, plimsoll::score_function Function>
void token_drop(benchmark::State& state) {
  outputs out;
  plimsoll::token_drop drop(Policy, {.function = Function,
                                     .route = {.k = k},
                                     .limit = {.experts = experts, .max_tokens = tokens}});
  static_cast<void>(logits());
  for (auto _ : state) {
    drop.apply(logits_view(), out.kept());
    benchmark::ClobberMemory();
  }
  state.counters["dropped"] = out.report[0].dropped_fraction;
}
BENCHMARK((token_drop<plimsoll::seq, plimsoll::score_function::none>))
    ->Name("goal/token_drop")
    ->Apply(as_goal<>);
BENCHMARK((token_drop<plimsoll::seq, plimsoll::score_function::softmax>))
    ->Name("token_drop/softmax")
    ->Unit(benchmark::kMillisecond);
#ifdef _OPENMP
BENCHMARK((token_drop<plimsoll::omp, plimsoll::score_function::none>))
    ->Name("token_drop/all_cores")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
#endif

void nth_element(benchmark::State& state) {
  peers::token_drop_nth_element peer(tokens, experts, k);
  std::vector<std::int32_t> ids(tokens * k);
  std::vector<float> weights(tokens * k);
  static_cast<void>(logits());
  for (auto _ : state) {
    peer.route(logits().data(), ids.data(), weights.data());
    peer.mask(ids.data(), weights.data(), tokens * k / experts);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(nth_element)->Name("goal/token_drop/vs:nth_element")->Apply(as_goal<>);

}  // namespace
}  // namespace plimsoll_bench

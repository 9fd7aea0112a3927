// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/top_k.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t tokens = 4096;
constexpr index_t experts = 256;

struct batch {
  std::vector<float> logits = router_logits(tokens, experts);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(tokens * 8);
  std::vector<float> weights = std::vector<float>(tokens * 8);
};

template <class Policy = plimsoll::seq_policy>
void route(benchmark::State& state, plimsoll::top_k_options const& options,
           Policy const& policy = {}) {
  batch in;
  for (auto _ : state) {
    plimsoll::top_k(policy, matrix(in.logits, tokens, experts), options,
                    matrix(in.ids, tokens, options.k), matrix(in.weights, tokens, options.k));
    benchmark::ClobberMemory();
  }
}
BENCHMARK_CAPTURE(route, scores, plimsoll::top_k_options{.k = 8})
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/scores");
BENCHMARK_CAPTURE(route, scores_team, plimsoll::top_k_options{.k = 8}, team_forms)
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/scores/team_form");
BENCHMARK_CAPTURE(route, one, plimsoll::top_k_options{.k = 1})
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/one");
BENCHMARK_CAPTURE(route, one_team, plimsoll::top_k_options{.k = 1}, team_forms)
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/one/team_form");
BENCHMARK_CAPTURE(route, softmax,
                  plimsoll::top_k_options{.k = 8, .function = plimsoll::score_function::softmax})
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/softmax");
BENCHMARK_CAPTURE(route, groups,
                  plimsoll::top_k_options{.k = 8,
                                          .function = plimsoll::score_function::sigmoid,
                                          .groups = 8,
                                          .kept_groups = 4,
                                          .normalize = plimsoll::normalization::to_one,
                                          .scale = 2.5})
    ->Unit(benchmark::kMillisecond)
    ->Name("top_k/sigmoid_in_groups");

/// Selects the best k pairs of score and expert by std::partial_sort.
void partial_sort(benchmark::State& state) {
  batch in;
  std::vector<std::pair<float, std::int32_t>> row(experts);
  for (auto _ : state) {
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t e = 0; e < experts; ++e) {
        row[e] = {in.logits[t * experts + e], static_cast<std::int32_t>(e)};
      }
      std::partial_sort(row.begin(), row.begin() + 8, row.end(), std::greater<>{});
      for (std::size_t j = 0; j < 8; ++j) {
        in.weights[8 * t + j] = row[j].first;
        in.ids[8 * t + j] = row[j].second;
      }
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(partial_sort)->Unit(benchmark::kMillisecond)->Name("top_k/partial_sort");

}  // namespace
}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/replication.hpp>

#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Replicates one layer. Arguments: experts, slots.
void replicate(benchmark::State& state) {
  index_t const experts = state.range(0);
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> counts(loads.size());
  for (auto _ : state) {
    auto certificates = plimsoll::replicate(plimsoll::seq, matrix(loads, 1, experts),
                                            state.range(1), {}, matrix(counts, 1, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(replicate)
    ->Name("replication/replicate")
    ->ArgNames({"experts", "slots"})
    ->Args({64, 80})
    ->Args({256, 320})
    ->Args({256, 512})
    ->Args({4096, 8192});

// Counts for required anti-affinity on 64 ranks: the copies of an expert are on different ranks.
void replicate_apart(benchmark::State& state) {
  index_t const experts = state.range(0);
  auto loads = lognormal_loads(1, experts);
  std::vector<std::int32_t> counts(loads.size());
  for (auto _ : state) {
    auto certificates =
        plimsoll::replicate(plimsoll::seq, matrix(loads, 1, experts), state.range(1),
                            {.where = {.on = {.ranks = 64},
                                       .replica_anti_affinity = plimsoll::anti_affinity::rank,
                                       .anti_affinity_strength = plimsoll::strictness::required}},
                            matrix(counts, 1, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK(replicate_apart)
    ->Name("replication/replicate/rank")
    ->ArgNames({"experts", "slots"})
    ->Args({256, 320})
    ->Args({256, 512});

}  // namespace
}  // namespace plimsoll_bench

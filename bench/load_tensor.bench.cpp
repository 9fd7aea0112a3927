// SPDX-License-Identifier: Apache-2.0
#include "team_forms.hpp"
// The primitives come after the overloads of `launch`.
#include <benchmark/benchmark.h>
#include <plimsoll/load_tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

constexpr index_t experts = 256;

// ----- counting: 16k tokens, top 8 ---------------------------------------------------------------

constexpr index_t tokens = 16384;
constexpr index_t k = 8;

/// Ids with the popularity of `lognormal_loads`; range(0) = 1: half of all tokens on one expert.
std::vector<std::int32_t> ids(benchmark::State const& state) {
  auto until = lognormal_loads(1, experts);
  for (std::size_t e = 1; e < until.size(); ++e) {
    until[e] += until[e - 1];
  }
  std::vector<std::int32_t> result;
  for (index_t i = 0; i < tokens * k; ++i) {
    double const u = plimsoll::random::uniform(1, 9, static_cast<std::uint64_t>(i));
    auto const expert = std::upper_bound(until.begin(), until.end(), u * until.back());
    bool const hot = state.range(0) == 1 && i % 2 == 0;
    result.push_back(hot ? 3 : static_cast<std::int32_t>(expert - until.begin()));
  }
  return result;
}

void count_tokens(benchmark::State& state) {
  auto const in = ids(state);
  std::vector<std::int64_t> counts(experts);
  std::vector<plimsoll::routing_counters> counters(1);
  for (auto _ : state) {
    plimsoll::count_tokens(plimsoll::seq,
                           plimsoll::matrix_ref<std::int32_t const>(in.data(), tokens, k), {},
                           counts, counters);
    benchmark::DoNotOptimize(counts.data());
  }
}
BENCHMARK(count_tokens)->Name("load_tensor/count_tokens")->Arg(0)->Arg(1);

void count_in_a_loop(benchmark::State& state) {
  auto const in = ids(state);
  std::vector<std::int64_t> counts(experts);
  for (auto _ : state) {
    std::fill(counts.begin(), counts.end(), 0);
    std::int64_t unrouted = 0;
    std::int64_t out_of_range = 0;
    for (std::int32_t const id : in) {
      if (id >= 0 && id < experts) {
        ++counts[static_cast<std::size_t>(id)];
      } else {
        ++(id == -1 ? unrouted : out_of_range);
      }
    }
    benchmark::DoNotOptimize(counts.data());
    benchmark::DoNotOptimize(unrouted + out_of_range);
  }
}
BENCHMARK(count_in_a_loop)->Name("load_tensor/count_tokens/vs:loop")->Arg(0)->Arg(1);

void count_by_source(benchmark::State& state) {
  auto const in = ids(state);
  constexpr index_t sources = 16;
  std::vector<std::int32_t> offsets;
  for (index_t s = 0; s <= sources; ++s) {
    offsets.push_back(static_cast<std::int32_t>(s * tokens / sources));
  }
  std::vector<std::int64_t> counts(sources * experts);
  std::vector<plimsoll::routing_counters> counters(1);
  for (auto _ : state) {
    plimsoll::count_tokens_by_source(plimsoll::seq,
                                     plimsoll::matrix_ref<std::int32_t const>(in.data(), tokens, k),
                                     offsets, {}, matrix(counts, sources, experts), counters);
    benchmark::DoNotOptimize(counts.data());
  }
}
BENCHMARK(count_by_source)->Name("load_tensor/count_tokens_by_source")->Arg(0);

// ----- 300 steps, 58 layers ----------------------------------------------------------------------

constexpr index_t steps = 300;
constexpr index_t layers = 58;

std::vector<float> load_tensor() {
  auto const loads = lognormal_loads(steps * layers, experts);
  return {loads.begin(), loads.end()};
}

template <class Policy>
void sum_steps(benchmark::State& state, Policy const& policy) {
  auto const loads = load_tensor();
  std::vector<double> out(layers * experts);
  for (auto _ : state) {
    plimsoll::sum_steps(policy,
                        plimsoll::tensor_ref<float const>(loads.data(), steps, layers, experts),
                        matrix(out, layers, experts));
    benchmark::DoNotOptimize(out.data());
  }
}
int const sum_steps_forms = register_forms(
    "load_tensor/sum_steps", [](auto& state, auto const& policy) { sum_steps(state, policy); },
    [](auto* both) { both->Unit(benchmark::kMillisecond); });

void sum_per_expert(benchmark::State& state) {
  auto const loads = load_tensor();
  std::vector<double> out(layers * experts);
  for (auto _ : state) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      double sum = 0;
      for (std::size_t t = 0; t < steps; ++t) {
        sum += static_cast<double>(loads[t * out.size() + i]);
      }
      out[i] = sum;
    }
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(sum_per_expert)->Name("load_tensor/sum_steps/vs:loop")->Unit(benchmark::kMillisecond);

constexpr index_t slots = 320;
constexpr index_t ranks = 64;

struct spread {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> copies;
};
/// Slot s holds expert s % 256.
spread spread_placement() {
  spread result;
  for (index_t i = 0; i < layers * slots; ++i) {
    result.map.push_back(static_cast<std::int32_t>(i % slots % experts));
  }
  for (index_t i = 0; i < layers * experts; ++i) {
    result.copies.push_back(i % experts < slots - experts ? 2 : 1);
  }
  return result;
}

void rank_loads(benchmark::State& state) {
  auto const loads = load_tensor();
  auto placement = spread_placement();
  std::vector<double> out(steps * layers * ranks);
  for (auto _ : state) {
    plimsoll::rank_loads(
        plimsoll::seq, plimsoll::tensor_ref<float const>(loads.data(), steps, layers, experts),
        {matrix(placement.map, layers, slots), matrix(placement.copies, layers, experts), ranks},
        plimsoll::tensor_ref<double>(out.data(), steps, layers, ranks));
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(rank_loads)->Name("load_tensor/rank_loads")->Unit(benchmark::kMillisecond);

void rank_loads_per_slot(benchmark::State& state) {
  auto const loads = load_tensor();
  auto const placement = spread_placement();
  std::vector<double> out(steps * layers * ranks);
  for (auto _ : state) {
    std::fill(out.begin(), out.end(), 0.0);
    for (std::size_t t = 0; t < steps; ++t) {
      for (std::size_t l = 0; l < layers; ++l) {
        for (std::size_t s = 0; s < slots; ++s) {
          auto const e = static_cast<std::size_t>(placement.map[l * slots + s]);
          out[(t * layers + l) * ranks + s * ranks / slots] +=
              static_cast<double>(loads[(t * layers + l) * experts + e]) /
              placement.copies[l * experts + e];
        }
      }
    }
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(rank_loads_per_slot)
    ->Name("load_tensor/rank_loads/vs:loop")
    ->Unit(benchmark::kMillisecond);

// ----- a step ------------------------------------------------------------------------------------

void window_push(benchmark::State& state) {
  auto loads = lognormal_loads(layers, experts);
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(plimsoll::seq, layers, experts,
                                                                   {.window = steps});
  for (auto _ : state) {
    window.push(matrix(loads, layers, experts));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(window_push)->Name("load_tensor/window_push")->Unit(benchmark::kMicrosecond);

void decay_update(benchmark::State& state) {
  auto loads = lognormal_loads(layers, experts);
  plimsoll::load_decay average(plimsoll::seq, layers, experts);
  for (auto _ : state) {
    average.push(matrix(loads, layers, experts));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(decay_update)->Name("load_tensor/decay_update")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

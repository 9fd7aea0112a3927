// SPDX-License-Identifier: Apache-2.0
// Named inputs of the benchmarks, which are the same on every machine, and the settings of goals.
#pragma once

#if !defined(PLIMSOLL_BENCH_INPUTS_ONLY)
#include <benchmark/benchmark.h>
#endif
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace plimsoll_bench {

using plimsoll::index_t;

/// `[layers, experts]` token counts: log-normal-like popularity (the exponential of a sum of four
/// uniforms), about 4096 tokens per expert, a skew of about 10 between the hottest and the mean.
inline std::vector<std::int32_t> lognormal_loads(index_t layers, index_t experts,
                                                 std::uint64_t seed = 1) {
  std::vector<std::int32_t> loads;
  for (index_t i = 0; i < layers * experts; ++i) {
    double z = -2;
    for (std::uint64_t draw = 0; draw < 4; ++draw) {
      z += plimsoll::random::uniform(seed, draw, static_cast<std::uint64_t>(i));
    }
    loads.push_back(static_cast<std::int32_t>(4096 * plimsoll::detail::exp(1.7 * z)));
  }
  return loads;
}

/// `[steps, layers, experts]`: in every step the loads of `lognormal_loads`, each multiplied by a
/// random factor from 0.5 to 1.5.
inline std::vector<std::int32_t> drifting_loads(index_t steps, index_t layers, index_t experts) {
  std::vector<std::int32_t> const base = lognormal_loads(layers, experts);
  std::vector<std::int32_t> loads;
  loads.reserve(static_cast<std::size_t>(steps) * base.size());
  for (index_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < base.size(); ++i) {
      double const factor = 0.5 + plimsoll::random::uniform(2, static_cast<std::uint64_t>(step), i);
      loads.push_back(static_cast<std::int32_t>(base[i] * factor));
    }
  }
  return loads;
}

/// A short trace for ranks of unequal speed: 16 steps of `drifting_loads`, about 128 tokens per
/// expert; curves of 20 us and 3 us per tile of 64 tokens, on ranks that are up to 12 % slower.
struct gem_input {
  static constexpr index_t steps = 16;

  index_t layers;
  index_t experts;
  index_t ranks;
  std::vector<std::int32_t> loads;
  std::vector<std::int64_t> tokens;
  std::vector<double> latency;
  std::vector<double> speeds;

  gem_input(index_t layer_count, index_t expert_count, index_t rank_count)
      : layers(layer_count),
        experts(expert_count),
        ranks(rank_count),
        loads(drifting_loads(steps, layers, experts)),
        tokens(plimsoll::sampling_plan({.max_tokens = 1 << 16})) {
    for (std::int32_t& load : loads) {
      load /= 32;
    }
    for (std::int64_t const n : tokens) {
      latency.push_back(20 + 3 * static_cast<double>((n + 63) / 64));
    }
    for (index_t r = 0; r < ranks; ++r) {
      speeds.push_back(1 /
                       (1 + 0.12 * plimsoll::random::uniform(5, 0, static_cast<std::uint64_t>(r))));
    }
  }
  [[nodiscard]] plimsoll::latency_curves curves() const {
    return {tokens, {latency.data(), 1, std::ssize(latency)}, 512, speeds};
  }
};

/// `[tokens, experts]` logits of a router: twice a sum of four uniforms (roughly normal, with a
/// standard deviation of 0.58), plus the popularity of the expert, from 0 to 1.
inline std::vector<float> router_logits(index_t tokens, index_t experts) {
  std::vector<float> logits;
  logits.reserve(static_cast<std::size_t>(tokens * experts));
  for (index_t i = 0; i < tokens * experts; ++i) {
    double z = plimsoll::random::uniform(3, 0, static_cast<std::uint64_t>(i % experts));
    for (std::uint64_t draw = 1; draw <= 4; ++draw) {
      z += 2 * plimsoll::random::uniform(3, draw, static_cast<std::uint64_t>(i)) - 1;
    }
    logits.push_back(static_cast<float>(z));
  }
  return logits;
}

/// The tokens of one rank in a step in which all ranks have the same tokens: 16384 tokens, each
/// with the 8 best of 256 slots by `router_logits`, and 16 slots per rank.
struct step_batch {
  static constexpr index_t tokens = 16384;
  static constexpr index_t k = 8;
  static constexpr index_t slots = 256;
  static constexpr index_t ranks = 16;

  std::vector<std::int32_t> ids;    ///< [tokens, k]
  std::vector<float> weights;       ///< [tokens, k]
  std::vector<std::int64_t> loads;  ///< [2, ranks]: sums over all ranks
  index_t busiest = 0;
  index_t idlest = 0;

  static step_batch const& one() {
    static step_batch const batch;
    return batch;
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> ids_view() const {
    return {ids.data(), tokens, k};
  }
  [[nodiscard]] plimsoll::matrix_ref<float const> weights_view() const {
    return {weights.data(), tokens, k};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int64_t const> loads_view() const {
    return {loads.data(), 2, ranks};
  }

 private:
  step_batch() : loads(2 * ranks, 0) {
    std::vector<float> const logits = router_logits(tokens, slots);
    std::vector<std::int32_t> order(slots);
    for (index_t t = 0; t < tokens; ++t) {
      float const* const row = logits.data() + t * slots;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(),
                        [row](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
      for (index_t j = 0; j < k; ++j) {
        std::int32_t const slot = order[static_cast<std::size_t>(j)];
        ids.push_back(slot);
        weights.push_back(row[slot]);
        loads[static_cast<std::size_t>(slot * ranks / slots)] += ranks;
      }
    }
    auto const at_home = loads.begin() + ranks;
    busiest = std::max_element(loads.begin(), at_home) - loads.begin();
    idlest = std::min_element(loads.begin(), at_home) - loads.begin();
    std::fill(at_home, loads.end(), tokens);
  }
};

/// Steps of ranks with 8192 tokens each and 8 experts per token. Every step orders the experts
/// anew; the popularity of the n-th expert is proportional to 1 / (n + 8). Of 256 experts the
/// hottest has 8 times the mean load; of 64 ranks with 4 experts each, the most loaded has 2.5 to 3
/// times the mean.
struct zipf_steps {
  static constexpr index_t steps = 500;  // more than a branch predictor memorizes
  static constexpr index_t tokens = 8192;
  static constexpr index_t k = 8;

  index_t experts;
  index_t ranks;
  std::vector<std::int32_t> loads;  ///< [steps, experts]: sums over all ranks

  zipf_steps(index_t expert_count, index_t rank_count)
      : experts(expert_count),
        ranks(rank_count),
        loads(static_cast<std::size_t>(steps * expert_count)) {
    std::vector<double> until;  // sums of popularities
    for (index_t n = 1; n <= experts; ++n) {
      until.push_back((n == 1 ? 0.0 : until.back()) + 1 / static_cast<double>(n + 8));
    }
    for (index_t step = 0; step < steps; ++step) {
      std::vector<std::int32_t> const order = shuffled(experts, step);
      std::int32_t done = 0;
      for (std::size_t n = 0; n < order.size(); ++n) {
        auto const next =
            static_cast<std::int32_t>(until[n] / until.back() * static_cast<double>(copies()));
        loads[static_cast<std::size_t>(step * experts + order[n])] = next - done;
        done = next;
      }
    }
  }
  [[nodiscard]] index_t copies() const { return ranks * tokens * k; }
  [[nodiscard]] plimsoll::vector_ref<std::int32_t const> loads_of(index_t step) const {
    return {loads.data() + step * experts, experts};
  }
  /// Returns the counts `[ranks, experts]` of a step: token copies are distributed to the ranks in
  /// turn, expert by expert.
  [[nodiscard]] std::vector<std::int32_t> counts(index_t step) const {
    std::vector<std::int32_t> result(static_cast<std::size_t>(ranks * experts));
    index_t copy = 0;
    for (index_t e = 0; e < experts; ++e) {
      for (std::int32_t i = 0; i < loads_of(step)[e]; ++i) {
        ++result[static_cast<std::size_t>(copy++ % ranks * experts + e)];
      }
    }
    return result;
  }
  /// Returns the ids `[tokens, k]` of a rank: its token copies are distributed to its tokens so
  /// that no token has an expert twice.
  [[nodiscard]] std::vector<std::int32_t> ids(index_t step, index_t rank) const {
    std::vector<std::int32_t> const of_ranks = counts(step);
    std::vector<std::int32_t> const token = shuffled(tokens, step);
    std::vector<std::int32_t> result(tokens * k);
    index_t copy = 0;
    for (index_t e = 0; e < experts; ++e) {
      for (std::int32_t i = 0; i < of_ranks[static_cast<std::size_t>(rank * experts + e)]; ++i) {
        index_t const t = token[static_cast<std::size_t>(copy % tokens)];
        result[static_cast<std::size_t>(t * k + copy / tokens)] = static_cast<std::int32_t>(e);
        ++copy;
      }
    }
    return result;
  }

 private:
  /// Returns 0 to n - 1 in an order that depends on the step.
  static std::vector<std::int32_t> shuffled(index_t n, index_t step) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    auto const key = [step](std::int32_t i) {
      return plimsoll::random::bits(8, static_cast<std::uint64_t>(step),
                                    static_cast<std::uint64_t>(i));
    };
    std::sort(order.begin(), order.end(),
              [key](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    return order;
  }
};

#if !defined(PLIMSOLL_BENCH_INPUTS_ONLY)
inline double percentile_99(std::vector<double> const& times) {
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * 99 + 99) / 100 - 1];
}

/// Registers a goal: the median and the 99th percentile of 200 single runs (of fewer if a run takes
/// over 50 ms), or of PLIMSOLL_BENCH_RUNS runs: by emulation each takes a second.
template <int Runs = 200>
void as_goal_timed_by_itself(benchmark::internal::Benchmark* b) {
  char const* const runs = std::getenv("PLIMSOLL_BENCH_RUNS");
  b->Iterations(1)
      ->Repetitions(runs ? std::atoi(runs) : Runs)
      ->ReportAggregatesOnly()
      ->ComputeStatistics("p99", percentile_99)
      ->Unit(benchmark::kMicrosecond);
}
template <int Runs = 200>
void as_goal(benchmark::internal::Benchmark* b) {
  b->Apply(as_goal_timed_by_itself<Runs>)->UseRealTime();
}
#endif

template <class T>
plimsoll::matrix_ref<T> matrix(std::vector<T>& elements, index_t rows, index_t columns) {
  return {elements.data(), rows, columns};
}

}  // namespace plimsoll_bench

// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of latency, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"
#include "replay_case.hpp"

namespace plimsoll_test::latency_support {

using plimsoll::latency_curves;

inline std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

/// Samples of latency curves, on the host.
struct curve_case {
  longs tokens = {};
  reals latency = {};  ///< [1 or ranks, samples]
  std::int64_t dense_until = 0;
  reals speeds = {};  ///< [ranks] or empty

  [[nodiscard]] index_t samples() const { return std::ssize(tokens); }
  [[nodiscard]] index_t rows() const { return std::ssize(latency) / samples(); }

  /// Latency by definition.
  [[nodiscard]] long double of(index_t rank, double tokens_of_rank) const {
    long double const n = std::ceil(tokens_of_rank);
    auto const sample = [this](index_t i) { return static_cast<long double>(tokens[at(i)]); };
    auto const took = [&](index_t i) {
      long double const value = latency[at((rows() == 1 ? 0 : rank) * samples() + i)];
      return speeds.empty() ? value : value / static_cast<long double>(speeds[at(rank)]);
    };
    if (n == 0 && tokens[0] > 0) {
      return 0;
    }
    index_t i = 0;
    while (i < samples() && sample(i) < n) {
      ++i;
    }
    if (i == 0 || (i < samples() && tokens[at(i)] <= dense_until)) {
      return took(i);
    }
    i = std::min(i, samples() - 1);
    return took(i - 1) +
           (took(i) - took(i - 1)) * ((n - sample(i - 1)) / (sample(i) - sample(i - 1)));
  }
};

/// The samples in the memory of a policy.
template <class P>
class curves_in {
 public:
  explicit curves_in(curve_case const& c)
      : c_(c), tokens_(c.tokens), latency_(c.latency), speeds_(c.speeds) {}

  [[nodiscard]] latency_curves view() const {
    latency_curves result{tokens_.view1(), latency_.view2(c_.rows(), c_.samples()), c_.dense_until};
    if (!c_.speeds.empty()) {
      result.speeds = speeds_.view1();
    }
    return result;
  }
  /// Returns run(cost) with a table, or with the curves if prepared objects refuse the policy.
  template <class Run>
  auto priced(index_t ranks, Run run) const {
    if constexpr (can_be_kept<P>) {
      plimsoll::latency_table const table(make_policy<P>(), view(), ranks);
      return run(table.cost());
    } else {
      return run(view());
    }
  }

 private:
  curve_case c_;
  array_in<std::int64_t, P> tokens_;
  array_in<double, P> latency_;
  array_in<double, P> speeds_;
};

/// Cost of every rank for every number of tokens, computed under the policy: [tokens, ranks]. Rank
/// r holds expert r only.
template <class P, class Cost>
reals asked(Cost const& cost, index_t ranks, reals const& tokens) {
  index_t const steps = std::ssize(tokens);
  reals of_ranks;
  for (double const n : tokens) {
    of_ranks.insert(of_ranks.end(), at(ranks), n);
  }
  ints each(at(ranks));
  std::iota(each.begin(), each.end(), 0);
  array_in<double, P> const loads(of_ranks);
  array_in<std::int32_t, P> const map(each);
  array_in<std::int32_t, P> const counts(ints(at(ranks), 1));
  array_in<double, P> out(steps * ranks, -7.0);
  plimsoll::rank_latencies(
      make_policy<P>(), loads.view3(steps, 1, ranks),
      plimsoll::placement_ref{map.view2(1, ranks), counts.view2(1, ranks), ranks}, cost,
      out.view3(steps, 1, ranks));
  return out.values();
}

// Not in the typed cases, which would compile every CHECK for each type.
inline void check_same(reals const& got, reals const& expected) {
  auto const [a, b] = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  std::ptrdiff_t const first = a - got.begin();
  CAPTURE(first);
  CHECK((a == got.end() && b == expected.end()));
}

inline void check_close(reals const& got, std::vector<long double> const& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - expected[i]) <= 1e-12L * std::fabs(expected[i]))) {
      CAPTURE(i);
      CHECK(got[i] == static_cast<double>(expected[i]));
    }
  }
}

/// Random curves; the gaps between samples are at most `gap`.
inline curve_case random_curve(std::uint64_t seed, index_t ranks, std::int64_t gap = 40) {
  generator random(seed);
  curve_case c;
  c.tokens.push_back(random.between(0, 2) == 0 ? 0 : random.between(1, gap));
  for (index_t more = random.between(1, 9); more > 0; --more) {
    c.tokens.push_back(c.tokens.back() + random.between(1, random.between(0, 3) == 0 ? 1 : gap));
  }
  for (index_t row = random.between(0, 1) == 0 ? 1 : ranks; row > 0; --row) {
    std::int64_t tenths = random.between(0, 3);
    for (index_t i = 0; i < c.samples(); ++i) {
      c.latency.push_back(0.1 * static_cast<double>(tenths));
      tenths += random.between(0, 3) == 0 ? 0 : random.between(0, 1000);
    }
  }
  std::int64_t const last = c.tokens.back();
  std::int64_t const dense[] = {0, c.tokens[at(random.between(0, c.samples() - 1))], last,
                                last + 3};
  c.dense_until = dense[random.between(0, 3)];
  for (index_t r = 0; r < ranks && seed % 2 == 0; ++r) {
    constexpr double speeds[] = {1, 0.7, 3, 0.125};
    c.speeds.push_back(speeds[random.between(0, 3)]);
  }
  return c;
}

/// Recorded steps and one placement with replicas, empty slots, ranks without slots, and slots of
/// no rank. The replicas are so few that sums of shares are either whole or not close to a whole
/// number.
inline replay_case random_trace(std::uint64_t seed) {
  generator random(seed);
  replay_case c;
  constexpr index_t steps[] = {1, 2, 7, 8, 9, 15, 16, 17};
  c.steps = steps[seed % 8];
  c.layers = random.between(1, 3);
  c.experts = random.between(0, 4) == 0 ? 1 : random.between(1, 24);
  c.ranks = random.between(0, 4) == 0 ? 1 : random.between(1, 9);
  c.slots = 2 * c.experts + random.between(3, 9);
  bool const uneven = random.between(0, 1) == 0;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    ints map(at(c.slots), -1);
    ints offsets{0, static_cast<std::int32_t>(c.slots - (uneven ? random.between(0, 3) : 0))};
    for (index_t r = 1; r < c.ranks; ++r) {
      offsets.push_back(static_cast<std::int32_t>(random.between(0, offsets[1])));
    }
    std::sort(offsets.begin(), offsets.end());
    index_t const usable = std::max<index_t>(offsets.back(), c.experts);
    offsets.back() = static_cast<std::int32_t>(usable);
    ints counts(at(c.experts), 0);
    for (index_t i = 0; i < usable; ++i) {
      index_t const e = i < c.experts ? i : random.between(-1, c.experts - 1);
      if (e >= 0 && counts[at(e)] < 6) {
        ++counts[at(e)];
        map[at(i)] = static_cast<std::int32_t>(e);
      }
      std::swap(map[at(i)], map[at(random.between(0, i))]);
    }
    c.map.insert(c.map.end(), map.begin(), map.end());
    c.counts.insert(c.counts.end(), counts.begin(), counts.end());
    if (uneven) {
      c.offsets.insert(c.offsets.end(), offsets.begin(), offsets.end());
    }
  }
  c.loads = random_integers(seed, c.steps * c.layers * c.experts, 0, 90);
  for (index_t i = 0; i < c.steps * c.layers; ++i) {
    if (random.between(0, 7) == 0) {
      std::fill_n(c.loads.begin() + i * c.experts, c.experts, 0);
    }
  }
  return c;
}

/// Latencies by definition: [steps, layers, ranks].
template <class Cost>
std::vector<long double> defined(replay_case const& c, Cost cost) {
  std::vector<long double> result;
  for (index_t row = 0; row < c.steps * c.layers; ++row) {
    index_t const layer = row % c.layers;
    for (index_t r = 0; r < c.ranks; ++r) {
      long double tokens = 0;
      for (index_t s = c.begin(layer, r); s < c.begin(layer, r + 1); ++s) {
        if (index_t const e = c.map[at(layer * c.slots + s)]; e >= 0) {
          tokens += static_cast<long double>(c.loads[at(row * c.experts + e)]) /
                    c.counts[at(layer * c.experts + e)];
        }
      }
      result.push_back(cost(r, static_cast<double>(tokens)));
    }
  }
  return result;
}

}  // namespace plimsoll_test::latency_support

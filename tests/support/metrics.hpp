// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of metrics, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "skewed_loads.hpp"

namespace plimsoll_test::metrics_support {

using plimsoll::balance_stats;
using plimsoll::balance_summary;
using plimsoll::expert_pair;
using plimsoll::expert_use;
using plimsoll::expert_use_options;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using uses = std::vector<expert_use>;

template <class P, class T>
std::vector<balance_stats> measured(std::vector<T> const& loads, index_t rows, index_t columns) {
  array_in<T, P> const in(loads);
  array_in<balance_stats, P> out(rows);
  plimsoll::measure(make_policy<P>(), in.view2(rows, columns), out.view1());
  return out.values();
}

template <class P>
balance_summary summarized(std::vector<balance_stats> const& rows) {
  array_in<balance_stats, P> const in(rows);
  return plimsoll::summarize(make_policy<P>(), in.view1());
}

inline std::vector<double> members(std::vector<balance_stats> const& rows) {
  std::vector<double> result;
  for (balance_stats const& row : rows) {
    result.insert(result.end(), {row.mean, row.peak, row.balancedness, row.imbalance,
                                 row.coefficient_of_variation});
  }
  return result;
}

/// Recorded steps, on the host.
struct steps_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  longs loads = {};

  [[nodiscard]] std::size_t at(index_t t, index_t layer, index_t e) const {
    return static_cast<std::size_t>((t * layers + layer) * experts + e);
  }
  [[nodiscard]] index_t cells() const { return layers * experts; }

  /// Pearson's correlation of two experts by definition; 0 if the load of one never changes.
  [[nodiscard]] double correlation(index_t layer, index_t a, index_t b) const {
    auto const load = [&](index_t t, index_t e) {
      return static_cast<long double>(loads[at(t, layer, e)]);
    };
    long double mean_a = 0;
    long double mean_b = 0;
    for (index_t t = 0; t < steps; ++t) {
      mean_a += load(t, a) / static_cast<long double>(steps);
      mean_b += load(t, b) / static_cast<long double>(steps);
    }
    long double together = 0;
    long double square_a = 0;
    long double square_b = 0;
    bool a_changes = false;
    bool b_changes = false;
    for (index_t t = 0; t < steps; ++t) {
      together += (load(t, a) - mean_a) * (load(t, b) - mean_b);
      square_a += (load(t, a) - mean_a) * (load(t, a) - mean_a);
      square_b += (load(t, b) - mean_b) * (load(t, b) - mean_b);
      a_changes = a_changes || load(t, a) != load(0, a);
      b_changes = b_changes || load(t, b) != load(0, b);
    }
    if (a == b) {
      return 1;
    }
    return a_changes && b_changes ? static_cast<double>(together / std::sqrt(square_a * square_b))
                                  : 0.0;
  }

  /// The use of an expert by definition, computed in integers: options are multiples of 1/2,
  /// fractions of steps multiples of 1/10.
  [[nodiscard]] expert_use use(index_t layer, index_t e, expert_use_options const& options) const {
    std::int64_t with_load = 0;
    std::int64_t busy_steps = 0;
    std::int64_t busy_load = 0;
    std::int64_t busy_total = 0;
    for (index_t t = 0; t < steps; ++t) {
      std::int64_t total = 0;
      for (index_t other = 0; other < experts; ++other) {
        total += loads[at(t, layer, other)];
      }
      with_load += total > 0;
      std::int64_t const load = loads[at(t, layer, e)];
      if (2 * load * experts > std::llround(2 * options.busy) * total) {
        ++busy_steps;
        busy_load += load;
        busy_total += total;
      }
    }
    if (busy_steps == 0) {
      return expert_use::ordinary;
    }
    if (10 * busy_steps >= std::llround(10 * options.consistent_part) * with_load) {
      return expert_use::consistent;
    }
    bool const surges = 2 * busy_load * experts >= std::llround(2 * options.surge) * busy_total;
    return surges && 10 * busy_steps <= std::llround(10 * options.temporal_part) * with_load
               ? expert_use::temporal
               : expert_use::ordinary;
  }
};

/// Skewed loads, experts with constant loads, and steps without load. The numbers of experts are
/// powers of two, so that the mean over the experts is exact.
inline steps_case random_steps(std::uint64_t seed) {
  generator random(seed);
  steps_case c;
  c.steps = random.between(1, 30);
  c.layers = random.between(1, 3);
  c.experts = index_t{1} << random.between(0, 5);
  c.loads = random_integers(seed, c.steps * c.cells(), 0, seed % 2 == 0 ? 4 : 1000);
  for (index_t i = 0; i < c.cells(); ++i) {
    std::int64_t const kind = random.between(0, 5);
    for (index_t t = 0; t < c.steps && kind < 2; ++t) {
      c.loads[c.at(t, 0, i)] *= kind == 0 ? random.between(0, 4) / 4 * 16 : 0;
    }
  }
  for (index_t t = 0; t < c.steps; ++t) {
    if (random.between(0, 9) == 0) {
      std::fill_n(c.loads.begin() + t * c.cells(), c.cells(), 0);
    }
  }
  return c;
}

// Not in the typed cases, which would compile every CHECK for each type.
inline void check_correlated(steps_case const& c, reals const& got) {
  REQUIRE(std::ssize(got) == c.cells() * c.experts);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    auto const value = [&](index_t a, index_t b) {
      return got[static_cast<std::size_t>((layer * c.experts + a) * c.experts + b)];
    };
    bool symmetric = true;
    double worst = 0;
    for (index_t a = 0; a < c.experts; ++a) {
      for (index_t b = 0; b < c.experts; ++b) {
        symmetric = symmetric && value(a, b) == value(b, a);
        worst = std::fmax(worst, std::fabs(value(a, b) - c.correlation(layer, a, b)));
        worst = std::fabs(value(a, b)) <= 1 ? worst : 9;
      }
      worst = value(a, a) == 1 ? worst : 9;
    }
    CHECK(symmetric);
    CHECK(worst < 1e-12);
  }
}

}  // namespace plimsoll_test::metrics_support

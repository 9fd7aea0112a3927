// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of swap_search, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "policies.hpp"
#include "refusal.hpp"
#include "search_case.hpp"

namespace plimsoll_test::swap_search_support {

using plimsoll::certificate_status;
using plimsoll::latency_objective;

/// Scores of a plan's layers by `step_latencies`, which counts ranks without slots as idle.
inline reals replayed_scores(search_case const& c, ints const& map) {
  search_options_in<plimsoll::seq_policy> const options(c);
  ints const counts = c.all_copies();
  plimsoll::placement_ref const placement{
      plimsoll::matrix_ref<std::int32_t const>(map.data(), c.layers, c.slots),
      plimsoll::matrix_ref<std::int32_t const>(counts.data(), c.layers, c.experts), c.ranks(),
      (*options).rank_offsets};
  plimsoll::validate(plimsoll::seq, placement, {.on = {.active = (*options).on.active}});
  reals latencies(static_cast<std::size_t>(c.steps * c.layers));
  plimsoll::step_latencies(
      plimsoll::seq,
      plimsoll::tensor_ref<double const>(c.loads.data(), c.steps, c.layers, c.experts), placement,
      c.cost, plimsoll::matrix_ref<double>(latencies.data(), c.steps, c.layers));
  reals scores;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    reals of_layer;
    for (index_t t = 0; t < c.steps; ++t) {
      of_layer.push_back(latencies[static_cast<std::size_t>(t * c.layers + layer)]);
    }
    std::sort(of_layer.begin(), of_layer.end());
    double const rank = std::ceil(c.options.quantile * static_cast<double>(c.steps));
    scores.push_back(c.options.objective == latency_objective::quantile
                         ? of_layer[static_cast<std::size_t>(rank) - 1]
                         : std::accumulate(of_layer.begin(), of_layer.end(), 0.0));
  }
  return scores;
}

/// Checks properties that every result must have.
inline void check_searched(search_case const& c, search_outcome const& got) {
  REQUIRE(std::ssize(got.certificates) == c.layers);
  reals const expected = replayed_scores(c, got.map);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CAPTURE(layer);
    plimsoll::certificate const& result = got.certificates[static_cast<std::size_t>(layer)];
    bool counts_all = true;
    for (index_t r = 0; r < c.ranks(); ++r) {
      counts_all = counts_all && (c.room(layer, r) > 0 || c.cost(r, 0) == 0);
    }
    double const replayed = expected[static_cast<std::size_t>(layer)];
    bool const is_unproven =
        !c.counts.empty() &&
        *std::min_element(got.scores.begin() + layer * c.options.restarts,
                          got.scores.begin() + (layer + 1) * c.options.restarts) ==
            result.lower_bound;
    CHECK((!counts_all || is_unproven || std::fabs(result.value - replayed) <= 1e-12 * replayed));
    CHECK(result.lower_bound <= result.value);
    CHECK(result.status == (result.lower_bound == result.value ? certificate_status::optimal
                                                               : certificate_status::feasible));
    auto const scores = got.scores.begin() + layer * c.options.restarts;
    double const best = *std::min_element(scores, scores + c.options.restarts);
    CHECK(best <= result.value);
    // A score may equal the bound without proof only with copies, whose shares are rounded down.
    CHECK(
        (result.value <= best * (1 + 1e-12) || (!c.counts.empty() && best == result.lower_bound)));
  }
}

/// A search case and the results of the slow search by definition.
struct known_search {
  search_case c;
  std::vector<slow_search::outcome> expected;  ///< per layer

  explicit known_search(search_case const& of) : c(of) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      expected.push_back(slow_search(c, layer).search());
    }
  }
  void check(search_outcome const& got) const {
    check_searched(c, got);
    ints map;
    reals scores;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      auto const& of_layer = expected[static_cast<std::size_t>(layer)];
      CHECK(got.certificates[static_cast<std::size_t>(layer)].work == of_layer.work);
      map.insert(map.end(), of_layer.map.begin(), of_layer.map.end());
      for (std::int64_t const score : of_layer.scores) {
        scores.push_back(static_cast<double>(score) * c.cost.unit);
      }
    }
    CHECK(got.map == map);
    CHECK(got.scores == scores);
  }
};

inline std::vector<known_search> const& known_searches() {
  static std::vector<known_search> const all = [] {
    std::vector<known_search> made;
    for (std::uint64_t seed = 0; seed < cases_of(240); ++seed) {
      made.emplace_back(random_search(seed, 5, 9));
    }
    search_case c = random_search(3, 3, 6);
    c.steps = 70;  // more than a warp has threads
    c.loads = reals(static_cast<std::size_t>(c.steps * c.layers * c.experts));
    generator random(9);
    for (double& load : c.loads) {
      load = static_cast<double>(random.between(0, 90));
    }
    made.emplace_back(c);
    return made;
  }();
  return all;
}

}  // namespace plimsoll_test::swap_search_support

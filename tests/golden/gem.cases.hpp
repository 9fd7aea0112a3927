// SPDX-License-Identifier: Apache-2.0
// Compares with recorded results of GEM: scores, the greedy start, the swaps one by one, and the
// optima of small shapes.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

/// A trace, curves, and the rank of every expert in several mappings.
struct gem_golden {
  std::string kind;
  index_t steps;
  index_t experts;
  index_t ranks;
  std::vector<std::int32_t> trace;  ///< [steps, experts]
  std::vector<std::int64_t> tokens;
  std::vector<double> cost;  ///< [ranks, samples]
  std::int64_t dense_until;
  std::vector<std::int32_t> mappings;  ///< [mappings, experts]

  explicit gem_golden(golden_case const& golden)
      : kind(golden.text("params.kind")),
        steps(golden.integer("params.steps")),
        experts(golden.integer("params.experts")),
        ranks(golden.integer("params.gpus")),
        trace(golden.array<std::int32_t>("trace")),
        tokens(golden.array<std::int64_t>("sample_n")),
        cost(golden.array<double>("sample_cost")),
        dense_until(golden.integer("params.dense_until")),
        mappings(golden.array<std::int32_t>("mappings")) {}

  [[nodiscard]] index_t mapping_count() const { return std::ssize(mappings) / experts; }
};

/// Curves in the memory of a policy.
template <class P>
struct golden_curves {
  array_in<std::int64_t, P> tokens;
  array_in<double, P> cost;
  plimsoll::latency_curves curves;

  explicit golden_curves(gem_golden const& g)
      : tokens(g.tokens),
        cost(g.cost),
        curves{tokens.view1(), cost.view2(g.ranks, tokens.size()), g.dense_until} {}
};

/// Latencies `[mappings, steps]` of all mappings, each replayed as a layer with the same loads.
template <class P>
std::vector<double> golden_latencies(gem_golden const& g) {
  golden_curves<P> const in(g);
  index_t const layers = g.mapping_count();
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> offsets;
  for (index_t m = 0; m < layers; ++m) {
    offsets.push_back(0);
    for (index_t r = 0; r < g.ranks; ++r) {
      std::int32_t size = 0;
      for (index_t e = 0; e < g.experts; ++e) {
        if (g.mappings[static_cast<std::size_t>(m * g.experts + e)] == r) {
          map.push_back(static_cast<std::int32_t>(e));
          ++size;
        }
      }
      offsets.push_back(offsets.back() + size);
    }
  }
  array_in<std::int32_t, P> const trace(g.trace);
  array_in<std::int32_t, P> const map_in(map);
  array_in<std::int32_t, P> const offsets_in(offsets);
  array_in<std::int32_t, P> const counts(layers * g.experts, 1);
  array_in<double, P> out(g.steps * layers, -7.0);
  plimsoll::tensor_ref<std::int32_t const> loads(trace.data(), g.steps, layers, g.experts);
  loads.strides[0] = g.experts;
  loads.strides[1] = 0;
  plimsoll::matrix_ref<double> by_mapping(out.data(), g.steps, layers);
  by_mapping.strides[0] = 1;
  by_mapping.strides[1] = g.steps;
  plimsoll::step_latencies(make_policy<P>(), loads,
                           {.physical_to_logical = map_in.view2(layers, g.experts),
                            .replica_count = counts.view2(layers, g.experts),
                            .ranks = g.ranks,
                            .rank_offsets = offsets_in.view2(layers, g.ranks + 1)},
                           in.curves, by_mapping);
  return out.values();
}

struct golden_plan {
  std::vector<std::int32_t> rank_of;  ///< rank of each expert
  plimsoll::certificate certificate;
};

template <class P>
golden_plan golden_search(gem_golden const& g, index_t restarts, index_t max_swaps) {
  golden_curves<P> const in(g);
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const trace(g.trace);
  array_in<std::int32_t, P> map(g.experts, -7);
  plimsoll::swap_search_options const options{.on = {.ranks = g.ranks},
                                              .restarts = restarts,
                                              .max_swaps = max_swaps,
                                              .max_perturbations = 0};
  // Equals `gem`, except for the limit on swaps.
  auto const context = plimsoll::detail::resolve(policy);
  plimsoll::detail::latency_pieces<std::remove_const_t<decltype(context)>> const pieces(
      "golden", context, in.curves, g.ranks);
  auto const certificates =
      plimsoll::swap_search(policy, trace.view3(g.steps, 1, g.experts), pieces.lookup(), options,
                            map.view2(1, g.experts));
  golden_plan plan{std::vector<std::int32_t>(static_cast<std::size_t>(g.experts), -1),
                   certificates.at(0)};
  auto const slots = map.values();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    // All ranks have equally many slots.
    plan.rank_of.at(static_cast<std::size_t>(slots[slot])) =
        static_cast<std::int32_t>(static_cast<index_t>(slot) * g.ranks / g.experts);
  }
  return plan;
}

using latencies_fn = std::vector<double> (*)(gem_golden const&);
using golden_search_fn = golden_plan (*)(gem_golden const&, index_t restarts, index_t max_swaps);

/// Returns whether all values are within a relative error `part` of the expected values.
inline bool all_near(std::vector<double> const& got, std::vector<double> const& expected,
                     double part) {
  bool near = got.size() == expected.size();
  for (std::size_t i = 0; near && i < got.size(); ++i) {
    near = std::fabs(got[i] - expected[i]) <= part * std::fabs(expected[i]);
  }
  return near;
}

inline void check_cost_table(gem_golden const& g, std::vector<double> const& expected) {
  golden_curves<plimsoll::seq_policy> const in(g);
  plimsoll::latency_table const table(plimsoll::seq, in.curves, g.ranks);
  index_t const width = std::ssize(expected) / g.ranks;
  std::vector<double> by_table;
  std::vector<double> by_curves;
  for (index_t i = 0; i < std::ssize(expected); ++i) {
    by_table.push_back(table.cost()(i / width, static_cast<double>(i % width)));
    by_curves.push_back(in.curves(i / width, static_cast<double>(i % width)));
  }
  CHECK(all_near(by_table, expected, 1e-12));
  CHECK(by_curves == by_table);
}

inline void check_golden_search(golden_case const& golden, gem_golden const& g,
                                golden_search_fn search) {
  auto const initial = golden.array<std::int32_t>("initial_mapping");
  auto const refined = golden.array<std::int32_t>("refined_mapping");
  auto const scores = golden.array<double>("scores");
  auto const count = static_cast<std::size_t>(golden.integer("expected.num_swaps"));
  REQUIRE(scores.size() == count + 1);
  // npy files without elements cannot be read.
  auto const swaps = count > 0 ? golden.array<std::int32_t>("swaps") : std::vector<std::int32_t>();
  std::vector<std::int32_t> rank_of = initial;
  for (std::size_t k = 0; k <= count; ++k) {
    CAPTURE(k);
    if (k > 0) {
      std::swap(rank_of.at(static_cast<std::size_t>(swaps.at(2 * k - 2))),
                rank_of.at(static_cast<std::size_t>(swaps.at(2 * k - 1))));
    }
    golden_plan const got = search(g, 1, static_cast<index_t>(k));
    CHECK(got.rank_of == rank_of);
    CHECK(all_near({got.certificate.value}, {scores[k]}, 1e-11));
    CHECK(got.certificate.work == static_cast<std::int64_t>(k));
  }
  CHECK(rank_of == refined);
  golden_plan const full = search(g, 1, 1000);
  CHECK(full.rank_of == refined);
  CHECK(full.certificate.work == static_cast<std::int64_t>(count));
  CHECK(all_near({full.certificate.value}, {golden.real("expected.refined_score")}, 1e-11));

  golden_plan const best = search(g, 30, 1000);
  CHECK(best.certificate.value <= full.certificate.value);
  CHECK(best.certificate.lower_bound <= best.certificate.value);
  if (g.kind == "tiny") {
    double const optimum = golden.real("expected.optimal_score");
    CHECK(all_near({best.certificate.value}, {optimum}, 1e-11));
    CHECK(best.certificate.lower_bound <= optimum * (1 + 1e-11));
  }
  report_hash("golden.gem." + golden.name() + ".search", full.rank_of, best.rank_of,
              best.certificate.value, best.certificate.lower_bound);
}

inline void check_golden_gem(latencies_fn latencies, golden_search_fn search) {
  for (golden_case const& golden : golden_cases("gem")) {
    CAPTURE(golden.name());
    gem_golden const g(golden);
    if (golden.has("cost_table")) {
      check_cost_table(g, golden.array<double>("cost_table"));
    }
    std::vector<double> const of_steps = latencies(g);
    CHECK(all_near(of_steps, golden.array<double>("step_latency"), 1e-12));
    std::vector<double> sums;
    for (index_t m = 0; m < g.mapping_count(); ++m) {
      double sum = 0;
      for (index_t t = 0; t < g.steps; ++t) {
        sum += of_steps[static_cast<std::size_t>(m * g.steps + t)];
      }
      sums.push_back(sum);
    }
    CHECK(all_near(sums, golden.array<double>("mapping_scores"), 1e-12));
    CHECK(all_near({sums.at(0)}, {golden.real("expected.linear_score")}, 1e-12));
    report_hash("golden.gem." + golden.name(), of_steps);
    if (g.kind != "score") {
      check_golden_search(golden, g, search);
    }
  }
}

TEST_SUITE("golden.gem") {
  PLIMSOLL_TEST_CASE("golden: gem", P, PLIMSOLL_POLICIES) {
    check_golden_gem(golden_latencies<P>, golden_search<P>);
  }
}

}  // namespace plimsoll_test

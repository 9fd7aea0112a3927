// SPDX-License-Identifier: Apache-2.0
// Compares `eplb` with recorded results of DeepSeek's EPLB.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

/// Sorted load per copy of every slot of a layer.
inline std::vector<double> shares(std::vector<float> const& weights,
                                  std::vector<std::int32_t> const& counts,
                                  std::vector<std::int32_t> const& map, index_t layer,
                                  index_t experts, index_t slots) {
  std::vector<double> result;
  for (index_t s = 0; s < slots; ++s) {
    auto const e = static_cast<std::size_t>(layer * experts +
                                            map[static_cast<std::size_t>(layer * slots + s)]);
    result.push_back(static_cast<double>(weights[e]) / counts[e]);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Rows of a padded map without the padding; the order within a row is not compared.
inline std::vector<std::set<std::int32_t>> rows_as_sets(std::vector<std::int32_t> const& padded,
                                                        index_t width) {
  std::vector<std::set<std::int32_t>> rows(padded.size() / static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < padded.size(); ++i) {
    if (padded[i] >= 0) {
      rows[i / static_cast<std::size_t>(width)].insert(padded[i]);
    }
  }
  return rows;
}

/// All pairs of an expert and a node that holds it.
inline std::set<std::pair<std::int32_t, index_t>> nodes_of_experts(
    std::vector<std::int32_t> const& map, index_t layer, index_t slots, index_t nodes) {
  std::set<std::pair<std::int32_t, index_t>> pairs;
  for (index_t s = 0; s < slots; ++s) {
    pairs.emplace(map[static_cast<std::size_t>(layer * slots + s)], s * nodes / slots);
  }
  return pairs;
}

TEST_SUITE("golden.eplb") {
  PLIMSOLL_TEST_CASE("golden: eplb", P, PLIMSOLL_POLICIES) {
    auto const policy = make_policy<P>();
    int compared = 0;
    for (golden_case const& golden : golden_cases("eplb")) {
      std::string const name = golden.name();
      CAPTURE(name);
      ++compared;
      index_t const layers = golden.integer("params.layers");
      index_t const experts = golden.integer("params.experts");
      index_t const slots = golden.integer("params.physical");
      index_t const ranks = golden.integer("params.gpus");
      auto const weights = golden.array<float>("weight");
      auto const expected_map = golden.array<std::int32_t>("phy2log");
      auto const expected_counts = golden.array<std::int32_t>("logcnt");
      array_in<float, P> const loads(weights);
      array_in<std::int32_t, P> map(layers * slots);
      array_in<std::int32_t, P> counts(layers * experts);
      index_t const width = slots - experts + 1;
      array_in<std::int32_t, P> inverse(layers * experts * width);
      index_t const nodes = golden.integer("params.nodes");
      auto const certificates = plimsoll::rebalance_experts(
          policy, loads.view2(layers, experts), slots, golden.integer("params.groups"), nodes,
          ranks, map.view2(layers, slots), inverse.view3(layers, experts, width),
          counts.view2(layers, experts));
      auto const got_map = map.values();
      auto const got_counts = counts.values();
      auto const got_inverse = rows_as_sets(inverse.values(), width);
      if (golden.text("params.ties") == "none") {
        CHECK(got_map == expected_map);
        CHECK(got_counts == expected_counts);
        CHECK(got_inverse == rows_as_sets(golden.array<std::int32_t>("log2phy"),
                                          golden.integer("expected.max_copies")));
      } else {
        for (index_t l = 0; l < layers; ++l) {
          std::vector<std::int32_t> seen(static_cast<std::size_t>(experts), 0);
          for (index_t s = 0; s < slots; ++s) {
            ++seen.at(static_cast<std::size_t>(got_map[static_cast<std::size_t>(l * slots + s)]));
          }
          CHECK(seen == std::vector<std::int32_t>(got_counts.begin() + l * experts,
                                                  got_counts.begin() + (l + 1) * experts));
          CHECK(*std::min_element(seen.begin(), seen.end()) >= 1);
          auto const ours = shares(weights, got_counts, got_map, l, experts, slots);
          auto const theirs = shares(weights, expected_counts, expected_map, l, experts, slots);
          for (std::size_t i = 0; i < ours.size(); ++i) {
            CHECK(ours[i] == doctest::Approx(theirs[i]).epsilon(1e-5));
          }
        }
      }

      if (golden.text("expected.policy") == "hierarchical") {
        for (index_t l = 0; l < layers; ++l) {
          CHECK(nodes_of_experts(got_map, l, slots, nodes).size() ==
                static_cast<std::size_t>(experts));
        }
      }
      plimsoll::validate(policy, {map.view2(layers, slots), counts.view2(layers, experts), ranks},
                         inverse.view3(layers, experts, width));

      array_in<double, P> carried(layers * ranks);
      plimsoll::rank_loads(policy, loads.view2(layers, experts),
                           {map.view2(layers, slots), counts.view2(layers, experts), ranks},
                           carried.view2(layers, ranks));
      auto const got_loads = carried.values();
      auto const expected_loads = golden.array<double>("gpu_load");
      for (index_t l = 0; l < layers; ++l) {
        auto const at = static_cast<std::size_t>(l * ranks);
        auto const n = static_cast<std::size_t>(ranks);
        std::vector<double> ours(got_loads.begin() + static_cast<std::ptrdiff_t>(at),
                                 got_loads.begin() + static_cast<std::ptrdiff_t>(at + n));
        if (golden.text("params.ties") == "none") {
          for (std::size_t r = 0; r < n; ++r) {
            CHECK(ours[r] == doctest::Approx(expected_loads[at + r]).epsilon(1e-5));
          }
        }
        CHECK(certificates[static_cast<std::size_t>(l)].value ==
              doctest::Approx(*std::max_element(ours.begin(), ours.end())).epsilon(1e-9));
      }
      array_in<plimsoll::balance_stats, P> balances(layers);
      plimsoll::measure(policy, carried.view2(layers, ranks), balances.view1());
      auto const summary = plimsoll::summarize(policy, balances.view1());
      if (golden.text("params.ties") == "none") {
        CHECK(summary.mean_of_ratios ==
              doctest::Approx(golden.real("expected.mean_balancedness")).epsilon(1e-6));
        CHECK(summary.worst ==
              doctest::Approx(golden.real("expected.worst_balancedness")).epsilon(1e-6));
      }
      report_hash("golden.eplb." + name, got_map, got_counts, inverse.values(), got_loads);
    }
    CHECK(compared >= 4);
  }
}

}  // namespace plimsoll_test

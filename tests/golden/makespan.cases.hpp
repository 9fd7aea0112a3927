// SPDX-License-Identifier: Apache-2.0
// Packs items onto ranks with different numbers of slots and compares with the known lowest peak.
// An item is an expert with one copy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

struct makespan_case {
  std::string name;
  std::vector<std::int32_t> weights;
  std::vector<std::int32_t> offsets;  ///< [ranks + 1]
  std::int64_t optimal_peak;
  std::int64_t greedy_peak;

  explicit makespan_case(golden_case const& golden)
      : name(golden.name()),
        weights(golden.array<std::int32_t>("weights")),
        offsets{0},
        optimal_peak(golden.integer("expected.optimal_peak")),
        greedy_peak(golden.integer("expected.greedy_peak")) {
    for (std::int32_t const slots : golden.array<std::int32_t>("slots")) {
      offsets.push_back(offsets.back() + slots);
    }
    CAPTURE(name);
    REQUIRE(std::accumulate(weights.begin(), weights.end(), std::int64_t{0}) ==
            golden.integer("expected.total"));
  }

  [[nodiscard]] index_t items() const { return static_cast<index_t>(weights.size()); }
  [[nodiscard]] index_t ranks() const { return static_cast<index_t>(offsets.size()) - 1; }
  [[nodiscard]] index_t slots() const { return offsets.back(); }

  /// Slot map for the given rank of every item.
  [[nodiscard]] std::vector<std::int32_t> map_of(std::vector<std::int32_t> const& ranks) const {
    std::vector<std::int32_t> map(static_cast<std::size_t>(slots()), -1);
    std::vector<std::int32_t> next = offsets;
    for (std::size_t item = 0; item < ranks.size(); ++item) {
      std::int32_t& slot = next.at(static_cast<std::size_t>(ranks[item]));
      map.at(static_cast<std::size_t>(slot++)) = static_cast<std::int32_t>(item);
    }
    return map;
  }

  /// Largest load of a rank. Checks that every item is in exactly one slot.
  [[nodiscard]] std::int64_t peak(std::vector<std::int32_t> const& map) const {
    std::vector<int> seen(weights.size(), 0);
    std::int64_t largest = 0;
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
      std::int64_t load = 0;
      for (std::int32_t slot = offsets[r]; slot < offsets[r + 1]; ++slot) {
        if (std::int32_t const item = map.at(static_cast<std::size_t>(slot)); item != -1) {
          ++seen.at(static_cast<std::size_t>(item));
          load += weights[static_cast<std::size_t>(item)];
        }
      }
      largest = std::max(largest, load);
    }
    CHECK(seen == std::vector<int>(weights.size(), 1));
    return largest;
  }
};

/// Peak / optimal peak of every case.
class ratios {
 public:
  void add(makespan_case const& c, std::int64_t peak) {
    by_name_[c.name] = static_cast<double>(peak) / static_cast<double>(c.optimal_peak);
  }
  [[nodiscard]] double largest() const { return at_largest()->second; }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (auto const& [name, ratio] : by_name_) {
      sum += ratio;
    }
    return sum / static_cast<double>(by_name_.size());
  }
  [[nodiscard]] std::string text() const {
    return "peak / optimum of " + std::to_string(by_name_.size()) + " cases: mean " +
           std::to_string(mean()) + ", largest " + std::to_string(largest()) + " (" +
           at_largest()->first + ")";
  }

 private:
  [[nodiscard]] std::map<std::string, double>::const_iterator at_largest() const {
    return std::max_element(by_name_.begin(), by_name_.end(),
                            [](auto const& a, auto const& b) { return a.second < b.second; });
  }
  std::map<std::string, double> by_name_;
};

/// Result of a call for a case.
struct packed {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> counts;
  plimsoll::certificate certificate;
};

template <class P>
packed placed(makespan_case const& c) {
  array_in<std::int32_t, P> const loads(c.weights);
  array_in<std::int32_t, P> const counts(c.items(), 1);
  array_in<std::int32_t, P> const offsets(c.offsets);
  array_in<std::int32_t, P> map(c.slots(), -7);
  auto const certificates =
      plimsoll::place(make_policy<P>(), loads.view2(1, c.items()), counts.view2(1, c.items()),
                      {.on = {.ranks = c.ranks()}, .rank_offsets = offsets.view2(1, c.ranks() + 1)},
                      map.view2(1, c.slots()));
  return {map.values(), counts.values(), certificates.at(0)};
}

/// Runs `refine` with fixed counts.
template <class P>
packed refined(makespan_case const& c, std::vector<std::int32_t> const& start) {
  array_in<std::int32_t, P> const loads(c.weights);
  array_in<std::int32_t, P> counts(c.items(), -7);
  array_in<std::int32_t, P> const offsets(c.offsets);
  array_in<std::int32_t, P> map(start);
  auto const certificates = plimsoll::refine(
      make_policy<P>(), loads.view2(1, c.items()),
      {.on = {.ranks = c.ranks()}, .rank_offsets = offsets.view2(1, c.ranks() + 1)},
      {.tolerance = 0, .max_trials = 0}, map.view2(1, c.slots()), counts.view2(1, c.items()));
  return {map.values(), counts.values(), certificates.at(0)};
}

/// Runs `swap_search` over one step, with tokens as the cost.
template <class P>
packed searched(makespan_case const& c, index_t restarts) {
  array_in<std::int32_t, P> const loads(c.weights);
  array_in<std::int32_t, P> const offsets(c.offsets);
  array_in<std::int32_t, P> map(c.slots(), -7);
  auto const certificates =
      plimsoll::swap_search(make_policy<P>(), loads.view3(1, 1, c.items()), plimsoll::token_cost{},
                            {.on = {.ranks = c.ranks()},
                             .rank_offsets = offsets.view2(1, c.ranks() + 1),
                             .restarts = restarts,
                             .min_gain = 0,
                             .max_plateau_moves = 8},
                            map.view2(1, c.slots()));
  return {map.values(), std::vector<std::int32_t>(c.weights.size(), 1), certificates.at(0)};
}

inline void check_certificate(makespan_case const& c, packed const& p, std::int64_t peak) {
  CHECK(peak >= c.optimal_peak);
  CHECK(p.certificate.value == static_cast<double>(peak));
  CHECK(p.certificate.lower_bound <= static_cast<double>(c.optimal_peak));
  CHECK(p.counts == std::vector<std::int32_t>(c.weights.size(), 1));
}

TEST_SUITE("golden.makespan") {
  PLIMSOLL_TEST_CASE("golden: makespan", P, PLIMSOLL_POLICIES) {
    ratios by_place;
    ratios by_refine;
    ratios by_search;
    ratios by_restarts;
    for (golden_case const& golden : golden_cases("makespan")) {
      makespan_case const c(golden);
      CAPTURE(c.name);
      packed const greedy = placed<P>(c);
      std::int64_t const greedy_peak = c.peak(greedy.map);
      CHECK(greedy_peak == c.greedy_peak);
      check_certificate(c, greedy, greedy_peak);
      by_place.add(c, greedy_peak);

      packed const better = refined<P>(c, greedy.map);
      std::int64_t const better_peak = c.peak(better.map);
      CHECK(better_peak <= greedy_peak);
      check_certificate(c, better, better_peak);
      by_refine.add(c, better_peak);

      auto const optimum = c.map_of(golden.array<std::int32_t>("optimal_gpu"));
      CHECK(c.peak(optimum) == c.optimal_peak);
      packed const best = refined<P>(c, optimum);
      CHECK(c.peak(best.map) == c.optimal_peak);
      check_certificate(c, best, c.optimal_peak);

      packed const one = searched<P>(c, 1);
      std::int64_t const one_peak = c.peak(one.map);
      check_certificate(c, one, one_peak);
      by_search.add(c, one_peak);
      packed const many = searched<P>(c, 30);
      std::int64_t const many_peak = c.peak(many.map);
      check_certificate(c, many, many_peak);
      by_restarts.add(c, many_peak);
      report_hash("golden.makespan." + c.name, greedy.map, better.map, one.map, many.map);
    }
    MESSAGE("place:  " << by_place.text());
    MESSAGE("refine: " << by_refine.text());
    MESSAGE("swap_search: " << by_search.text());
    CHECK(by_refine.largest() == 1);
    CHECK(by_search.largest() == 1);
    CHECK(by_restarts.largest() == 1);
  }
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Measures the gap between searches and the optimum, on inputs on which no default was chosen.
#include <doctest/doctest.h>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cstdint>

#include "support/hash.hpp"
#include "support/packed_searches.hpp"

namespace plimsoll_test { namespace {

/// Relative gap between searches of one kind and the optimum.
struct excess {
  double worst = 0;
  double mean = 0;
  int optimal = 0;

  void add(double value, double optimum, double weight) {
    double const above = (value - optimum) / optimum;
    worst = std::max(worst, above);
    mean += weight * above;
    optimal += above == 0 ? 1 : 0;
  }
};

TEST_CASE("swap_search: gap to the optimum of at most 0.5 %, with 30 searches 0.1 %") {
  constexpr std::uint64_t first_seed = 100000;
  std::uint64_t const cases = cases_of(600);
  excess one;
  excess many;
  ints maps;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    search_case c = packed_search(seed);
    c.options.max_perturbations = plimsoll::swap_search_options{}.max_perturbations;
    search_outcome const of_many = searched<plimsoll::seq_policy>(c);
    c.options.restarts = 1;
    search_outcome const of_one = searched<plimsoll::seq_policy>(c);
    double const least = std::min(of_one.certificates[0].value, of_many.certificates[0].value);
    auto const optimum =
        static_cast<double>(packing_optimum(c).below(static_cast<std::int64_t>(least)));
    REQUIRE(optimum > 0);
    CHECK(of_one.certificates[0].lower_bound <= optimum);
    one.add(of_one.certificates[0].value, optimum, 1 / static_cast<double>(cases));
    many.add(of_many.certificates[0].value, optimum, 1 / static_cast<double>(cases));
    maps.insert(maps.end(), of_one.map.begin(), of_one.map.end());
    maps.insert(maps.end(), of_many.map.begin(), of_many.map.end());
  }
  MESSAGE("one search: worst " << 100 * one.worst << " %, mean " << 100 * one.mean << " %, "
                               << one.optimal << " of " << cases << " optimal");
  MESSAGE("30 searches: worst " << 100 * many.worst << " %, mean " << 100 * many.mean << " %, "
                                << many.optimal << " of " << cases << " optimal");
  CHECK(one.worst <= 0.005);
  CHECK(many.worst <= 0.001);
  report_hash("swap_search.quality", maps);
}

TEST_CASE("swap_search: the optima of the family equal those of an exhaustive search") {
  int tried = 0;
  for (std::uint64_t seed = 0; tried < 40; ++seed) {
    search_case const c = packed_search(seed);
    if (c.experts <= 6) {
      CAPTURE(seed);
      ++tried;
      slow_search all(c, 0);
      CHECK(packing_optimum(c).below(INT64_MAX) == all.optimum());
    }
  }
}

}  // namespace
}  // namespace plimsoll_test

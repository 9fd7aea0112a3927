// SPDX-License-Identifier: Apache-2.0
// Measures the gap between `refine` and the optimum over a seeded family of small instances that
// branch and bound solves exactly.
#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>

#include <cstdint>

#include "support/draws.hpp"
#include "support/refinement_quality.hpp"

namespace plimsoll_test {

using namespace refinement_quality_support;

TEST_CASE("refinement quality: given copies, compared with the best of all placements") {
  quality all;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases_of(700); ++seed) {
    CAPTURE(seed);
    quality_case const c(seed, false);
    auto const got = c.refine(0);
    double best = got.peak;
    c.solve(c.copies, best);
    all.add(seed, got.over(best));
  }
  all.report();
  CHECK(all.worst <= 1.005);
}

TEST_CASE("refinement quality: any copies, compared with the best of all plans") {
  quality all;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases_of(600); ++seed) {
    CAPTURE(seed);
    quality_case const c(seed, true);
    auto const got = c.refine(256);
    double best = got.peak;
    c.solve_any(best);
    all.add(seed, got.over(best));
  }
  all.report();
  CHECK(all.worst <= 1.005);
}

}  // namespace plimsoll_test

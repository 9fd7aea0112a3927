// SPDX-License-Identifier: Apache-2.0
// Tests of execution under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/execution.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/policies.hpp"

namespace execution_cases {

using plimsoll::index_t;

/// Body that counts the visits of each problem, and computes a sum in scratch memory.
struct visit {
  using device_team = plimsoll::detail::warp;
  std::int32_t* visits;
  std::int32_t* sums;
  index_t size;

  [[nodiscard]] std::size_t scratch_bytes() const {
    return plimsoll::detail::scratch_bytes_of<std::int32_t>(size);
  }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch memory, index_t problem) const {
    std::int32_t* const own = memory.take<std::int32_t>(size);
    team.for_each(size, [=](index_t i) { own[i] = static_cast<std::int32_t>(problem + i); });
    auto const sum = team.sum(size, [=](index_t i) { return own[i]; });
    team.single([=, this] {
      visits[problem] += 1;
      sums[problem] = sum;
    });
  }
};

}  // namespace execution_cases

PLIMSOLL_TEST_CASE("execution: launch visits every problem once", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  auto const policy = make_policy<P>();
  static_assert(plimsoll::execution_policy<policy_of<P>>);
  for (index_t const problems : {0, 1, 2, 3, 5, 130}) {
    for (index_t const size : {index_t{0}, index_t{1}, index_t{50}, index_t{20000}}) {
      CAPTURE(problems);
      CAPTURE(size);
      array_in<std::int32_t, P> visits(problems);
      array_in<std::int32_t, P> sums(problems);
      plimsoll::detail::launch(plimsoll::detail::resolve(policy), problems,
                               execution_cases::visit{visits.data(), sums.data(), size});
      std::vector<std::int32_t> expected;
      for (index_t problem = 0; problem < problems; ++problem) {
        expected.push_back(static_cast<std::int32_t>(size * problem + size * (size - 1) / 2));
      }
      CHECK(visits.values() == std::vector<std::int32_t>(static_cast<std::size_t>(problems), 1));
      CHECK(sums.values() == expected);
    }
  }
}

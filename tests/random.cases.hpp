// SPDX-License-Identifier: Apache-2.0
// Tests of random under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/random.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/hash.hpp"
#include "support/policies.hpp"

namespace random_cases {

struct draw {
  using device_team = plimsoll::detail::block<128>;
  std::uint64_t* bits;
  double* values;
  plimsoll::index_t count;
  [[nodiscard]] std::size_t scratch_bytes() const { return 0; }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch,
                              plimsoll::index_t problem) const {
    auto const first = static_cast<std::uint64_t>(problem * count);
    team.for_each(count, [=, this](plimsoll::index_t i) {
      std::uint64_t const index = (first + static_cast<std::uint64_t>(i)) * 0x10000001u;
      bits[first + static_cast<std::uint64_t>(i)] =
          plimsoll::random::bits(~5ull, 1ull << 40, index);
      values[first + static_cast<std::uint64_t>(i)] = plimsoll::random::uniform(7, 3, index);
    });
  }
};

}  // namespace random_cases

PLIMSOLL_TEST_CASE("random: the same numbers under every policy", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  array_in<std::uint64_t, P> bits(5000);
  array_in<double, P> values(5000);
  auto const policy = make_policy<P>();
  plimsoll::detail::launch(plimsoll::detail::resolve(policy), 5,
                           random_cases::draw{bits.data(), values.data(), 1000});
  std::vector<std::uint64_t> expected_bits;
  std::vector<double> expected_values;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    expected_bits.push_back(plimsoll::random::bits(~5ull, 1ull << 40, i * 0x10000001u));
    expected_values.push_back(plimsoll::random::uniform(7, 3, i * 0x10000001u));
  }
  CHECK(bits.values() == expected_bits);
  CHECK(values.values() == expected_values);
  report_hash("random.draw", bits.values(), values.values());
}

// SPDX-License-Identifier: Apache-2.0
// Tests of team under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/team.hpp>

#include <cstddef>
#include <cstdint>

#include "support/every_call.hpp"
#include "support/hash.hpp"
#include "support/match_cases.hpp"
#include "support/policies.hpp"

namespace team_cases {

using namespace plimsoll_test::every_call_cases;
using plimsoll::index_t;

inline constexpr index_t sizes[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 1000};

/// Passes `run` a function that launches the body under the policy, and compares the outputs with
/// the oracle.
template <class P, class DeviceTeam, class Run>
void check_launch(index_t n, index_t problems, std::size_t more_scratch, Run run) {
  using namespace plimsoll_test;
  CAPTURE(n);
  CAPTURE(problems);
  CAPTURE(more_scratch);
  inputs const in = make_inputs(n, problems);
  results const blank = blank_results(n, problems);
  array_in<std::int64_t, P> const numbers(in.numbers);
  array_in<double, P> const reals(in.reals);
  array_in<std::uint64_t, P> const keys(in.keys);
  array_in<std::int64_t, P> totals(blank.totals);
  array_in<double, P> sums(blank.sums);
  array_in<std::int64_t, P> mapped(blank.mapped);
  array_in<std::int64_t, P> scanned(blank.scanned);
  array_in<std::int32_t, P> scanned_in_place(blank.scanned_in_place);
  array_in<std::uint64_t, P> sorted(blank.sorted);
  array_in<std::uint64_t, P> sorted_wide(blank.sorted_wide);
  array_in<std::uint64_t, P> tops(blank.tops);
  every_call<DeviceTeam> const body{n,
                                    more_scratch,
                                    numbers.data(),
                                    reals.data(),
                                    keys.data(),
                                    totals.data(),
                                    sums.data(),
                                    mapped.data(),
                                    scanned.data(),
                                    scanned_in_place.data(),
                                    sorted.data(),
                                    sorted_wide.data(),
                                    tops.data()};
  auto const policy = make_policy<P>();
  run([&] { plimsoll::detail::launch(plimsoll::detail::resolve(policy), problems, body); });
  check_equal({totals.values(), sums.values(), mapped.values(), scanned.values(),
               scanned_in_place.values(), sorted.values(), sorted_wide.values(), tops.values()},
              expected_results(in));
}

template <class P, class DeviceTeam>
void check_launch(index_t n, index_t problems, std::size_t more_scratch) {
  check_launch<P, DeviceTeam>(n, problems, more_scratch, [](auto const& launch) { launch(); });
}

template <class P, class DeviceTeam>
void check_launches() {
  for (index_t const n : sizes) {
    check_launch<P, DeviceTeam>(n, 6, 0);
  }
  // A number of problems that is not a multiple of the warps in a block; then scratch for which a
  // device must be asked for more shared memory, and scratch that exceeds that of any device.
  check_launch<P, DeviceTeam>(33, 41, 0);
  check_launch<P, DeviceTeam>(65, 9, 60000);
  check_launch<P, DeviceTeam>(65, 9, 300000);
  // Shared memory holds the scratch of one warp per block, but not of four.
  check_launch<P, DeviceTeam>(64, 7, 20000);
  check_launch<P, DeviceTeam>(3, 0, 0);
}

/// Ranks items in bins under the policy.
template <class P, class DeviceTeam>
void check_ranks() {
  using namespace plimsoll_test;
  match_cases::inputs const in = match_cases::make_inputs();
  match_cases::results const blank = match_cases::blank_results(in);
  match_cases::results const expected = match_cases::expected_results(in);
  array_in<match_cases::match_case, P> const cases(in.cases);
  array_in<std::int32_t, P> const bin(in.bin);
  array_in<std::int32_t, P> ranks(blank.ranks);
  array_in<std::int64_t, P> seen(blank.seen);
  match_cases::rank_items<DeviceTeam> const body{cases.data(), bin.data(), ranks.data(),
                                                 seen.data()};
  plimsoll::detail::launch(plimsoll::detail::resolve(make_policy<P>()),
                           static_cast<index_t>(in.cases.size()), body);
  CHECK(ranks.values() == expected.ranks);
  CHECK(seen.values() == expected.seen);
}

}  // namespace team_cases

PLIMSOLL_TEST_CASE("team: launch with one warp per problem", P, PLIMSOLL_POLICIES) {
  team_cases::check_launches<P, plimsoll::detail::warp>();
  team_cases::check_ranks<P, plimsoll::detail::warp>();
}

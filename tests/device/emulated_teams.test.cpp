// SPDX-License-Identifier: Apache-2.0
// warp_team and block_team on host threads: what they compute, and, under ThreadSanitizer, whether
// their barriers suffice.
#include <doctest/doctest.h>
#include <plimsoll/detail/team.hpp>

#include "support/every_call.hpp"
#include "support/run_body.hpp"

namespace {

using namespace plimsoll_test::every_call_cases;
using plimsoll::index_t;

template <class DeviceTeam>
void check(index_t n, index_t problems) {
  CAPTURE(n);
  inputs const in = make_inputs(n, problems);
  results out = blank_results(n, problems);
  every_call<DeviceTeam> const body{in.n,
                                    0,
                                    in.numbers.data(),
                                    in.reals.data(),
                                    in.keys.data(),
                                    out.totals.data(),
                                    out.sums.data(),
                                    out.mapped.data(),
                                    out.scanned.data(),
                                    out.scanned_in_place.data(),
                                    out.sorted.data(),
                                    out.sorted_wide.data(),
                                    out.tops.data()};
  plimsoll_test::run_body(body, problems, plimsoll_test::device, 0);
  check_equal(out, expected_results(in));
}

}  // namespace

TEST_CASE("device teams on host threads: a warp") {
  for (index_t const n : {0, 1, 2, 31, 32, 33, 65, 100}) {
    check<plimsoll::detail::warp>(n, n < 65 ? 2 : 1);
  }
}

TEST_CASE("device teams on host threads: a block") {
  for (index_t const n : {0, 1, 33, 130}) {
    check<plimsoll::detail::block<128>>(n, n < 100 ? 2 : 1);
  }
}

TEST_CASE("device teams on host threads: a block of 256") {
  check<plimsoll::detail::block<256>>(40, 1);
}

// SPDX-License-Identifier: Apache-2.0
// warp_team and block_team on the host: tests their results and, under ThreadSanitizer, whether
// their barriers suffice.
#include <doctest/doctest.h>
#include <plimsoll/detail/team.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/every_call.hpp"
#include "support/match_cases.hpp"
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

template <class DeviceTeam>
struct sort_body {
  using device_team = DeviceTeam;
  index_t n;
  std::uint64_t* keys;
  [[nodiscard]] index_t room() const {
    return plimsoll::detail::sort_bytes<DeviceTeam, std::uint64_t>(n);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of<std::byte>(room()); }
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    team.sort(keys, n, memory.take<std::byte>(room()));
  }
};

/// Lengths around one tile, and of several tiles of which the last run is short, missing, or alone.
template <class DeviceTeam>
void check_sorts() {
  constexpr index_t tile = plimsoll::detail::sort_tile<DeviceTeam>;
  for (index_t const n :
       {tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1, 3 * tile - 1, 5 * tile}) {
    CAPTURE(n);
    std::vector<std::uint64_t> keys = plimsoll_test::unique_keys(static_cast<std::uint64_t>(n), n);
    keys[static_cast<std::size_t>(n / 2)] = ~std::uint64_t{0};  // equals the padding of a tile
    std::vector<std::uint64_t> expected = keys;
    std::sort(expected.begin(), expected.end());
    plimsoll_test::run_body(sort_body<DeviceTeam>{n, keys.data()}, 1, plimsoll_test::device, 0);
    CHECK(keys == expected);
  }
}

template <class DeviceTeam>
void check_ranks() {
  namespace cases = plimsoll_test::match_cases;
  cases::inputs const in = cases::make_inputs();
  cases::results out = cases::blank_results(in);
  cases::rank_items<DeviceTeam> const body{in.cases.data(), in.bin.data(), out.ranks.data(),
                                           out.seen.data()};
  plimsoll_test::run_body(body, static_cast<index_t>(in.cases.size()), plimsoll_test::device, 0);
  cases::results const expected = cases::expected_results(in);
  CHECK(out.ranks == expected.ranks);
  CHECK(out.seen == expected.seen);
}

}  // namespace

TEST_CASE("device teams on the host: a warp ranks items in bins") {
  check_ranks<plimsoll::detail::warp>();
}

TEST_CASE("device teams on the host: a block ranks items in bins") {
  check_ranks<plimsoll::detail::block<128>>();
}

TEST_CASE("device teams on the host: a block of 256 ranks items in bins") {
  check_ranks<plimsoll::detail::block<256>>();
}

TEST_CASE("device teams on the host: a warp sorts several tiles") {
  check_sorts<plimsoll::detail::warp>();
}

TEST_CASE("device teams on the host: a block sorts several tiles") {
  check_sorts<plimsoll::detail::block<128>>();
}

TEST_CASE("device teams on the host: a warp") {
  for (index_t const n : {0, 1, 2, 31, 32, 33, 65, 100}) {
    check<plimsoll::detail::warp>(n, n < 65 ? 2 : 1);
  }
}

TEST_CASE("device teams on the host: a block") {
  for (index_t const n : {0, 1, 33, 130}) {
    check<plimsoll::detail::block<128>>(n, n < 100 ? 2 : 1);
  }
}

TEST_CASE("device teams on the host: a block of 256") {
  check<plimsoll::detail::block<256>>(40, 1);
}

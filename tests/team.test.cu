// SPDX-License-Identifier: Apache-2.0
// Tests of team under the policies of a CUDA compiler and in CUDA graphs.
#include "team.cases.hpp"

#include "support/captured.cuh"

// script/gpu-check runs this test first: it takes a second, and if it fails, nothing else works.
PLIMSOLL_TEST_CASE("team: smoke, a kernel of each team, and one captured in a CUDA graph", P,
                   plimsoll_test::gpu_kind) {
  auto const replay = [](auto const& launch) {
    plimsoll_test::captured const graph(launch);
    graph.replay();
  };
  using plimsoll::detail::block;
  team_cases::check_launch<P, plimsoll::detail::warp>(65, 6, 0);
  team_cases::check_launch<P, block<128>>(65, 6, 0);
  team_cases::check_launch<P, block<256>>(65, 6, 0);
  team_cases::check_launch<P, block<512>>(65, 6, 0);
  team_cases::check_launch<P, plimsoll::detail::warp>(65, 6, 0, replay);
  team_cases::check_launch<P, block<256>>(65, 6, 60000, replay);  // shared memory by opt-in
}

// A body names one team, so there is one test case per team.
PLIMSOLL_TEST_CASE("team: launch with 128 threads per problem", P, PLIMSOLL_DEVICE_POLICIES) {
  team_cases::check_launches<P, plimsoll::detail::block<128>>();
  team_cases::check_ranks<P, plimsoll::detail::block<128>>();
}
PLIMSOLL_TEST_CASE("team: launch with 256 threads per problem", P, PLIMSOLL_DEVICE_POLICIES) {
  team_cases::check_launches<P, plimsoll::detail::block<256>>();
  team_cases::check_ranks<P, plimsoll::detail::block<256>>();
}
PLIMSOLL_TEST_CASE("team: launch with 512 threads per problem", P, PLIMSOLL_DEVICE_POLICIES) {
  team_cases::check_launches<P, plimsoll::detail::block<512>>();
  team_cases::check_ranks<P, plimsoll::detail::block<512>>();
}

// SPDX-License-Identifier: Apache-2.0
#include "team.cases.hpp"

// A body names one team, so each kind is a case of its own.
TEST_CASE_TEMPLATE("team: launch, 128 threads a problem", P, PLIMSOLL_DEVICE_POLICIES) {
  if (plimsoll_test::backend_available<P>()) {
    team_cases::check_launches<P, plimsoll::detail::block<128>>();
  }
}
TEST_CASE_TEMPLATE("team: launch, 256 threads a problem", P, PLIMSOLL_DEVICE_POLICIES) {
  if (plimsoll_test::backend_available<P>()) {
    team_cases::check_launches<P, plimsoll::detail::block<256>>();
  }
}
TEST_CASE_TEMPLATE("team: launch, 512 threads a problem", P, PLIMSOLL_DEVICE_POLICIES) {
  if (plimsoll_test::backend_available<P>()) {
    team_cases::check_launches<P, plimsoll::detail::block<512>>();
  }
}

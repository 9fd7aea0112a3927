// SPDX-License-Identifier: Apache-2.0
// Temporaries of a call: they come from the policy's resource, their number is the expected one,
// and all are freed.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <new>

#include "resources.hpp"

namespace plimsoll_test {

/// Checks the temporaries of a call, also when one of them cannot be allocated. `run(resource)`
/// makes the call with a policy that takes temporaries from `resource`.
template <class Run>
void check_temporaries(std::size_t allocations, Run run) {
  counting_resource counting;
  run(counting);
  CHECK(counting.allocations() == allocations);
  CHECK(counting.live() == 0);
  CHECK(counting.mismatches() == 0);
  for (std::size_t allowed = 0; allowed < allocations; ++allowed) {
    throwing_resource throwing(allowed);
    CHECK_THROWS_AS(run(throwing), std::bad_alloc);
    CHECK(throwing.live() == 0);
  }
}

}  // namespace plimsoll_test

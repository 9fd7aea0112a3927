// SPDX-License-Identifier: Apache-2.0
// Number of random instances of a property test.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "generators.hpp"

namespace plimsoll_test {

/// Returns the environment variable PLIMSOLL_TEST_INSTANCES if it is set, else the usual number.
inline std::int64_t instances(std::int64_t usual) {
  char const* const wanted = std::getenv("PLIMSOLL_TEST_INSTANCES");
  return wanted != nullptr ? std::strtoll(wanted, nullptr, 10)
                           : static_cast<std::int64_t>(cases_of(static_cast<std::uint64_t>(usual)));
}

}  // namespace plimsoll_test

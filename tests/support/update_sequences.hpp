// SPDX-License-Identifier: Apache-2.0
// The number of random sequences of updates that the test of a prepared object tries.
#pragma once

#include <plimsoll/execution.hpp>

#include <concepts>
#include <cstdint>

#include "generators.hpp"
#include "policies.hpp"

namespace plimsoll_test {

/// Returns 1000 sequences for `seq`, 200 for host policies that start threads for every call, and
/// 20 on the device, which tests emulate.
template <class P>
constexpr std::uint64_t update_sequences() {
  return array_in<int, P>::on_device                        ? 20
         : std::same_as<policy_of<P>, plimsoll::seq_policy> ? cases_of(1000)
                                                            : cases_of(200);
}

}  // namespace plimsoll_test

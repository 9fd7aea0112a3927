// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a replay, without the function that runs it.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `replay`.
struct replay_options {
  /// `[ranks]`, in the policy's memory: 0 for a dead rank, which does not count in the mean over
  /// ranks. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
};

}}  // namespace plimsoll

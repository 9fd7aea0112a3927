// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `assign_slots`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Spread of k remaining slots over n tied ranks: position, from 0, of the i-th rank that gets one.
enum class remainder_spread : std::int32_t {
  interleaved,  ///< floor(i * n / k), as in CRAFT's figure 7
  endpoints     ///< floor(i * (n - 1) / (k - 1) + 1/2), which includes the first and the last rank,
                ///< as in CRAFT's algorithm 3; the first rank if k = 1
};

/// Ranks among which the slots are divided.
struct slot_assignment_options {
  /// Ranks: number and liveness. Dead ranks get no slot; nodes are not read, speeds are refused.
  rank_set on = {};
  /// Spread of a remainder over the ranks that tie for it.
  remainder_spread remainder = remainder_spread::interleaved;
};

}}  // namespace plimsoll

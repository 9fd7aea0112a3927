// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `replicate`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Limits on the number of copies of each expert, and the ranks that will hold them.
struct replication_options {
  /// Least number of copies of every expert, at least 1.
  std::int32_t min_copies = 1;
  /// Largest number of copies of any expert, up to 32767; the number of ranks limits it to one copy
  /// per rank.
  std::int32_t max_copies = static_cast<std::int32_t>(rank_limit);
  /// `[experts]`, in the policy's memory: minimum of each expert, instead of `min_copies`. Empty:
  /// `min_copies` holds for all experts.
  vector_ref<std::int32_t const> min_copies_each = {};
  /// `[experts]`, in the policy's memory: maximum of each expert, instead of `max_copies`. Empty:
  /// `max_copies` holds for all experts.
  vector_ref<std::int32_t const> max_copies_each = {};
  /// Ranks that will hold the copies: the options of `place`; empty while the ranks are not known.
  /// With `where.on.ranks` given, only slots of live ranks count, and with node lists the slots of
  /// each node go to the experts of that node. With required anti-affinity the counts are such that
  /// `place` can satisfy it, and slots may stay free.
  placement_options where = {};
};

}}  // namespace plimsoll

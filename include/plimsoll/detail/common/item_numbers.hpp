// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers the items of a tile within their columns, in the order of items.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the bytes of scratch that `number_items` takes.
template <class DeviceTeam>
[[nodiscard]] PLIMSOLL_HD std::size_t number_items_bytes(index_t columns) {
  return 2 * scratch_bytes_of<std::int32_t>(match_tile) +
         scratch_bytes_of<std::byte>(match_bytes<DeviceTeam>(columns));
}

/// Calls f(i, column, next[column] + number of items of the column before i) for every item i in
/// [0, n), n at most `match_tile`; column_of(i) is the column of item i. Overwrites `next`.
template <class DeviceTeam, class Team, class ColumnOf, class F>
PLIMSOLL_HD void number_items(Team& team, scratch memory, index_t n, index_t columns,
                              std::int32_t* next, ColumnOf column_of, F f) {
  if constexpr (Team::is_serial) {
    team.for_each(n, [=](index_t i) {
      std::int32_t const c = column_of(i);
      f(i, c, next[c]++);
    });
  } else {
    auto* const column = memory.take<std::int32_t>(match_tile);
    auto* const rank = memory.take<std::int32_t>(match_tile);
    auto* const storage = memory.take<std::byte>(match_bytes<DeviceTeam>(columns));
    team.match_ranks(
        n, [=](index_t i) { return column[i] = column_of(i); }, columns, rank, storage);
    team.for_each(n, [=](index_t i) { f(i, column[i], next[column[i]] + rank[i]); });
  }
}

}}}  // namespace plimsoll::detail

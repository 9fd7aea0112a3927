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

/// Scratch of `number_items`.
template <class DeviceTeam>
struct item_arrays {
  scratch_ref memory;
  index_t columns;

  std::int32_t* column = memory.take(match_tile);
  std::int32_t* rank = memory.take(match_tile);  ///< items of the column before this one
  std::byte* storage = memory.take(match_bytes<DeviceTeam>(columns));  ///< of `match_ranks`
};

/// Returns the bytes of scratch that `number_items` takes.
template <class DeviceTeam>
[[nodiscard]] PLIMSOLL_HD std::size_t number_items_bytes(index_t columns) {
  return bytes_taken_by<item_arrays<DeviceTeam>>(columns);
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
    item_arrays<DeviceTeam> const arrays{memory, columns};
    std::int32_t* const column = arrays.column;
    std::int32_t* const rank = arrays.rank;
    team.match_ranks(
        n, [=](index_t i) { return column[i] = column_of(i); }, columns, rank, nullptr,
        arrays.storage);
    team.for_each(n, [=](index_t i) { f(i, column[i], next[column[i]] + rank[i]); });
  }
}

/// Counts the items of every column, and calls f(i, column, number of items of the column before i)
/// for every item i in [0, n), and g(c, count) for every column c.
template <class DeviceTeam, class Team, class ColumnOf, class F, class G>
PLIMSOLL_HD void count_items(Team& team, scratch memory, index_t n, index_t columns,
                             ColumnOf column_of, F f, G g) {
  auto* const counts = memory.take<std::int32_t>(columns);
  if constexpr (Team::is_serial) {
    team.for_each(columns, [=](index_t c) { counts[c] = 0; });
    number_items<DeviceTeam>(team, memory, n, columns, counts, column_of, f);
    team.for_each(columns, [=](index_t c) { g(c, counts[c]); });
  } else {
    item_arrays<DeviceTeam> const arrays{memory, columns};
    std::int32_t* const column = arrays.column;
    std::int32_t* const rank = arrays.rank;
    team.match_ranks(
        n, [=](index_t i) { return column[i] = column_of(i); }, columns, rank, counts,
        arrays.storage);
    team.for_each(maximum{}(n, columns), [=](index_t i) {
      if (i < n) {
        f(i, column[i], rank[i]);
      }
      if (i < columns) {
        g(i, counts[i]);
      }
    });
  }
}

}}}  // namespace plimsoll::detail

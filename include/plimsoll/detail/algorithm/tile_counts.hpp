// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where every item stands among those of its column, in the order of items: tiles of items are
/// counted, the counts of every column added up over tiles, and tiles looked at once more.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Element `i` of a matrix in row-major order, without a division where no gaps are between rows.
template <class T>
PLIMSOLL_HD T& element(matrix_ref<T> const& matrix, index_t i) {
  index_t const columns = matrix.extent(1);
  bool const dense = matrix.stride(0) == columns * matrix.stride(1);
  return dense ? matrix(0, i) : matrix(i / columns, i % columns);
}

struct tile_counts {
  static constexpr index_t tile = 512;

  index_t items;
  index_t columns;
  std::int32_t* counts;  ///< `[columns, tiles]`; after `scan` those of earlier tiles
  std::int32_t* totals;  ///< `[columns]`

  [[nodiscard]] PLIMSOLL_HD static constexpr index_t tiles_of(index_t items) {
    return (items + tile - 1) / tile;
  }
  [[nodiscard]] PLIMSOLL_HD index_t tiles() const { return tiles_of(items); }
  /// Of a launch over tiles: one even where no tile is, since the first also does what all need.
  [[nodiscard]] index_t problems() const { return maximum{}(tiles(), index_t{1}); }
  [[nodiscard]] PLIMSOLL_HD index_t first(index_t problem) const { return problem * tile; }
  [[nodiscard]] PLIMSOLL_HD index_t size(index_t problem) const {
    return minimum{}(items - first(problem), tile);
  }

  template <class Memory>
  [[nodiscard]] PLIMSOLL_HD static tile_counts in(Memory& memory, index_t items, index_t columns) {
    tile_counts result{items, columns, nullptr, nullptr};
    memory.take(result.counts, columns * tiles_of(items));
    memory.take(result.totals, columns);
    return result;
  }

  /// What `count` and `visit` take from the scratch of a problem.
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(maximum{}(tile, columns));
  }

  /// Problem = tile: counts its items; column_of(i) is the column of item i.
  template <class Team, class ColumnOf>
  PLIMSOLL_HD void count(Team& team, scratch memory, index_t problem, ColumnOf column_of) const {
    auto* const seen = memory.take<std::int32_t>(columns);
    index_t const begin = first(problem);
    team.histogram(
        size(problem), [=](index_t i) { return column_of(begin + i); }, seen, columns);
    // Without items there is one problem, but no tile.
    index_t const stride = tiles();
    team.for_each(stride > 0 ? columns : 0,
                  [=, this](index_t c) { counts[c * stride + problem] = seen[c]; });
  }

  /// Problem = column.
  template <class Team>
  PLIMSOLL_HD void scan(Team& team, index_t column) const {
    std::int32_t* const row = counts + column * tiles();
    std::int32_t const total = team.exclusive_scan(
        tiles(), [row](index_t t) { return row[t]; }, row);
    team.single([=, this] { totals[column] = total; });
  }

  /// Problem = tile: f(i, column, how many items of the column come before i).
  template <class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, ColumnOf column_of,
                         F f) const {
    index_t const begin = first(problem);
    index_t const n = size(problem);
    std::int32_t const* const base = counts + problem;
    index_t const stride = tiles();
    if constexpr (Team::is_serial) {
      auto* const seen = memory.take<std::int32_t>(columns);
      team.for_each(columns, [=](index_t c) { seen[c] = base[c * stride]; });
      team.for_each(n, [=](index_t i) {
        std::int32_t const c = column_of(begin + i);
        f(begin + i, c, seen[c]++);
      });
    } else {
      auto* const column = memory.take<std::int32_t>(tile);
      team.for_each(n, [=](index_t i) { column[i] = column_of(begin + i); });
      team.for_each(n, [=](index_t i) {
        std::int32_t earlier = base[column[i] * stride];
        for (index_t j = 0; j < i; ++j) {
          earlier += column[j] == column[i];
        }
        f(begin + i, column[i], earlier);
      });
    }
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers the items of each column in the order of items: counts the items of every tile, scans
/// the counts of each column over the tiles, then visits every tile again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/item_numbers.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns element `i` of a matrix in row-major order, without a division if rows have no gaps.
template <class T>
PLIMSOLL_HD T& element(matrix_ref<T> const& matrix, index_t i) {
  index_t const columns = matrix.extent(1);
  bool const dense = matrix.stride(0) == columns * matrix.stride(1);
  return dense ? matrix(0, i) : matrix(i / columns, i % columns);
}

/// Counts of items per tile and column. Between `count` and `visit`, `scan` sums the counts in a
/// launch of its own. If launches cost more than reading counts, every tile sums all counts itself
/// instead (`by_tile`). Tiles have `Tile` items, at most `match_tile`.
template <index_t Tile>
struct tiled_counts {
  static constexpr index_t tile = Tile;

  index_t items;
  index_t columns;
  std::int32_t* counts;  ///< `[columns, tiles]`; after `scan` those of earlier tiles
  std::int32_t* totals;  ///< `[columns]`, made by `scan`
  bool by_tile = false;  ///< `counts` is `[tiles, columns]`, and there is no `scan`

  /// Counts of a tile's columns: `before[c]` in earlier tiles, `totals[c]` in all.
  struct sums {
    std::int32_t* before;
    std::int32_t const* totals;
  };

  [[nodiscard]] PLIMSOLL_HD static constexpr index_t tiles_of(index_t items) {
    return (items + tile - 1) / tile;
  }
  [[nodiscard]] PLIMSOLL_HD index_t tiles() const { return tiles_of(items); }
  /// Returns the number of problems of a launch over tiles: at least one, since the first problem
  /// also does the work that is needed once.
  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return maximum{}(tiles(), index_t{1}); }
  [[nodiscard]] PLIMSOLL_HD index_t first(index_t problem) const { return problem * tile; }
  [[nodiscard]] PLIMSOLL_HD index_t size(index_t problem) const {
    return minimum{}(items - first(problem), tile);
  }

  [[nodiscard]] PLIMSOLL_HD static tiled_counts in(scratch& memory, index_t items,
                                                   index_t columns) {
    return {items, columns, memory.take<std::int32_t>(columns * tiles_of(items)),
            memory.take<std::int32_t>(columns), false};
  }

  /// Returns the bytes of scratch that `add_up` and `visit` take at most; `count` takes less. They
  /// do not depend on `by_tile`: scratch is reserved for the largest batch, and only smaller ones
  /// may be `by_tile`.
  template <class DeviceTeam>
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return 2 * scratch_bytes_of<std::int32_t>(columns) + number_items_bytes<DeviceTeam>(columns);
  }

  /// Returns whether tiles may sum all counts themselves: tiles of `match_tile` items then read at
  /// most 128 bytes per item, smaller tiles more of them.
  [[nodiscard]] PLIMSOLL_HD bool are_few() const {
    return tiles() * columns <= 32 * match_tile * (match_tile / tile);
  }

  /// Counts the items of a tile; column_of(i) is the column of item i. Problem = tile.
  template <class Team, class ColumnOf>
  PLIMSOLL_HD void count(Team& team, scratch memory, index_t problem, ColumnOf column_of) const {
    auto* const seen = memory.take<std::int32_t>(columns);
    index_t const begin = first(problem);
    team.histogram(
        size(problem), [=](index_t i) { return column_of(begin + i); }, seen, columns);
    // Without items there is one problem but no tile.
    team.for_each(tiles() > 0 ? columns : 0,
                  [=, this](index_t c) { counts[position(c, problem)] = seen[c]; });
  }

  /// Counts the items of a tile, and calls f(i, column, number of items of the column before i in
  /// the tile); here i is the index in the tile. Problem = tile.
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void count(Team& team, scratch memory, index_t problem, ColumnOf column_of,
                         F f) const {
    count_items<DeviceTeam>(team, memory, size(problem), columns, column_of, f,
                            [=, this](index_t c, std::int32_t count) {
                              // Without items there is one problem but no tile.
                              if (tiles() > 0) {
                                counts[position(c, problem)] = count;
                              }
                            });
  }

  /// Scans the counts of a column over the tiles. Problem = column.
  template <class Team>
  PLIMSOLL_HD void scan(Team& team, index_t column) const {
    std::int32_t* const row = counts + column * tiles();
    std::int32_t const total = team.exclusive_scan(
        tiles(), [row](index_t t) { return row[t]; }, row);
    team.single([=, this] { totals[column] = total; });
  }

  /// Returns the sums of each column over the earlier tiles and over all tiles, from `scan` or
  /// summed here. `totals` may be left unset unless they are needed. Problem = tile.
  template <class Team>
  PLIMSOLL_HD sums add_up(Team& team, scratch& memory, index_t problem,
                          bool needs_totals = true) const {
    return add_up(team, memory, problem, 0, no_more_reads{}, needs_totals);
  }
  /// Does the same, and also calls read(i) for i in [0, n). It returns a function that writes what
  /// was read, which is called once the counts are read, too: so these reads overlap.
  template <class Team, class Read>
  PLIMSOLL_HD sums add_up(Team& team, scratch& memory, index_t problem, index_t n, Read read,
                          bool needs_totals = true) const {
    auto* const before = memory.take<std::int32_t>(columns);
    if (!by_tile) {
      // Without items there is one problem but no tile, and `before` is not read.
      index_t const width = tiles() > 0 ? columns : 0;
      team.for_each(maximum{}(width, n), [=, this](index_t i) {
        auto const store = read(i);
        if (i < width) {
          before[i] = counts[position(i, problem)];
        }
        store();
      });
      return {before, totals};
    }
    auto* const all = memory.take<std::int32_t>(columns);
    team.for_each(columns, [=](index_t c) { before[c] = all[c] = 0; });
    // Several indices share a column, so that no thread reads many counts one after another;
    // neighbors read neighboring counts.
    constexpr auto parts = static_cast<std::int32_t>(4 * match_tile / tile);
    auto const width = static_cast<std::int32_t>(columns);
    auto const here = static_cast<std::int32_t>(problem);
    auto const end = needs_totals ? static_cast<std::int32_t>(tiles()) : here;
    team.for_each(maximum{}(parts * columns, n), [=, this](index_t i) {
      auto const store = read(i);
      auto const number = static_cast<std::int32_t>(i);
      std::int32_t part = 0;
      for (std::int32_t k = 1; k <= parts; ++k) {
        part += number >= k * width;
      }
      if (part < parts) {
        std::int32_t const c = number - part * width;
        std::int32_t const first = end * part / parts;
        std::int32_t const last = end * (part + 1) / parts;
        std::int32_t const middle = minimum{}(maximum{}(here, first), last);
        std::int32_t const earlier = sum_of(c, first, middle);
        std::int32_t const later = needs_totals ? sum_of(c, middle, last) : 0;
        add_to(before + c, earlier);
        if (needs_totals) {
          add_to(all + c, earlier + later);
        }
      }
      store();
    });
    return {before, all};
  }

  /// Calls f(i, column, number of items of the column before i) for the items of a tile. Problem =
  /// tile.
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, ColumnOf column_of,
                         F f) const {
    sums const all = add_up(team, memory, problem);
    visit<DeviceTeam>(team, memory, problem, all, column_of, f);
  }
  /// Does the same with the sums that `add_up` returned; overwrites `before`.
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, sums const& all,
                         ColumnOf column_of, F f) const {
    index_t const begin = first(problem);
    number_items<DeviceTeam>(
        team, memory, size(problem), columns, all.before,
        [=](index_t i) { return column_of(begin + i); },
        [=](index_t i, std::int32_t c, std::int32_t earlier) { f(begin + i, c, earlier); });
  }

 private:
  struct no_more_reads {
    PLIMSOLL_HD auto operator()(index_t) const {
      return [] {};
    }
  };
  /// Returns the sum of a column over tiles [first, last), if `by_tile`. It reads several counts at
  /// a time, and computes their positions in 32 bits: there are at most 64 tiles or few counts.
  [[nodiscard]] PLIMSOLL_HD std::int32_t sum_of(std::int32_t column, std::int32_t first,
                                                std::int32_t last) const {
    constexpr std::int32_t at_once = 8;
    auto const width = static_cast<std::int32_t>(columns);
    std::int32_t sum = 0;
    PLIMSOLL_NO_UNROLL
    for (std::int32_t t = first; t < last; t += at_once) {
      std::int32_t const cell = t * width + column;
      for (std::int32_t k = 0; k < at_once; ++k) {
        sum += t + k < last ? counts[cell + k * width] : 0;
      }
    }
    return sum;
  }
  [[nodiscard]] PLIMSOLL_HD index_t position(index_t column, index_t problem) const {
    return by_tile ? problem * columns + column : column * tiles() + problem;
  }
};

using tile_counts = tiled_counts<match_tile>;

}}}  // namespace plimsoll::detail

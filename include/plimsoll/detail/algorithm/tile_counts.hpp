// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where every item stands among those of its column, in the order of items: tiles of items are
/// counted, the counts of every column added up over tiles, and tiles looked at once more.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/item_numbers.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Element `i` of a matrix in row-major order, without a division where no gaps are between rows.
template <class T>
PLIMSOLL_HD T& element(matrix_ref<T> const& matrix, index_t i) {
  index_t const columns = matrix.extent(1);
  bool const dense = matrix.stride(0) == columns * matrix.stride(1);
  return dense ? matrix(0, i) : matrix(i / columns, i % columns);
}

/// Between `count` and `visit`, counts are added up by `scan`, in a launch of its own. Where
/// launches cost more than counts, every tile adds up all of them by itself (`by_tile`).
struct tile_counts {
  static constexpr index_t tile = match_tile;

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
  /// Of a launch over tiles: one even where no tile is, since the first also does what all need.
  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return maximum{}(tiles(), index_t{1}); }
  [[nodiscard]] PLIMSOLL_HD index_t first(index_t problem) const { return problem * tile; }
  [[nodiscard]] PLIMSOLL_HD index_t size(index_t problem) const {
    return minimum{}(items - first(problem), tile);
  }

  template <class Memory>
  [[nodiscard]] PLIMSOLL_HD static tile_counts in(Memory& memory, index_t items, index_t columns) {
    tile_counts result{items, columns, nullptr, nullptr, false};
    memory.take(result.counts, columns * tiles_of(items));
    memory.take(result.totals, columns);
    return result;
  }

  /// What `add_up` and `visit` take from the scratch of a problem; `count` takes less.
  template <class DeviceTeam>
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return (by_tile ? 2 : 1) * scratch_bytes_of<std::int32_t>(columns) +
           number_items_bytes<DeviceTeam>(columns);
  }

  /// Whether tiles that all add up all counts read no more than 128 bytes for each of their items.
  [[nodiscard]] PLIMSOLL_HD bool are_few() const { return tiles() * columns <= 32 * tile; }

  /// Problem = tile: counts its items; column_of(i) is the column of item i.
  template <class Team, class ColumnOf>
  PLIMSOLL_HD void count(Team& team, scratch memory, index_t problem, ColumnOf column_of) const {
    auto* const seen = memory.take<std::int32_t>(columns);
    index_t const begin = first(problem);
    team.histogram(
        size(problem), [=](index_t i) { return column_of(begin + i); }, seen, columns);
    // Without items there is one problem, but no tile.
    team.for_each(tiles() > 0 ? columns : 0,
                  [=, this](index_t c) { counts[place(c, problem)] = seen[c]; });
  }

  /// Problem = column.
  template <class Team>
  PLIMSOLL_HD void scan(Team& team, index_t column) const {
    std::int32_t* const row = counts + column * tiles();
    std::int32_t const total = team.exclusive_scan(
        tiles(), [row](index_t t) { return row[t]; }, row);
    team.single([=, this] { totals[column] = total; });
  }

  /// Problem = tile: counts over earlier tiles and over all, from `scan` or added up here.
  template <class Team>
  PLIMSOLL_HD sums add_up(Team& team, scratch& memory, index_t problem) const {
    auto* const before = memory.take<std::int32_t>(columns);
    if (!by_tile) {
      team.for_each(columns, [=, this](index_t c) { before[c] = counts[place(c, problem)]; });
      return {before, totals};
    }
    auto* const all = memory.take<std::int32_t>(columns);
    team.for_each(columns, [=](index_t c) { before[c] = all[c] = 0; });
    // Several indices share a column, so that no thread reads many counts one after another;
    // neighbours read neighbouring counts.
    constexpr index_t parts = 8;
    team.for_each(parts * columns, [=, this](index_t i) {
      index_t const part = i / columns;
      index_t const c = i - part * columns;
      std::int32_t earlier = 0;
      std::int32_t sum = 0;
      for (index_t t = part; t < tiles(); t += parts) {
        std::int32_t const count = counts[place(c, t)];
        earlier += t < problem ? count : 0;
        sum += count;
      }
      add_to(before + c, earlier);
      add_to(all + c, sum);
    });
    return {before, all};
  }

  /// Problem = tile: f(i, column, how many items of the column come before i).
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, ColumnOf column_of,
                         F f) const {
    sums const all = add_up(team, memory, problem);
    visit<DeviceTeam>(team, memory, problem, all, column_of, f);
  }
  /// The same with what `add_up` returned, whose `before` is used up.
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
  [[nodiscard]] PLIMSOLL_HD index_t place(index_t column, index_t problem) const {
    return by_tile ? problem * columns + column : column * tiles() + problem;
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers the items of each column in the order of items: counts them per tile and per group of
/// tiles, then every tile sums the counts before it and visits its items again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/item_numbers.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Counts of items per column, tile and group of tiles. The kernel that computes the column of an
/// item counts it with `add`, in any order, so that no launch is needed between that kernel and the
/// visits. On a host, where atomic additions cost more than a pass over the items, `count` counts a
/// whole tile instead.
struct grouped_counts {
  static constexpr int tile_bits = match_tile_bits;
  static constexpr int group_bits = tile_bits + 4;
  static constexpr index_t tile = index_t{1} << tile_bits;
  static constexpr index_t tiles_of_group = index_t{1} << (group_bits - tile_bits);
  /// Most groups that a visit sums itself; if there are more, `scan` runs before the visits.
  static constexpr index_t most_groups = 64;

  index_t items;
  index_t columns;
  /// True: counts are zero before a batch, `add` increments them, and `clear` sets them to zero
  /// again. False: `count` writes them, and `scan` scans them.
  bool adding;
  std::int32_t* groups;  ///< `[groups, columns]`; scanned: in the first row, the totals
  std::int32_t* counts;  ///< `[tiles, columns]`; scanned: those of earlier tiles

  [[nodiscard]] PLIMSOLL_HD static constexpr index_t tiles_of(index_t items) {
    return (items + tile - 1) >> tile_bits;
  }
  [[nodiscard]] PLIMSOLL_HD static constexpr index_t groups_of(index_t items) {
    return (items + (index_t{1} << group_bits) - 1) >> group_bits;
  }
  [[nodiscard]] PLIMSOLL_HD index_t tiles() const { return tiles_of(items); }
  [[nodiscard]] PLIMSOLL_HD bool scanned() const {
    return !adding || groups_of(items) > most_groups;
  }
  [[nodiscard]] PLIMSOLL_HD index_t group_rows() const {
    return scanned() ? index_t{1} : groups_of(items);
  }
  /// Returns the number of problems of a launch over tiles: at least one, since the first problem
  /// also does the work that is needed once.
  [[nodiscard]] index_t problems() const { return maximum{}(tiles(), index_t{1}); }
  [[nodiscard]] PLIMSOLL_HD index_t first(index_t problem) const { return problem * tile; }
  [[nodiscard]] PLIMSOLL_HD index_t size(index_t problem) const {
    return minimum{}(items - first(problem), tile);
  }

  /// Takes memory for up to `items` items; the member `items` may be lowered afterwards.
  [[nodiscard]] PLIMSOLL_HD static grouped_counts in(scratch& memory, index_t items,
                                                     index_t columns, bool adding) {
    index_t const rows = minimum{}(maximum{}(groups_of(items), index_t{1}), most_groups);
    return {items, columns, adding, memory.take<std::int32_t>(columns * rows),
            memory.take<std::int32_t>(columns * tiles_of(items))};
  }

  /// Counts an item; any problem may call it.
  PLIMSOLL_HD void add(index_t item, std::int32_t column) const {
    increment(counts + row(item >> tile_bits) + column);
    if (!scanned()) {
      increment(groups + row(item >> group_bits) + column);
    }
  }

  /// Counts the items of a tile; column_of(i) is the column of item i. Problem = tile.
  template <class Team, class ColumnOf>
  PLIMSOLL_HD void count(Team& team, index_t problem, ColumnOf column_of) const {
    index_t const begin = first(problem);
    index_t const n = size(problem);
    if (adding) {
      team.for_each(n, [=, this](index_t i) { add(begin + i, column_of(begin + i)); });
    } else if (n > 0) {
      team.histogram(
          n, [=](index_t i) { return column_of(begin + i); }, counts + problem * columns, columns);
    }
  }

  /// Returns the bytes of scratch that `scan` takes.
  [[nodiscard]] PLIMSOLL_HD std::size_t scan_bytes() const {
    return scratch_bytes_of<std::int32_t>(scanned_at_once());
  }
  /// Scans the counts of a column over the tiles, if counts are `scanned()`. Problem = column.
  template <class Team>
  PLIMSOLL_HD void scan(Team& team, scratch memory, index_t column) const {
    index_t const length = scanned_at_once();
    auto* const before = memory.take<std::int32_t>(length);
    index_t const stride = columns;
    std::int32_t total = 0;
    for (index_t begin = 0; begin < tiles(); begin += length) {
      index_t const n = minimum{}(tiles() - begin, length);
      std::int32_t* const from = counts + begin * stride + column;
      std::int32_t const sum = team.exclusive_scan(
          n, [=](index_t t) { return from[t * stride]; }, before);
      team.for_each(n, [=](index_t t) { from[t * stride] = total + before[t]; });
      total += sum;
    }
    team.store(groups + column, total);
  }

  /// Returns the number of items of a column.
  [[nodiscard]] PLIMSOLL_HD std::int32_t total(index_t column) const {
    return sums_of(column, 0).all;
  }
  /// Numbers of items of a column: in the tiles before a tile, and in all.
  struct sums {
    std::int32_t earlier;
    std::int32_t all;
  };
  /// Returns those of the tiles before tile `problem`. Begins to read all tiles of the group and 16
  /// groups before it adds any, so that a GPU waits once.
  [[nodiscard]] PLIMSOLL_HD sums sums_of(index_t column, index_t problem) const {
    if (scanned()) {
      // Without items there is one problem but no tile.
      return {problem > 0 ? counts[row(problem) + column] : 0, groups[column]};
    }
    // Few rows: a GPU counts them in 32 bits, and adds to a pointer instead of multiplying.
    constexpr auto at_once = static_cast<std::int32_t>(tiles_of_group);
    auto const rows = static_cast<std::int32_t>(group_rows());
    auto const own_group = static_cast<std::int32_t>(problem / tiles_of_group);
    auto const own_tile = static_cast<std::int32_t>(problem % tiles_of_group);
    std::int32_t const* of_tile = counts + row(problem - own_tile) + column;
    std::int32_t of_tiles[at_once];
    for (std::int32_t i = 0; i < at_once; ++i) {
      of_tiles[i] = i < own_tile ? *of_tile : 0;
      of_tile += columns;
    }
    std::int32_t const* of_group = groups + column;
    sums result{0, 0};
    for (std::int32_t first = 0; first < rows; first += at_once) {
      for (std::int32_t i = first; i < first + at_once; ++i) {
        result.earlier = i == own_group ? result.all : result.earlier;
        result.all += i < rows ? *of_group : 0;
        of_group += columns;
      }
    }
    for (std::int32_t const counted : of_tiles) {
      result.earlier += counted;
    }
    return result;
  }

  /// Returns the bytes of scratch that `visit` takes.
  template <class DeviceTeam>
  [[nodiscard]] PLIMSOLL_HD std::size_t visit_bytes() const {
    return number_items_bytes<DeviceTeam>(columns);
  }
  /// Calls f(i, column, next[column] + number of items of the column before i in the tile) for the
  /// items of a tile; overwrites `next`. Problem = tile.
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, std::int32_t* next,
                         ColumnOf column_of, F f) const {
    index_t const begin = first(problem);
    number_items<DeviceTeam>(
        team, memory, size(problem), columns, next, [=](index_t i) { return column_of(begin + i); },
        [=](index_t i, std::int32_t c, std::int32_t number) { f(begin + i, c, number); });
  }

  /// Sets part `part` of `parts` equal parts of all counts to zero, as `add` needs them.
  template <class Team>
  PLIMSOLL_HD void clear(Team& team, index_t part, index_t parts) const {
    index_t const of_groups = group_rows() * columns;
    index_t const all = of_groups + tiles() * columns;
    index_t const begin = all * part / parts;
    team.for_each(all * (part + 1) / parts - begin, [=, this](index_t i) {
      index_t const cell = begin + i;
      (cell < of_groups ? groups + cell : counts + (cell - of_groups))[0] = 0;
    });
  }

 private:
  /// Returns where row i begins. Both factors are below 2^32, so a GPU multiplies them by one
  /// instruction.
  [[nodiscard]] PLIMSOLL_HD index_t row(index_t i) const {
    return static_cast<index_t>(std::uint64_t{static_cast<std::uint32_t>(i)} *
                                static_cast<std::uint32_t>(columns));
  }
  /// Returns the number of tiles that `scan` scans at a time.
  [[nodiscard]] PLIMSOLL_HD index_t scanned_at_once() const {
    return minimum{}(tiles(), index_t{128});
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place of every item among those of its column, in the order of items: items are counted per
/// tile and per group of tiles, a tile adds up what lies before it, and visits its items once more.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/item_numbers.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Whoever knows the column of an item counts it with `add`, in any order; so a kernel that makes
/// columns counts them too, and no launch is needed between it and the visits. On a host, where
/// atomic additions cost more than a pass over the items, `count` writes a whole tile instead.
struct grouped_counts {
  static constexpr int tile_bits = match_tile_bits;
  static constexpr int group_bits = tile_bits + 4;
  static constexpr index_t tile = index_t{1} << tile_bits;
  static constexpr index_t tiles_of_group = index_t{1} << (group_bits - tile_bits);
  /// Groups that each visit adds up by itself; where there are more, `scan` runs before the visits.
  static constexpr index_t most_groups = 64;

  index_t items;
  index_t columns;
  /// Counts are zero before a batch, `add` counts, and `clear` leaves them zero. Else `count`
  /// writes them, and they are scanned.
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
  /// Of a launch over tiles: one even where no tile is, since the first also does what all need.
  [[nodiscard]] index_t problems() const { return maximum{}(tiles(), index_t{1}); }
  [[nodiscard]] PLIMSOLL_HD index_t first(index_t problem) const { return problem * tile; }
  [[nodiscard]] PLIMSOLL_HD index_t size(index_t problem) const {
    return minimum{}(items - first(problem), tile);
  }

  /// For up to `items` items, whose number may be changed afterwards.
  template <class Memory>
  [[nodiscard]] PLIMSOLL_HD static grouped_counts in(Memory& memory, index_t items, index_t columns,
                                                     bool adding) {
    grouped_counts result{items, columns, adding, nullptr, nullptr};
    index_t const rows = minimum{}(maximum{}(groups_of(items), index_t{1}), most_groups);
    memory.take(result.groups, columns * rows);
    memory.take(result.counts, columns * tiles_of(items));
    return result;
  }

  /// Counts an item, from any problem.
  PLIMSOLL_HD void add(index_t item, std::int32_t column) const {
    increment(counts + (item >> tile_bits) * columns + column);
    if (!scanned()) {
      increment(groups + (item >> group_bits) * columns + column);
    }
  }

  /// Problem = tile: counts its items; column_of(i) is the column of item i.
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

  /// Bytes of scratch that `scan` takes.
  [[nodiscard]] PLIMSOLL_HD std::size_t scan_bytes() const {
    return scratch_bytes_of<std::int32_t>(scanned_at_once());
  }
  /// Problem = column; only where counts are `scanned()`.
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

  /// Items of a column.
  [[nodiscard]] PLIMSOLL_HD std::int32_t total(index_t column) const {
    return sum(groups, 0, group_rows(), column);
  }
  /// Of every column, the items of lower columns. Returns the number of all items.
  template <class Team>
  PLIMSOLL_HD std::int32_t scan_totals(Team& team, std::int32_t* below) const {
    std::int32_t const* const totals = groups;
    return scanned() ? team.exclusive_scan(
                           columns, [=](index_t c) { return totals[c]; }, below)
                     : team.exclusive_scan(
                           columns, [this](index_t c) { return total(c); }, below);
  }
  /// Adds the items of every column that lie in tiles before `problem`, which is one of `tiles()`.
  template <class Team>
  PLIMSOLL_HD void add_earlier(Team& team, index_t problem, std::int32_t* to) const {
    if (scanned()) {
      std::int32_t const* const earlier = counts + problem * columns;
      team.for_each(columns, [=](index_t c) { to[c] += earlier[c]; });
      return;
    }
    index_t const group = problem / tiles_of_group;
    team.for_each(columns, [=, this](index_t c) {
      to[c] += sum(groups, 0, group, c) + sum(counts, group * tiles_of_group, problem, c);
    });
  }

  /// Bytes of scratch that `visit` takes.
  template <class DeviceTeam>
  [[nodiscard]] PLIMSOLL_HD std::size_t visit_bytes() const {
    return number_items_bytes<DeviceTeam>(columns);
  }
  /// Problem = tile: f(i, column, next[column] + how many items of the column come before i in the
  /// tile). `next` is used up.
  template <class DeviceTeam, class Team, class ColumnOf, class F>
  PLIMSOLL_HD void visit(Team& team, scratch memory, index_t problem, std::int32_t* next,
                         ColumnOf column_of, F f) const {
    index_t const begin = first(problem);
    number_items<DeviceTeam>(
        team, memory, size(problem), columns, next, [=](index_t i) { return column_of(begin + i); },
        [=](index_t i, std::int32_t c, std::int32_t at) { f(begin + i, c, at); });
  }

  /// Part `part` of `parts` of what leaves all counts zero, as `add` needs them.
  template <class Team>
  PLIMSOLL_HD void clear(Team& team, index_t part, index_t parts) const {
    index_t const of_groups = group_rows() * columns;
    index_t const all = of_groups + tiles() * columns;
    index_t const begin = all * part / parts;
    team.for_each(all * (part + 1) / parts - begin, [=, this](index_t i) {
      index_t const at = begin + i;
      (at < of_groups ? groups + at : counts + (at - of_groups))[0] = 0;
    });
  }

 private:
  /// Tiles.
  [[nodiscard]] PLIMSOLL_HD index_t scanned_at_once() const {
    return minimum{}(tiles(), index_t{128});
  }
  /// Of a column, over rows from `from` to before `to`.
  [[nodiscard]] PLIMSOLL_HD std::int32_t sum(std::int32_t const* rows, index_t from, index_t to,
                                             index_t column) const {
    std::int32_t result = 0;
    for (index_t row = from; row < to; ++row) {
      result += rows[row * columns + column];
    }
    return result;
  }
};

}}}  // namespace plimsoll::detail

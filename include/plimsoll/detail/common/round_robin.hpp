// SPDX-License-Identifier: Apache-2.0
/// @file
/// Weighted round-robin order of the slack of ranks, and the search for positions in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A position in the weighted round-robin order of the units of slack of several ranks. Unit j of a
/// rank with n units comes at time (j + 1/2) / n, rounded down to a multiple of 2^-32; of equal
/// times the lower rank's unit comes first. So every interval of the order has all ranks in
/// proportion to their slack. At the position's time, units of ranks below `until` are before it.
/// Ranks have fewer than 2^31 units, so that all of them are before the last time.
struct round_robin_position {
  std::uint32_t time;  ///< in 2^-32
  std::int32_t until;

  static constexpr std::uint32_t last_time = ~std::uint32_t{0};

  /// Returns how many of the rank's `room` units are before the position.
  [[nodiscard]] PLIMSOLL_HD std::int32_t units_before(std::int32_t room, index_t rank) const {
    return before(room, rank < until ? time + 1 : time);
  }

  /// Returns the number of j for which (j + 1/2) / n is before the moment.
  [[nodiscard]] PLIMSOLL_HD static std::int32_t before(std::int32_t n, std::uint32_t moment) {
    constexpr std::uint64_t round_up = (std::uint64_t{1} << 31) - 1;
    std::uint64_t const product = std::uint64_t{static_cast<std::uint32_t>(n)} * moment;
    return static_cast<std::int32_t>((product + round_up) >> 32);
  }
};

/// Search for the position that is after exactly `units` units of ranks [first, last). Close to the
/// position, sums of units differ from `units` by a few units per rank, so they are computed modulo
/// 2^32.
struct position_search {
  std::int32_t const* room;
  std::int32_t first;
  std::int32_t last;
  std::uint32_t units;
  // The time of the position is in [low, high). If low = high, it is known.
  std::uint32_t low;
  std::uint32_t high;

  /// Starts from a narrow interval of times: the units of each rank that come before a time are in
  /// proportion to it, to within half a unit, so the time is known to within half a unit per rank.
  /// `all` is the number of units of all ranks.
  PLIMSOLL_HD static position_search start(std::int32_t const* room, index_t first, index_t last,
                                           std::int64_t units, std::int64_t all) {
    constexpr std::uint32_t end = round_robin_position::last_time;
    position_search result{room,
                           static_cast<std::int32_t>(first),
                           static_cast<std::int32_t>(last),
                           static_cast<std::uint32_t>(units),
                           units == 0 ? 0 : end,
                           units == 0 ? 0 : end};
    if (units > 0 && units < all) {
      double const unit = divide(0x1p32, static_cast<double>(all));
      auto const time_of = [=](std::int64_t given) {
        return static_cast<std::int64_t>(multiply(static_cast<double>(given), unit));
      };
      index_t const off = (last - first) / 2 + 2;
      result.low = static_cast<std::uint32_t>(units > off ? time_of(units - off) : 0);
      result.high =
          static_cast<std::uint32_t>(minimum{}(time_of(units + off) + 2, std::int64_t{end}));
    }
    return result;
  }

  struct excesses {
    std::int32_t at_begin;
    std::int32_t at_end;
  };
  [[nodiscard]] PLIMSOLL_HD bool is_known() const { return low == high; }
  /// Returns how many more units than `units` come before the moment.
  [[nodiscard]] PLIMSOLL_HD std::int32_t excess(std::uint32_t moment) const {
    std::uint32_t sum = 0;
    for (std::int32_t r = first; r < last; ++r) {
      sum += static_cast<std::uint32_t>(round_robin_position::before(room[r], moment));
    }
    return static_cast<std::int32_t>(sum - units);
  }
  /// Returns the same for both ends of a part of the interval.
  [[nodiscard]] PLIMSOLL_HD excesses excess_in(std::uint32_t begin, std::uint32_t end) const {
    std::uint32_t at_begin = 0;
    std::uint32_t at_end = 0;
    for (std::int32_t r = first; r < last; ++r) {
      std::int32_t const n = room[r];
      at_begin += static_cast<std::uint32_t>(round_robin_position::before(n, begin));
      at_end += static_cast<std::uint32_t>(round_robin_position::before(n, end));
    }
    return {static_cast<std::int32_t>(at_begin - units), static_cast<std::int32_t>(at_end - units)};
  }
  /// Returns the beginning of the i-th of 2^bits equal parts of [low, high).
  [[nodiscard]] PLIMSOLL_HD std::uint32_t moment(std::uint32_t i, int bits) const {
    return low + static_cast<std::uint32_t>(std::uint64_t{high - low} * i >> bits);
  }
  /// Returns the position, which is at the time `low`, `missing` units after those before it.
  [[nodiscard]] PLIMSOLL_HD round_robin_position position(std::int32_t missing) const {
    std::int32_t until = first;
    for (; missing > 0 && until < last; ++until) {
      missing -= round_robin_position::before(room[until], low + 1) -
                 round_robin_position::before(room[until], low);
    }
    return {low, until};
  }
};

/// Arrays of several searches at once. Each round reads one and writes the other.
struct position_search_arrays {
  position_search* searches[2];  ///< `[count]`

  PLIMSOLL_HD static position_search_arrays in(scratch& memory, index_t count) {
    position_search_arrays result{};
    memory.take(result.searches[0], count);
    memory.take(result.searches[1], count);
    return result;
  }
};

/// Runs several such searches at once. A serial team bisects intervals; other teams cut each one
/// into many parts, so that every thread computes the sums of about one part and few rounds are
/// needed.
struct position_searches {
  index_t count;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<position_search_arrays>(count);
  }

  /// Writes the result of search_of(i) to position[i].
  template <class Team, class SearchOf>
  PLIMSOLL_HD void find(Team& team, scratch arrays, SearchOf search_of,
                        round_robin_position* position) const {
    if constexpr (Team::is_serial) {
      team.for_each(count, [=](index_t i) {
        position_search search = search_of(i);
        std::int32_t excess = search.is_known() ? 0 : search.excess(search.low);
        while (excess < 0 && search.high - search.low > 1) {
          std::uint32_t const middle = search.moment(1, 1);
          std::int32_t const there = search.excess(middle);
          if (there <= 0) {
            search.low = middle;
            excess = there;
          } else {
            search.high = middle;
          }
        }
        position[i] = search.position(-excess);
      });
    } else {
      int const bits = part_bits();
      auto const in = position_search_arrays::in(arrays, count);
      position_search* from = in.searches[0];
      position_search* to = in.searches[1];
      bool is_open = true;
      for (bool is_first = true; is_open; is_first = false) {
        is_open = team.any(count << bits, [=](index_t i) {
          auto const part = static_cast<std::uint32_t>(i) & ((1u << bits) - 1);
          index_t const which = i >> bits;
          position_search search = is_first ? search_of(which) : from[which];
          if (search.is_known()) {
            if (part == 0) {
              to[which] = search;
              if (is_first) {
                position[which] = search.position(0);
              }
            }
            return false;
          }
          std::uint32_t const begin = search.moment(part, bits);
          std::uint32_t const end = search.moment(part + 1, bits);
          auto const excess = search.excess_in(begin, end);
          // Sums rise, so exactly one part of each search writes.
          if (excess.at_begin > 0 || excess.at_end <= 0) {
            return false;
          }
          bool const is_found = excess.at_begin == 0 || end - begin == 1;
          search.low = begin;
          search.high = is_found ? begin : end;
          to[which] = search;
          if (is_found) {
            position[which] = search.position(-excess.at_begin);
          }
          return !is_found;
        });
        position_search* const written = to;
        to = from;
        from = written;
      }
    }
  }

 private:
  /// Returns the binary logarithm of the number of parts.
  [[nodiscard]] PLIMSOLL_HD int part_bits() const {
    int bits = 2;
    while (count << (bits + 1) <= 128) {
      ++bits;
    }
    return bits;
  }
};

}}}  // namespace plimsoll::detail

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
struct round_robin_position {
  std::int64_t time;
  index_t until;

  /// Returns how many of the rank's `room` units are before the position.
  [[nodiscard]] PLIMSOLL_HD std::int64_t of(std::int64_t room, index_t rank) const {
    return before(room, rank < until ? time + 1 : time);
  }

  /// Returns the number of j for which (j + 1/2) / n is before the moment.
  [[nodiscard]] PLIMSOLL_HD static std::int64_t before(std::int64_t n, std::int64_t moment) {
    constexpr std::int64_t round_up = (std::int64_t{1} << 31) - 1;
    return (n * moment + round_up) >> 31 >> 1;
  }
};

/// Search for the position that is after exactly `units` units of ranks [first, last).
struct position_search {
  std::int64_t const* room;
  index_t first;
  index_t last;
  std::int64_t units;
  // The time of the position is in [low, high), and `reached` units come before `low`.
  std::int64_t low;
  std::int64_t high;
  std::int64_t reached;

  /// Starts from a narrow interval of times: the units of each rank that come before a time are in
  /// proportion to it, to within half a unit, so the time is known to within a unit per rank.
  PLIMSOLL_HD static position_search of(std::int64_t const* room, index_t first, index_t last,
                                        std::int64_t units) {
    position_search result{room, first, last, units, 0, 0, 0};
    constexpr std::int64_t end = std::int64_t{1} << 32;
    std::int64_t const all = result.units_before(end);
    auto const time_of = [=](std::int64_t given) {
      double const share = divide(static_cast<double>(given), static_cast<double>(all));
      return static_cast<std::int64_t>(multiply(share, static_cast<double>(end)));
    };
    index_t const off = last - first + 1;
    result.low = units > off ? time_of(units - off) : 0;
    result.high = units + off < all ? time_of(units + off) + 1 : end + 1;
    result.reached = result.units_before(result.low);
    return result;
  }

  [[nodiscard]] PLIMSOLL_HD bool is_open() const { return high - low > 1 && reached != units; }
  [[nodiscard]] PLIMSOLL_HD std::int64_t units_before(std::int64_t moment) const {
    std::int64_t sum = 0;
    for (index_t r = first; r < last; ++r) {
      sum += round_robin_position::before(room[r], moment);
    }
    return sum;
  }
  /// Returns the beginning of the i-th of `parts` equal parts of [low, high).
  [[nodiscard]] PLIMSOLL_HD std::int64_t moment(index_t i, index_t parts) const {
    return low + (high - low) * i / parts;
  }
  [[nodiscard]] PLIMSOLL_HD round_robin_position position() const {
    index_t until = first;
    for (std::int64_t sum = reached; sum < units && until < last; ++until) {
      sum += round_robin_position::before(room[until], low + 1) -
             round_robin_position::before(room[until], low);
    }
    return {low, until};
  }
};

/// Arrays of several searches at once, each of which cuts its interval into `parts`.
struct position_search_arrays {
  position_search* search;  ///< `[count]`
  std::int64_t* sum;        ///< `[count, parts]`: units before each part

  template <class Memory>
  PLIMSOLL_HD static position_search_arrays in(Memory& memory, index_t count, index_t parts) {
    position_search_arrays result{};
    memory.take(result.search, count);
    memory.take(result.sum, count * parts);
    return result;
  }
};

/// Runs several such searches at once. A serial team bisects intervals; other teams cut each one
/// into many parts, so that every thread computes about one sum and few rounds are needed.
struct position_searches {
  index_t count;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<position_search_arrays>(count, parts());
  }

  /// Writes the result of search_of(i) to position[i].
  template <class Team, class SearchOf>
  PLIMSOLL_HD void find(Team& team, scratch arrays, SearchOf search_of,
                        round_robin_position* position) const {
    if constexpr (Team::is_serial) {
      team.for_each(count, [=](index_t i) {
        position_search search = search_of(i);
        while (search.is_open()) {
          std::int64_t const middle = search.moment(1, 2);
          std::int64_t const sum = search.units_before(middle);
          if (sum <= search.units) {
            search.low = middle;
            search.reached = sum;
          } else {
            search.high = middle;
          }
        }
        position[i] = search.position();
      });
    } else {
      index_t const n = parts();
      auto const in = position_search_arrays::in(arrays, count, n);
      auto* const searches = in.search;
      auto* const sums = in.sum;
      team.for_each(count, [=](index_t i) { searches[i] = search_of(i); });
      auto const narrow = [=](index_t i) {
        position_search& search = searches[i / n];
        index_t const part = i % n;
        // Sums rise, so exactly one part of each search writes, and no other reads what it writes.
        if (sums[i] > search.units || (part + 1 < n && sums[i + 1] <= search.units)) {
          return false;
        }
        std::int64_t const low = search.moment(part, n);
        search.high = part + 1 < n ? search.moment(part + 1, n) : search.high;
        search.low = low;
        search.reached = sums[i];
        return search.is_open();
      };
      do {
        team.for_each(n * count, [=](index_t i) {
          position_search const& search = searches[i / n];
          sums[i] = search.units_before(search.moment(i % n, n));
        });
      } while (team.any(n * count, narrow));
      team.for_each(count, [=](index_t i) { position[i] = searches[i].position(); });
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD index_t parts() const { return maximum{}(128 / count, index_t{4}); }
};

}}}  // namespace plimsoll::detail

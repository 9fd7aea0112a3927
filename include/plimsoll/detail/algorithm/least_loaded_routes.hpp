// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `least_loaded` after the plan: they count the tokens that every rank sends to every
/// other, route each token copy, and arrange the rows that a rank receives.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded.hpp>
#include <plimsoll/detail/common/id_columns.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The exchange of a plan's tokens among all ranks.
struct spill_routes {
  index_t experts;
  index_t ranks;
  index_t segment_limit;
  std::int32_t const* offsets;  ///< `[experts + 1]`: of the plan
  spill_segment const* segments;
  spill_exchange_state* state;
  std::int32_t* before;        ///< `[ranks + 1, experts]`: tokens of earlier sources
  std::int64_t* totals;        ///< `[experts]`: tokens of all sources, or a negative count
  std::uint64_t* by_rank;      ///< `[segment_limit]`: rank << 32 | segment, rising
  std::byte* sort_storage;     ///< of `by_rank`
  std::int32_t* rank_begin;    ///< `[ranks + 1]` into `by_rank`
  std::int32_t* sends;         ///< `[ranks, ranks]`: from every source to every rank
  std::int32_t* receives;      ///< `[ranks, ranks]`: its transpose
  std::int32_t* sent_row;      ///< `[ranks, segment_limit]`: first row of a segment in the send
                               ///< buffer of a source
  std::int32_t* computed_row;  ///< `[segment_limit]`, as `by_rank`: first row of a segment among
                               ///< those that its rank computes
  spill_exchange_report* reports;  ///< `[ranks]`

  PLIMSOLL_HD static spill_routes in(scratch& memory, spill_array_sizes const& n) {
    spill_routes result{};
    result.experts = n.experts;
    result.ranks = n.ranks;
    result.segment_limit = n.segments;
    memory.take(result.before, (n.ranks + 1) * n.experts);
    memory.take(result.totals, n.experts);
    memory.take(result.by_rank, n.segments);
    memory.take(result.sort_storage, sort_bytes<block<256>, std::uint64_t>(n.segments));
    memory.take(result.rank_begin, n.ranks + 1);
    memory.take(result.sends, n.ranks * n.ranks);
    memory.take(result.receives, n.ranks * n.ranks);
    memory.take(result.sent_row, n.ranks * n.segments);
    memory.take(result.computed_row, n.segments);
    memory.take(result.reports, n.ranks);
    return result;
  }

  [[nodiscard]] PLIMSOLL_HD index_t segment_at(index_t i) const {
    return static_cast<index_t>(by_rank[i] & 0xffffffff);
  }
  /// Returns the number of an expert's tokens in the plan.
  [[nodiscard]] PLIMSOLL_HD std::int32_t planned(index_t e) const {
    return offsets[e] == offsets[e + 1] ? 0 : segments[offsets[e + 1] - 1].end;
  }
  /// Returns the same, but 0 before the exchange of the plan.
  [[nodiscard]] PLIMSOLL_HD std::int32_t routed(index_t e) const {
    return state->is_done != 0 ? planned(e) : 0;
  }
  /// The part of a segment's tokens that comes from one source.
  struct interval {
    std::int32_t begin;
    std::int32_t end;
    [[nodiscard]] PLIMSOLL_HD std::int32_t size() const { return end > begin ? end - begin : 0; }
  };
  [[nodiscard]] PLIMSOLL_HD interval part_of(index_t source, index_t segment) const {
    spill_segment const& whole = segments[segment];
    return {maximum{}(whole.begin, before[source * experts + whole.expert]),
            minimum{}(whole.end, before[(source + 1) * experts + whole.expert])};
  }
};

/// Adds up the counts of sources. Problem = tile of experts.
struct count_sources_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  static constexpr index_t tile = 128;

  matrix_ref<std::int32_t const> counts;  ///< `[ranks, experts]`
  spill_routes routes;

  [[nodiscard]] index_t problems() const { return (routes.experts + tile - 1) / tile; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const first = problem * tile;
    index_t const size = minimum{}(routes.experts - first, tile);
    team.for_each(size, [=, this](index_t i) {
      index_t const e = first + i;
      std::int64_t sum = 0;
      std::int32_t negative = 0;
      for (index_t source = 0; source < routes.ranks; ++source) {
        routes.before[source * routes.experts + e] = clamped(sum);
        std::int32_t const count = counts(source, e);
        sum += maximum{}(count, 0);
        negative = minimum{}(count, negative);
      }
      routes.before[routes.ranks * routes.experts + e] = clamped(sum);
      routes.totals[e] = negative < 0 ? negative : sum;
    });
  }

 private:
  PLIMSOLL_HD static std::int32_t clamped(std::int64_t sum) {
    return static_cast<std::int32_t>(minimum{}(sum, std::int64_t{highest<std::int32_t>}));
  }
};

/// Lists the segments of every rank, and compares the counts of all sources with the plan. One
/// problem.
struct list_spills_body {
  using device_team = block<256>;

  spill_routes routes;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t) const {
    index_t const segments = routes.offsets[routes.experts];
    team.for_each(segments, [this](index_t i) {
      routes.by_rank[i] =
          static_cast<std::uint64_t>(routes.segments[i].rank) << 32 | static_cast<std::uint64_t>(i);
    });
    team.sort(routes.by_rank, segments, routes.sort_storage);
    team.for_each(routes.ranks + 1, [=, this](index_t r) {
      index_t low = 0;
      for (index_t high = segments; low < high;) {
        index_t const middle = low + (high - low) / 2;
        bool const is_before = static_cast<index_t>(routes.by_rank[middle] >> 32) < r;
        low = is_before ? middle + 1 : low;
        high = is_before ? high : middle;
      }
      routes.rank_begin[r] = static_cast<std::int32_t>(low);
    });
    index_t const mismatch = team.min(routes.experts, [this](index_t e) {
      return routes.totals[e] == routes.planned(e) ? routes.experts : e;
    });
    team.single([=, this] {
      spill_exchange_state result{};
      result.is_done = 1;
      if (mismatch < routes.experts) {
        result.refused = fault_of(fault_kind::counts, mismatch, routes.totals[mismatch],
                                  routes.planned(mismatch));
      }
      *routes.state = result;
    });
  }
};

/// Lays out the rows that a rank sends, by destination rank, then by expert, and the rows that it
/// computes, by expert. Problem = rank.
struct exchange_body {
  using device_team = block<128>;

  spill_routes routes;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(routes.segment_limit);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t rank) const {
    auto* const row = memory.take<std::int32_t>(routes.segment_limit);
    index_t const segments = routes.offsets[routes.experts];
    std::int32_t const sent = team.exclusive_scan(
        segments,
        [=, this](index_t i) { return routes.part_of(rank, routes.segment_at(i)).size(); }, row);
    team.for_each(segments, [=, this](index_t i) {
      routes.sent_row[rank * routes.segment_limit + routes.segment_at(i)] = row[i];
    });
    team.for_each(routes.ranks, [=, this](index_t to) {
      auto const row_at = [=](index_t i) { return i < segments ? row[i] : sent; };
      std::int32_t const tokens = row_at(routes.rank_begin[to + 1]) - row_at(routes.rank_begin[to]);
      routes.sends[rank * routes.ranks + to] = tokens;
      routes.receives[to * routes.ranks + rank] = tokens;
    });
    index_t const first = routes.rank_begin[rank];
    index_t const groups = routes.rank_begin[rank + 1] - first;
    std::int32_t const received = team.exclusive_scan(
        groups,
        [=, this](index_t i) {
          spill_segment const segment = routes.segments[routes.segment_at(first + i)];
          return segment.end - segment.begin;
        },
        routes.computed_row + first);
    team.single([=, this] {
      routes.reports[rank] = {sent, received, static_cast<std::int32_t>(groups),
                              routes.state->refused};
    });
  }
};

/// Counts and routes a rank's token copies, in three launches: problem = tile of copies; problem =
/// column of the counts; and, after the plan, problem = tile again.
template <class Id, class Destination = std::int32_t, class Row = std::int32_t>
struct spill_tokens_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  enum class phase { count, scan, assign };

  matrix_ref<Id const> ids;  ///< `[tokens, k]`
  spill_routes routes;
  tile_counts tiles;                     ///< columns: experts, -1, other numbers
  vector_ref<std::int32_t> counts;       ///< `[experts]`
  index_t rank;                          ///< the rank whose copies are routed
  matrix_ref<Destination> destinations;  ///< `[tokens, k]`
  matrix_ref<Row> rows;                  ///< `[tokens, k]`
  spill_counters* counters;
  phase now;

  [[nodiscard]] index_t problems() const {
    return now == phase::scan ? tiles.columns : tiles.problems();
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return now == phase::scan ? 0 : tiles.scratch_bytes<device_team>();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    auto const column_of = [this](index_t copy) {
      return column_of_id(element(ids, copy), routes.experts);
    };
    if (now == phase::count) {
      tiles.count(team, memory, problem, column_of);
    } else if (now == phase::scan) {
      tiles.scan(team, problem);
      if (problem < routes.experts) {
        team.single([=, this] { counts[problem] = tiles.totals[problem]; });
      }
    } else {
      if (problem == 0) {
        report(team);
      }
      tiles.visit<device_team>(
          team, memory, problem, column_of,
          [this](index_t copy, std::int32_t e, std::int32_t earlier) { send(copy, e, earlier); });
    }
  }

 private:
  PLIMSOLL_HD void send(index_t copy, std::int32_t e, std::int32_t earlier) const {
    Destination& destination = element(destinations, copy);
    Row& row = element(rows, copy);
    destination = -1;
    row = -1;
    if (e >= routes.experts) {
      return;
    }
    std::int32_t const before = routes.before[rank * routes.experts + e];
    std::int64_t const position = std::int64_t{before} + earlier;
    if (position >= routes.routed(e)) {
      return;
    }
    index_t low = routes.offsets[e];
    for (index_t size = routes.offsets[e + 1] - low; size > 1;) {
      index_t const half = size / 2;
      low += routes.segments[low + half].begin <= position ? half : 0;
      size -= half;
    }
    destination = routes.segments[low].rank;
    row = routes.sent_row[rank * routes.segment_limit + low] +
          static_cast<std::int32_t>(position - maximum{}(routes.segments[low].begin, before));
  }

  template <class Team>
  PLIMSOLL_HD void report(Team& team) const {
    auto const room = [this](index_t e) {
      std::int32_t const before = routes.before[rank * routes.experts + e];
      return minimum{}(std::int64_t{tiles.totals[e]},
                       maximum{}(std::int64_t{routes.routed(e)} - before, std::int64_t{0}));
    };
    auto const routed = team.sum(routes.experts, room);
    auto const all =
        team.sum(routes.experts, [this](index_t e) { return std::int64_t{tiles.totals[e]}; });
    team.single([=, this] {
      spill_counters result{};
      result.routed = routed;
      result.unplanned = all - routed;
      result.unrouted = tiles.totals[routes.experts];
      result.out_of_range = tiles.totals[routes.experts + 1];
      *counters = result;
    });
  }
};

/// Maps each row that a rank receives to its row in the order of computation, and lists the rows of
/// each expert. Problem = source.
template <class Row>
struct arrange_rows_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  spill_routes routes;
  index_t rank;
  vector_ref<Row> rows;              ///< any number
  vector_ref<spill_segment> groups;  ///< `[experts]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int64_t>(routes.experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t source) const {
    auto* const first = memory.take<std::int64_t>(routes.experts);
    bool const is_done = routes.state->is_done != 0;
    index_t const begin = routes.rank_begin[rank];
    index_t const count = is_done ? routes.rank_begin[rank + 1] - begin : 0;
    if (source == 0) {
      list_groups(team, begin, count);
    }
    auto const earlier = team.sum(is_done ? source : 0, [this](index_t s) {
      return std::int64_t{routes.receives[rank * routes.ranks + s]};
    });
    auto const size = team.exclusive_scan(
        count,
        [=, this](index_t i) {
          return std::int64_t{routes.part_of(source, routes.segment_at(begin + i)).size()};
        },
        first);
    index_t const wanted = minimum{}(size, maximum{}(rows.extent(0) - earlier, std::int64_t{0}));
    team.for_each(wanted, [=, this](index_t i) {
      index_t const group = last_not_above(first, count, i);
      index_t const segment = routes.segment_at(begin + group);
      rows[earlier + i] = static_cast<Row>(routes.computed_row[begin + group] +
                                           routes.part_of(source, segment).begin -
                                           routes.segments[segment].begin + i - first[group]);
    });
    if (source == routes.ranks - 1) {
      index_t const used = minimum{}(rows.extent(0), earlier + size);
      team.for_each(rows.extent(0) - used, [=, this](index_t i) { rows[used + i] = -1; });
    }
  }

 private:
  template <class Team>
  PLIMSOLL_HD void list_groups(Team& team, index_t begin, index_t count) const {
    team.for_each(routes.experts, [=, this](index_t i) {
      spill_segment group{-1, -1, 0, 0};
      if (i < count) {
        group = routes.segments[routes.segment_at(begin + i)];
        group.end -= group.begin;
        group.begin = routes.computed_row[begin + i];
        group.end += group.begin;
      }
      groups[i] = group;
    });
  }
};

}}}  // namespace plimsoll::detail

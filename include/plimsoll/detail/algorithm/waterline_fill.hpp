// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `waterline::count` and `waterline::fill`: count rows, and choose the rank of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/waterline.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Ids of a batch and the ranks of their slots.
template <class Id>
struct waterline_rows {
  matrix_ref<Id const> ids;     ///< `[tokens, k]`
  std::int32_t const* rank_of;  ///< `[slots]`: -1 for a slot of no rank
  index_t slots;

  /// Returns the rank of an id, -1 if it is not a slot of any rank.
  PLIMSOLL_HD std::int32_t rank(Id id) const {
    using number = std::make_unsigned_t<Id>;
    auto const slot = static_cast<number>(id);
    return slot < static_cast<number>(slots) ? rank_of[slot] : -1;
  }
  PLIMSOLL_HD std::int32_t rank(index_t token, index_t j) const { return rank(ids(token, j)); }
  PLIMSOLL_HD bool visits(index_t token, index_t r) const {
    index_t j = 0;
    while (j < ids.extent(1) && rank(token, j) != r) {
      ++j;
    }
    return j < ids.extent(1);
  }
  PLIMSOLL_HD bool visits_any(index_t token) const {
    index_t j = 0;
    while (j < ids.extent(1) && rank(token, j) < 0) {
      ++j;
    }
    return j < ids.extent(1);
  }
};

/// Body of `waterline::count`. One launch clears the counts as a single problem; in the next,
/// problem = tile of tokens.
template <class Id>
struct waterline_count_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  waterline_rows<Id> rows;
  matrix_ref<std::int64_t> loads;  ///< `[2, ranks]`
  index_t source;
  bool every_token;  ///< also counts tokens without a valid expert
  bool clearing;

  [[nodiscard]] index_t problems() const {
    return clearing ? 1 : tile_counts::tiles_of(rows.ids.extent(0));
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(loads.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t tile) const {
    index_t const n = loads.extent(1);
    if (clearing) {
      team.for_each(2 * n, [=, this](index_t i) { loads(i / n, i % n) = 0; });
      return;
    }
    auto* const seen = arrays.take<std::int32_t>(n);
    index_t const k = rows.ids.extent(1);
    index_t const begin = tile * tile_counts::tile;
    index_t const tokens = minimum{}(rows.ids.extent(0) - begin, tile_counts::tile);
    team.histogram(
        tokens * k, [=, this](index_t i) { return rows.rank(element(rows.ids, begin * k + i)); },
        seen, n);
    index_t const own = team.count(
        tokens, [=, this](index_t i) { return every_token || rows.visits_any(begin + i); });
    team.for_each(n, [=, this](index_t r) {
      if (seen[r] > 0) {
        add_to(&loads(0, r), seen[r]);
      }
    });
    team.single([=, this] { add_to(&loads(1, source), own); });
  }
};

/// Counts of the proposals of even and of odd rounds, which are written while others read those of
/// the round before. Columns: ranks, then one for rows that do not propose.
struct proposal_counts {
  tile_counts even_rounds;
  std::int32_t* odd_rounds;

  PLIMSOLL_HD static proposal_counts in(scratch& memory, index_t tokens, index_t columns) {
    tile_counts const even_rounds = tile_counts::in(memory, tokens, columns);
    return {even_rounds, tile_counts::in(memory, tokens, columns).counts};
  }
};

/// Arrays of `waterline_fill_body::settle`.
struct settle_arrays {
  std::int32_t* limit;   ///< `[ranks]`: rows that the rank accepts
  std::int64_t* before;  ///< `[ranks]`: sum over lower ranks of the rows that they could accept

  PLIMSOLL_HD static settle_arrays in(scratch& memory, index_t ranks) {
    settle_arrays result{};
    memory.take(result.limit, ranks);
    memory.take(result.before, ranks);
    return result;
  }
};

/// Body of `waterline::fill`, problem = tile of tokens. The opening round writes rows and draws the
/// ranks of sampled ones. With the surplus method, rows of the source also propose to ranks. Once
/// the proposals of all tiles are summed, each rank accepts the first of its rows, as many as it
/// has slack for, and the other rows propose in the next round. In the third and last round, rows
/// that may go to any rank go to any slack that is left.
///
/// Rounds are phases (detail/phases.hpp). In one launch, every tile sums all proposals by itself,
/// which saves a barrier per round; else the sum is a phase between two rounds, problem = column.
///
/// Rows of a source other than the planned one stay at home, since its share of the slack is not
/// known; the report says so.
template <class Id, class OutId = Id>
struct waterline_fill_body {
  using device_team = block<512>;
  static constexpr bool is_streaming = true;
  static constexpr int most_rounds = waterline_state::most_rounds;

  rank_levels ranks;
  waterline_rules rules;
  waterline_memory memory;
  index_t source;
  tile_counts tiles;  ///< tiles of tokens; columns: ranks, then one for rows that do not propose
  std::int32_t* odd_counts;  ///< counts of odd rounds, written while others read even ones
  std::int32_t* proposal;    ///< `[tokens]`
  waterline_rows<Id> rows;
  std::int32_t const* shared_slot;  ///< `[ranks]`
  float shared_weight;
  matrix_ref<float const> weights;     ///< `[tokens, k]` or empty
  matrix_ref<OutId> out_ids;           ///< `[tokens, k + 1]` or empty
  matrix_ref<float> out_weights;       ///< the same
  vector_ref<std::int32_t> out_ranks;  ///< `[tokens]` or empty
  vector_ref<waterline_report> report;
  std::uint64_t seed;
  std::uint64_t subsequence;
  int rounds;  ///< after the opening one
  bool one_launch;

  [[nodiscard]] bool fits_one_launch() const { return tiles.are_few(); }
  [[nodiscard]] int phases() const { return one_launch ? rounds + 1 : 2 * rounds + 1; }
  [[nodiscard]] PLIMSOLL_HD index_t problems(int phase) const {
    return adds_up(phase) ? tiles.columns : tiles.problems();
  }
  [[nodiscard]] std::size_t scratch_bytes(int phase) const {
    if (adds_up(phase)) {
      return 0;
    }
    tile_counts const counted = counted_in(0);
    return scratch_bytes_of<std::int32_t>(ranks.size()) +
           bytes_taken_by<settle_arrays>(ranks.size()) + counted.scratch_bytes<device_team>();
  }
  /// If no surplus row is left before a round, none is left after it.
  [[nodiscard]] PLIMSOLL_HD bool is_over(int round) const { return unmet_before(round) == 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t problem, int phase) const {
    int const round = one_launch ? phase : phase / 2;
    if (!adds_up(phase)) {
      fill(team, arrays, problem, round);
    } else if (is_planned() && memory.state->unmet[round] > 0) {
      counted_in(round).scan(team, problem);
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD bool adds_up(int phase) const { return !one_launch && phase % 2 == 1; }
  /// Counts of the proposals of a round.
  [[nodiscard]] PLIMSOLL_HD tile_counts counted_in(int round) const {
    tile_counts result = tiles;
    result.counts = round % 2 == 0 ? tiles.counts : odd_counts;
    result.by_tile = one_launch;
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD bool is_planned() const {
    return memory.state->is_planned != 0 && memory.state->source == source;
  }
  [[nodiscard]] PLIMSOLL_HD std::int64_t unmet_before(int round) const {
    return is_planned() ? memory.state->unmet[round == 0 ? 0 : round - 1] : 0;
  }

  template <class Team>
  PLIMSOLL_HD void fill(Team& team, scratch arrays, index_t tile, int round) const {
    std::int64_t unmet = unmet_before(round);
    if (round == 0) {
      open(team, tile, unmet > 0 ? memory.room : nullptr);
    } else if (unmet == 0) {
      return;
    } else {
      unmet -= settle(team, arrays, tile, round, unmet);
    }
    if (round < rounds && unmet > 0) {
      counted_in(round).count(team, arrays, tile,
                              [=, this](index_t token) { return column(token, round); });
    }
  }

  // Values of `proposal` that are not the rank a row proposes to.
  static constexpr std::int32_t at_home = -1;
  static constexpr std::int32_t no_row = -2;
  static constexpr std::int32_t moved_along = -3;  ///< to a rank that its token visits
  static constexpr std::int32_t moved_alone = -4;  ///< to another rank

  // Counts of a tile, packed into one number: ids of -1, other ids without a rank, and rows.
  static constexpr int width = 20;
  static constexpr std::int64_t unrouted = 1;
  static constexpr std::int64_t stray = std::int64_t{1} << width;
  static constexpr std::int64_t row = stray << width;

  /// First round of a tile: writes the rows that stay and lets the others propose to a rank.
  /// `room`: slack by which rows propose, or null if they do not.
  template <class Team>
  PLIMSOLL_HD void open(Team& team, index_t tile, std::int32_t const* room) const {
    index_t const begin = tiles.first(tile);
    index_t const tokens = tiles.size(tile);
    std::int64_t const seen =
        room == nullptr
            ? team.sum(tokens, [=, this](index_t i) { return open_row<false>(begin + i, room); })
            : team.sum(tokens, [=, this](index_t i) { return open_row<true>(begin + i, room); });
    team.single([=, this] {
      add_to(&report[0].rows, seen / row);
      add_to(&report[0].without_expert, tokens - seen / row);
      add_to(&report[0].unrouted, seen % stray);
      add_to(&report[0].out_of_range, seen % row / stray);
      if (tile == 0 && !is_planned() && !report[0].refused) {
        index_t const planned = memory.state->is_planned != 0 ? memory.state->source : -1;
        fault& refused = report[0].refused;
        refused.kind = fault_kind::source;
        refused.where = planned;
        refused.got = static_cast<double>(source);
      }
    });
    if (rules.sampled) {
      index_t const along = count(team, tile, moved_along);
      index_t const alone = count_alone(team, tile);
      team.single([=, this] { add_to(&report[0].moved, along + alone); });
    }
  }
  template <class Team>
  PLIMSOLL_HD index_t count(Team& team, index_t tile, std::int32_t what) const {
    std::int32_t const* const first = proposal + tiles.first(tile);
    return team.count(tiles.size(tile), [=](index_t i) { return first[i] == what; });
  }
  template <class Team>
  PLIMSOLL_HD index_t count_alone(Team& team, index_t tile) const {
    index_t const alone = count(team, tile, moved_alone);
    team.single([=, this] { add_to(&report[0].new_destinations, alone); });
    return alone;
  }

  /// Writes the ids and weights of a token, and sends its row home or to the rank that it draws.
  template <bool Proposes>
  PLIMSOLL_HD std::int64_t open_row(index_t token, std::int32_t const* room) const {
    auto const begin = [token](auto const& matrix) {
      return matrix.data == nullptr ? nullptr : matrix.data + token * matrix.stride(0);
    };
    auto const step = [](auto const& matrix) { return matrix.stride(1); };
    Id const* const id = begin(rows.ids);
    OutId* const out_id = begin(out_ids);
    float const* const weight = begin(weights);
    float* const out_weight = begin(out_weights);
    index_t const k = rows.ids.extent(1);
    std::int64_t seen = 0;
    std::int64_t room_sum = 0;
    for (index_t j = 0; j < k; ++j) {
      Id const slot = id[j * step(rows.ids)];
      std::int32_t const r = rows.rank(slot);
      if (r >= 0) {
        seen |= row;
        room_sum += Proposes ? room[r] : 0;
      } else {
        seen += slot == -1 ? unrouted : stray;
      }
      if (out_id != nullptr) {
        out_id[j * step(out_ids)] = r < 0 ? OutId{-1} : static_cast<OutId>(slot + r);
      }
    }
    for (index_t j = 0; j < k && out_weight != nullptr; ++j) {
      out_weight[j * step(out_weights)] = weight[j * step(weights)];
    }
    for (index_t j = 0; j < k && out_weight != nullptr && seen != row; ++j) {
      if (rows.rank(token, j) < 0) {
        out_weight[j * step(out_weights)] = 0;
      }
    }
    waterline_state const& state = *memory.state;
    auto const home = static_cast<std::int32_t>(source);
    if (seen < row) {
      proposal[token] = no_row;
      send(token, -1);
    } else if (rules.sampled && is_planned() && state.at_home == 0) {
      std::int32_t const r = draw(token, state);
      proposal[token] = r == home                                      ? at_home
                        : state.any_rank == 0 || rows.visits(token, r) ? moved_along
                                                                       : moved_alone;
      send(token, r);
    } else {
      proposal[token] = choose(token, 0, room_sum, room);
      send(token, home);
    }
    return seen;
  }
  PLIMSOLL_HD void send(index_t token, std::int32_t r) const {
    index_t const k = rows.ids.extent(1);
    if (out_ids.data != nullptr) {
      out_ids(token, k) = r < 0 ? OutId{-1} : static_cast<OutId>(shared_slot[r]);
    }
    if (out_weights.data != nullptr) {
      out_weights(token, k) = r < 0 ? 0.0f : shared_weight;
    }
    if (out_ranks.data != nullptr) {
      out_ranks[token] = r;
    }
  }

  /// Returns the next rank after `after` to which a sampled row may go, or the number of ranks.
  PLIMSOLL_HD index_t candidate(index_t token, index_t after, waterline_state const& state) const {
    if (state.any_rank != 0) {
      return after + 1;
    }
    index_t next = source > after ? source : ranks.size();
    for (index_t j = 0; j < rows.ids.extent(1); ++j) {
      index_t const r = rows.rank(token, j);
      next = r > after && r < next ? r : next;
    }
    return next;
  }

  PLIMSOLL_HD std::int32_t draw(index_t token, waterline_state const& state) const {
    index_t const n = ranks.size();
    std::int64_t total = state.any_rank != 0 ? state.drawn_from : 0;
    if (state.any_rank == 0) {
      for (index_t r = candidate(token, -1, state); r < n; r = candidate(token, r, state)) {
        total += memory.weight[r];
      }
    }
    if (total == 0) {
      return lightest(token, state);
    }
    std::int64_t const at = position(token, total);
    if (state.any_rank != 0) {
      // Ranks without weight have empty intervals, so they are never found.
      return static_cast<std::int32_t>(last_not_above(memory.before, n, at));
    }
    index_t r = candidate(token, -1, state);
    for (std::int64_t left = at - memory.weight[r]; left >= 0; left -= memory.weight[r]) {
      r = candidate(token, r, state);
    }
    return static_cast<std::int32_t>(r);
  }

  /// Returns a pseudo-random number in [0, total).
  PLIMSOLL_HD std::int64_t position(index_t token, std::int64_t total) const {
    auto const low = static_cast<std::uint32_t>(token);
    auto const from = static_cast<std::uint32_t>(source);
    if (rules.literal) {
      std::uint32_t const hash = (low ^ from * 0x9E3779B9u) * 1664525u + 1013904223u;
      return hash % total;
    }
    std::uint64_t const bits = random::bits(seed, subsequence, std::uint64_t{from} << 32 | low);
    return static_cast<std::int64_t>(multiply_high(bits, static_cast<std::uint64_t>(total)));
  }

  /// Chooses a rank if no candidate has slack: the source, unless another is clearly lighter.
  PLIMSOLL_HD std::int32_t lightest(index_t token, waterline_state const& state) const {
    auto const height = [this](index_t r) {
      auto const load = static_cast<double>(memory.load[r]);
      return ranks.speed().equal_speeds ? load : divide(load, ranks.speeds[r]);
    };
    double const mine = rules.literal ? 11.0 : rules.margin;
    double const best_so_far = rules.literal ? 10.0 : 1.0;
    index_t best = source;
    for (index_t r = candidate(token, -1, state); r < ranks.size();
         r = candidate(token, r, state)) {
      if (ranks.lives(r) && multiply(height(r), mine) < multiply(height(best), best_so_far)) {
        best = r;
      }
    }
    return static_cast<std::int32_t>(best);
  }

  [[nodiscard]] PLIMSOLL_HD bool goes_anywhere(int in_round) const {
    return rules.any_rank && in_round == most_rounds - 1;
  }
  /// Returns the column in which a row's proposal counts.
  PLIMSOLL_HD std::int32_t column(index_t token, int in_round) const {
    auto const none = static_cast<std::int32_t>(ranks.size());
    std::int32_t const r = proposal[token];
    return goes_anywhere(in_round) ? (r == at_home ? 0 : none) : (r >= 0 ? r : none);
  }

  /// Returns the rank to which a row that is still at home proposes, one that its token visits.
  PLIMSOLL_HD std::int32_t propose(index_t token, int round, std::int32_t const* room) const {
    std::int64_t room_sum = 0;
    for (index_t j = 0; j < rows.ids.extent(1); ++j) {
      room_sum += room_for(token, j, room);
    }
    return choose(token, round, room_sum, room);
  }
  /// Chooses one of the ranks that the token visits, in proportion to `room`; `room_sum` is the sum
  /// of `room` over the token's ids.
  PLIMSOLL_HD std::int32_t choose(index_t token, int round, std::int64_t room_sum,
                                  std::int32_t const* room) const {
    if (room_sum == 0) {
      return at_home;
    }
    // Multiples of the golden ratio are spread evenly over any run of consecutive tokens.
    auto const turn = static_cast<std::uint32_t>(token * most_rounds + round) * 0x9E3779B9u;
    std::int64_t left = static_cast<std::int64_t>(turn >> 8) * room_sum >> 24;
    // No early exit: its branch would not be predictable.
    index_t chosen = 0;
    for (index_t j = 0; j < rows.ids.extent(1); ++j) {
      left -= room_for(token, j, room);
      chosen += left >= 0;
    }
    return rows.rank(token, chosen);
  }
  PLIMSOLL_HD std::int64_t room_for(index_t token, index_t j, std::int32_t const* room) const {
    std::int32_t const r = rows.rank(token, j);
    return r < 0 ? 0 : room[r];
  }

  /// Decides on the proposals of the previous round, and lets rows that are still at home propose
  /// again. Returns how many rows of all tiles move.
  template <class Team>
  PLIMSOLL_HD std::int64_t settle(Team& team, scratch arrays, index_t tile, int round,
                                  std::int64_t unmet) const {
    index_t const n = ranks.size();
    auto* const left = arrays.take<std::int32_t>(n);
    tile_counts const proposed = counted_in(round - 1);
    tile_counts::sums const counts = proposed.add_up(team, arrays, tile);
    bool const anywhere = goes_anywhere(round - 1);
    std::int32_t const* const room = memory.room_in(round - 1, n);
    auto const in = settle_arrays::in(arrays, n);
    auto const wanted = [=](index_t r) {
      return std::int64_t{anywhere ? room[r] : minimum{}(room[r], counts.totals[r])};
    };
    std::int64_t const room_sum = team.exclusive_scan(n, wanted, in.before);
    std::int64_t const can_accept = anywhere ? counts.totals[0] : room_sum;
    std::int64_t const moved = minimum{}(minimum{}(room_sum, can_accept), unmet);
    team.for_each(n, [=, this](index_t r) {
      std::int64_t const taken =
          minimum{}(maximum{}(moved - in.before[r], std::int64_t{0}), wanted(r));
      in.limit[r] = static_cast<std::int32_t>(taken);
      left[r] = room[r] - in.limit[r] + (round == 1 ? memory.more[r] : 0);
      if (tile == 0 && round < rounds) {
        memory.room_in(round, n)[r] = left[r];
      }
      if (tile == 0 && r == 0) {
        memory.state->unmet[round] = unmet - moved;
        report[0].moved += moved;
        if (round == rounds) {
          report[0].unplaced = unmet - moved;
        }
      }
    });
    bool const proposes = round < rounds && unmet > moved && !goes_anywhere(round);
    proposed.visit<device_team>(
        team, arrays, tile, counts, [=, this](index_t token) { return column(token, round - 1); },
        [=, this](index_t token, std::int32_t column, std::int32_t earlier) {
          if (column < n && earlier < (anywhere ? moved : in.limit[column])) {
            index_t const r = anywhere ? last_not_above(in.before, n, earlier) : column;
            proposal[token] = anywhere && !rows.visits(token, r) ? moved_alone : moved_along;
            send(token, static_cast<std::int32_t>(r));
          } else if (column < n || proposal[token] == at_home) {
            proposal[token] = proposes ? propose(token, round, left) : at_home;
          }
        });
    if (anywhere) {
      count_alone(team, tile);
    }
    return moved;
  }
};

}}}  // namespace plimsoll::detail

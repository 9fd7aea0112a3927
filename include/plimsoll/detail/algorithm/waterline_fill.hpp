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

  /// Ranks of the first ids of a token; -1 also where it has no more ids. All are read at once.
  static constexpr index_t at_once = 8;
  struct first_ranks {
    std::int32_t rank[at_once];
  };
  PLIMSOLL_HD first_ranks first_ranks_of(index_t token) const {
    Id id[at_once];
    Id const* const row = ids.data + token * ids.stride(0);
    for (index_t j = 0; j < at_once; ++j) {
      id[j] = j < ids.extent(1) ? row[j * ids.stride(1)] : Id{-1};
    }
    first_ranks result;
    for (index_t j = 0; j < at_once; ++j) {
      result.rank[j] = rank(id[j]);
    }
    return result;
  }
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

/// Tiles of `waterline_fill_body`: smaller ones than those of other bodies occupy more of a GPU.
using fill_tiles = tiled_counts<match_tile / 2>;

/// Counts of the proposals of even and of odd rounds, which are written while others read those of
/// the round before. Columns: ranks, then one for rows that do not propose.
struct proposal_counts {
  fill_tiles even_rounds;
  std::int32_t* odd_rounds;

  PLIMSOLL_HD static proposal_counts in(scratch& memory, index_t tokens, index_t columns) {
    fill_tiles const even_rounds = fill_tiles::in(memory, tokens, columns);
    return {even_rounds, fill_tiles::in(memory, tokens, columns).counts};
  }
};

/// Arrays of a tile of `waterline_fill_body`.
struct fill_arrays {
  scratch_ref memory;
  index_t ranks;

  /// Rank to which `finish` sends the row
  std::int32_t* destination = memory.take(fill_tiles::tile);
  std::int32_t* proposal = memory.take(fill_tiles::tile);  ///< as the body's, not yet numbered
  /// Ranks of the first ids of a token. The stride avoids bank conflicts.
  static constexpr index_t first_ranks = 8;
  static constexpr index_t stride = first_ranks + 1;
  std::int32_t* rank = memory.take(fill_tiles::tile * stride);
  std::int64_t* unmet = memory.take(1);       ///< surplus rows before the round
  std::int64_t* moved = memory.take(1);       ///< rows that move in the round
  std::int32_t* left = memory.take(ranks);    ///< slack before the round, then after it
  std::int32_t* more = memory.take(ranks);    ///< slack that is added after the round
  std::int32_t* limit = memory.take(ranks);   ///< rows that the rank accepts
  std::int64_t* before = memory.take(ranks);  ///< sum of what lower ranks could accept
};

/// Body of `waterline::fill`, problem = tile of tokens. In the opening round, rows of the source
/// propose to ranks with the surplus method, and sampled ones draw their ranks. Once the proposals
/// of all tiles are summed, each rank accepts the first of its rows, as many as it has slack for,
/// and the other rows propose in the next round. In the third and last round, rows that may go to
/// any rank go to any slack that is left.
///
/// Rounds are phases (detail/phases.hpp). In one launch, every tile sums all proposals by itself,
/// which saves a barrier per round; else the sum is a phase between two rounds, problem = column.
/// Rows are written by `finish`, while other tiles may still propose.
///
/// Rows of a source other than the planned one stay at home, since its share of the slack is not
/// known; the report says so.
template <class Id, class OutId = Id>
struct waterline_fill_body {
  using device_team = block<256>;
  static constexpr bool is_streaming = true;
  static constexpr int most_rounds = waterline_state::most_rounds;

  rank_levels ranks;
  waterline_rules rules;
  waterline_memory memory;
  index_t source;
  fill_tiles tiles;  ///< tiles of tokens; columns: ranks, then one for rows that do not propose
  std::int32_t* odd_counts;  ///< counts of odd rounds, written while others read even ones
  /// `[tokens]`: the rank times the size of a tile, plus the number of earlier rows of the tile
  /// that propose to it; or one of the values below
  std::int32_t* proposal;
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
  bool keeps_scratch;

  [[nodiscard]] bool fits_one_launch() const { return tiles.are_few(); }
  [[nodiscard]] int phases() const { return one_launch ? rounds + 1 : 2 * rounds + 1; }
  [[nodiscard]] PLIMSOLL_HD index_t problems(int phase) const {
    return adds_up(phase) ? tiles.columns : tiles.problems();
  }
  [[nodiscard]] std::size_t scratch_bytes(int phase) const {
    if (adds_up(phase)) {
      return 0;
    }
    return bytes_taken_by<fill_arrays>(ranks.size()) + tiles.scratch_bytes<device_team>();
  }
  /// If no surplus row is left before a round, none is left after it.
  [[nodiscard]] PLIMSOLL_HD bool is_over(int round) const { return unmet_before(round) == 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch arrays, index_t problem, int phase) const {
    int const round = round_of(phase);
    if (adds_up(phase)) {
      if (unmet_before(round + 1) > 0) {
        counted_in(round).scan(team, problem);
      }
    } else if (round == 0 || one_launch || unmet_before(round) > 0) {
      fill_arrays const in{arrays, ranks.size()};
      bool const goes_on =
          round == 0 ? open(team, in, problem) : settle(team, arrays, in, problem, round);
      if (goes_on) {
        publish(team, arrays, in, problem, round);
      }
    }
  }

  /// Sends the rows of a tile whose ranks are known, and reports.
  template <class Team>
  PLIMSOLL_HD void finish(Team& team, scratch arrays, index_t tile, int phase) const {
    int const round = round_of(phase);
    if (adds_up(phase) || (round > 0 && unmet_before(round) == 0)) {
      return;
    }
    fill_arrays const in{arrays, ranks.size()};
    index_t const begin = tiles.first(tile);
    index_t const tokens = tiles.size(tile);
    if (round == 0) {
      if constexpr (!Team::is_serial) {
        write(team, begin, tokens);
      }
      report_opening(team, in, tile);
    }
    // A serial team sends a row as soon as it knows the rank, except in the opening round.
    team.for_each(Team::is_serial && round > 0 ? 0 : tokens, [=, this](index_t i) {
      if (in.destination[i] != unsent) {
        send(begin + i, in.destination[i]);
      }
    });
    if (tile == 0 && round > 0) {
      team.single([=, this] {
        report[0].moved += *in.moved;
        report[0].unplaced = round == rounds ? *in.unmet - *in.moved : 0;
      });
    }
    if (rules.sampled || goes_anywhere(round - 1)) {
      index_t const alone = count(team, in.proposal, tokens, moved_alone);
      index_t const along = rules.sampled ? count(team, in.proposal, tokens, moved_along) : 0;
      team.single([=, this] {
        add_to(&report[0].new_destinations, alone);
        if (rules.sampled) {
          add_to(&report[0].moved, along + alone);
        }
      });
    }
  }

 private:
  [[nodiscard]] PLIMSOLL_HD bool adds_up(int phase) const { return !one_launch && phase % 2 == 1; }
  [[nodiscard]] PLIMSOLL_HD int round_of(int phase) const { return one_launch ? phase : phase / 2; }
  /// Counts of the proposals of a round.
  [[nodiscard]] PLIMSOLL_HD fill_tiles counted_in(int round) const {
    fill_tiles result = tiles;
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

  // Values of `proposal` that are not the rank a row proposes to.
  static constexpr std::int32_t at_home = -1;
  static constexpr std::int32_t no_row = -2;
  static constexpr std::int32_t moved_along = -3;  ///< to a rank that its token visits
  static constexpr std::int32_t moved_alone = -4;  ///< to another rank

  // Values of a destination that are not the rank to which a row goes.
  static constexpr std::int32_t nowhere = -1;  ///< the token has no row
  static constexpr std::int32_t unsent = -2;   ///< the row was sent before

  /// First round of a tile: rows go home or to the rank that they draw. Returns whether they
  /// propose to ranks.
  template <class Team>
  PLIMSOLL_HD bool open(Team& team, fill_arrays const& in, index_t tile) const {
    index_t const begin = tiles.first(tile);
    index_t const tokens = tiles.size(tile);
    index_t const n = ranks.size();
    bool const proposes = Team::is_serial && unmet_before(0) > 0;
    // All reads overlap.
    team.for_each(maximum{}(n, tokens), [=, this](index_t i) {
      std::int32_t const slack = i < n ? memory.room[i] : 0;
      std::int64_t const unmet = i == 0 ? unmet_before(0) : 0;
      if (i < tokens) {
        bool has_row = false;
        if constexpr (Team::is_serial) {
          has_row = proposes ? write_row<true>(in, begin, i) : write_row<false>(in, begin, i);
        } else {
          has_row = read_ranks(in, begin, i) >= 0 || rows.visits_any(begin + i);
        }
        in.proposal[i] = has_row ? at_home : no_row;
        in.destination[i] = has_row ? static_cast<std::int32_t>(source) : nowhere;
      }
      if (i < n) {
        in.left[i] = slack;
      }
      if (i == 0) {
        *in.unmet = unmet;
      }
    });
    if (rules.sampled && is_planned() && memory.state->at_home == 0) {
      team.for_each(tokens, [=, this](index_t i) {
        if (in.proposal[i] == at_home) {
          std::int32_t const r = draw(begin + i, *memory.state);
          bool const is_along = memory.state->any_rank == 0 || rows.visits(begin + i, r);
          in.proposal[i] = r == source ? at_home : is_along ? moved_along : moved_alone;
          in.destination[i] = r;
        }
      });
    }
    return *in.unmet > 0;
  }

  /// Reads the ranks of a token's first ids, and returns the highest.
  PLIMSOLL_HD std::int32_t read_ranks(fill_arrays const& in, index_t begin, index_t i) const {
    auto const first = rows.first_ranks_of(begin + i);
    std::int32_t highest_rank = -1;
    for (index_t j = 0; j < rows.at_once; ++j) {
      highest_rank = maximum{}(highest_rank, first.rank[j]);
      in.rank[i * fill_arrays::stride + j] = first.rank[j];
    }
    return highest_rank;
  }

  template <class Team>
  PLIMSOLL_HD static index_t count(Team& team, std::int32_t const* proposed, index_t tokens,
                                   std::int32_t what) {
    return team.count(tokens, [=](index_t i) { return proposed[i] == what; });
  }
  template <class Team>
  PLIMSOLL_HD void report_opening(Team& team, fill_arrays const& in, index_t tile) const {
    index_t const tokens = tiles.size(tile);
    index_t const without = count(team, in.proposal, tokens, no_row);
    team.single([=, this] {
      add_to(&report[0].rows, tokens - without);
      add_to(&report[0].without_expert, without);
      if (tile == 0 && !is_planned() && !report[0].refused) {
        index_t const planned = memory.state->is_planned != 0 ? memory.state->source : -1;
        fault& refused = report[0].refused;
        refused.kind = fault_kind::source;
        refused.where = planned;
        refused.got = static_cast<double>(source);
      }
    });
  }

  // Counts of ids, packed into one number: ids of -1 and other ids without a rank.
  static constexpr std::int64_t unrouted = 1;
  static constexpr std::int64_t stray = std::int64_t{1} << 32;

  /// Writes ids and weights of tokens, except those of the shared expert, and reports the ids that
  /// have no rank.
  template <class Team>
  PLIMSOLL_HD void write(Team& team, index_t begin, index_t tokens) const {
    index_t const k = rows.ids.extent(1);
    // Neighbors write neighboring ids, and a thread reads several before it writes any.
    constexpr std::uint32_t each = 8;
    auto const width = static_cast<std::uint32_t>(k);
    std::uint32_t const reciprocal = ~std::uint32_t{0} / width + 1;  // exact up to 2^32 / k
    auto const all = static_cast<std::uint32_t>(tokens * k);
    std::uint32_t const step = (all + each - 1) / each;
    std::int64_t const seen = team.sum(step, [=, this](index_t i) {
      Id id[each];
      float weight_of[each];
      std::int32_t r[each];
      index_t token[each];
      index_t column[each];
      for (std::uint32_t u = 0; u < each; ++u) {
        auto const cell = static_cast<std::uint32_t>(i) + u * step;
        auto const row = width == 1
                             ? cell
                             : static_cast<std::uint32_t>((std::uint64_t{cell} * reciprocal) >> 32);
        token[u] = cell < all ? begin + row : -1;
        column[u] = cell - row * width;
        id[u] = cell < all ? rows.ids(token[u], column[u]) : Id{0};
        weight_of[u] = cell < all ? weight(token[u], column[u]) : 0.0f;
      }
      std::int64_t of_ids = 0;
      for (std::uint32_t u = 0; u < each; ++u) {
        r[u] = rows.rank(id[u]);
        of_ids += token[u] < 0 ? 0 : without_rank(id[u], r[u]);
      }
      for (std::uint32_t u = 0; u < each; ++u) {
        if (token[u] >= 0) {
          write(token[u], column[u], id[u], r[u], weight_of[u]);
        }
      }
      return of_ids;
    });
    team.single([=, this] {
      add_to(&report[0].unrouted, seen % stray);
      add_to(&report[0].out_of_range, seen / stray);
    });
  }
  /// Does the same for one token, and reads the ranks of its first ids. Returns whether it has a
  /// row.
  template <bool Proposes>
  PLIMSOLL_HD bool write_row(fill_arrays const& in, index_t begin, index_t i) const {
    index_t const token = begin + i;
    auto const row_of = [token](auto const& matrix) {
      return matrix.data == nullptr ? nullptr : matrix.data + token * matrix.stride(0);
    };
    auto const step = [](auto const& matrix) { return matrix.stride(1); };
    Id const* const id = row_of(rows.ids);
    OutId* const out_id = row_of(out_ids);
    float const* const of_id = row_of(weights);
    float* const out_weight = row_of(out_weights);
    std::int32_t* const rank = in.rank + i * fill_arrays::stride;
    index_t const k = rows.ids.extent(1);
    for (index_t j = k; Proposes && j < rows.at_once; ++j) {
      rank[j] = -1;
    }
    bool has_row = false;
    std::int64_t seen = 0;
    for (index_t j = 0; j < k; ++j) {
      Id const slot = id[j * step(rows.ids)];
      std::int32_t const r = rows.rank(slot);
      has_row = has_row || r >= 0;
      seen += without_rank(slot, r);
      if (Proposes && j < rows.at_once) {
        rank[j] = r;
      }
      if (out_id != nullptr) {
        out_id[j * step(out_ids)] = r < 0 ? OutId{-1} : static_cast<OutId>(slot + r);
      }
    }
    for (index_t j = 0; j < k && out_weight != nullptr; ++j) {
      out_weight[j * step(out_weights)] = of_id[j * step(weights)];
    }
    for (index_t j = 0; j < k && out_weight != nullptr && seen != 0; ++j) {
      if (rows.rank(token, j) < 0) {
        out_weight[j * step(out_weights)] = 0;
      }
    }
    if (seen != 0) {
      add_to(&report[0].unrouted, seen % stray);
      add_to(&report[0].out_of_range, seen / stray);
    }
    return has_row;
  }
  PLIMSOLL_HD static std::int64_t without_rank(Id id, std::int32_t r) {
    return r >= 0 ? 0 : id == -1 ? unrouted : stray;
  }
  PLIMSOLL_HD float weight(index_t token, index_t j) const {
    return out_weights.data == nullptr ? 0.0f : weights(token, j);
  }
  PLIMSOLL_HD void write(index_t token, index_t j, Id id, std::int32_t r, float weight) const {
    if (out_ids.data != nullptr) {
      out_ids(token, j) = r < 0 ? OutId{-1} : static_cast<OutId>(id + r);
    }
    if (out_weights.data != nullptr) {
      out_weights(token, j) = r < 0 ? 0.0f : weight;
    }
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
    std::int64_t const place = position(token, total);
    if (state.any_rank != 0) {
      // Ranks without weight have empty intervals, so they are never found.
      return static_cast<std::int32_t>(last_not_above(memory.before, n, place));
    }
    index_t r = candidate(token, -1, state);
    for (std::int64_t left = place - memory.weight[r]; left >= 0; left -= memory.weight[r]) {
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
  /// Lets rows that are still at home propose, counts the proposals to each rank, and numbers them.
  template <class Team>
  PLIMSOLL_HD void publish(Team& team, scratch arrays, fill_arrays const& in, index_t tile,
                           int round) const {
    constexpr auto width = static_cast<std::int32_t>(fill_tiles::tile);
    auto const none = static_cast<std::int32_t>(ranks.size());
    index_t const begin = tiles.first(tile);
    bool const anywhere = goes_anywhere(round);
    counted_in(round).template count<device_team>(
        team, arrays, tile,
        [=, this](index_t i) {
          std::int32_t proposed = in.proposal[i];
          if (anywhere) {
            return proposed == at_home ? 0 : none;
          }
          if (proposed == at_home) {
            proposed = propose(in, begin, i, round);
            in.proposal[i] = proposed;
          }
          return proposed >= 0 ? proposed : none;
        },
        [=, this](index_t i, std::int32_t column, std::int32_t number) {
          proposal[begin + i] = column < none ? column * width + number : in.proposal[i];
        });
  }

  /// Returns the rank to which a row that is still at home proposes: one of those that its token
  /// visits, in proportion to the slack that they have left; `at_home` if they have none.
  PLIMSOLL_HD std::int32_t propose(fill_arrays const& in, index_t begin, index_t i,
                                   int round) const {
    constexpr index_t at_once = waterline_rows<Id>::at_once;
    index_t const token = begin + i;
    index_t const k = rows.ids.extent(1);
    auto const room_of = [in](std::int32_t r) { return std::int64_t{r < 0 ? 0 : in.left[r]}; };
    std::int32_t const* const first = in.rank + i * fill_arrays::stride;
    std::int64_t room_sum = 0;
    std::int64_t room[static_cast<std::size_t>(at_once)];
    for (index_t j = 0; j < at_once; ++j) {
      room[j] = room_of(first[j]);
      room_sum += room[j];
    }
    PLIMSOLL_NO_UNROLL
    for (index_t j = at_once; j < k; ++j) {
      room_sum += room_of(rows.rank(token, j));
    }
    if (room_sum == 0) {
      return at_home;
    }
    // Multiples of the golden ratio are spread evenly over any run of consecutive tokens.
    auto const turn = static_cast<std::uint32_t>(token * most_rounds + round) * 0x9E3779B9u;
    std::int64_t left = static_cast<std::int64_t>(turn >> 8) * room_sum >> 24;
    // No early exit: its branch would not be predictable.
    std::int32_t chosen = first[0];
    for (index_t j = 0; j < at_once; ++j) {
      left -= room[j];
      if (left >= 0 && j + 1 < at_once) {
        chosen = first[j + 1];
      }
    }
    PLIMSOLL_NO_UNROLL
    for (index_t j = at_once; j < k && left >= 0; ++j) {
      chosen = rows.rank(token, j);
      left -= room_of(chosen);
    }
    return chosen;
  }
  /// Decides on the proposals of the previous round. Returns whether rows propose again.
  template <class Team>
  PLIMSOLL_HD bool settle(Team& team, scratch arrays, fill_arrays const& in, index_t tile,
                          int round) const {
    constexpr auto width = static_cast<std::int32_t>(fill_tiles::tile);
    index_t const n = ranks.size();
    index_t const begin = tiles.first(tile);
    index_t const tokens = tiles.size(tile);
    std::int32_t const* const room = memory.room_in(round - 1, n);
    // The reads of the round overlap with those of the counts.
    auto const counts = counted_in(round - 1).add_up(
        team, arrays, tile, Team::is_serial ? n : maximum{}(n, tokens), [=, this](index_t i) {
          std::int32_t const proposed = i < tokens ? proposal[begin + i] : 0;
          std::int32_t const slack = i < n ? room[i] : 0;
          std::int32_t const more = i < n && round == 1 ? memory.more[i] : 0;
          std::int64_t const unmet = i == 0 ? memory.state->unmet[round - 1] : 0;
          return [=] {
            if (i < tokens && !Team::is_serial) {
              in.proposal[i] = proposed;
            }
            if (i < n) {
              in.left[i] = slack;
              in.more[i] = more;
            }
            if (i == 0) {
              *in.unmet = unmet;
            }
          };
        });
    if (*in.unmet == 0) {
      return false;
    }
    bool const anywhere = goes_anywhere(round - 1);
    auto const wanted = [=](index_t r) {
      return std::int64_t{anywhere ? in.left[r] : minimum{}(in.left[r], counts.totals[r])};
    };
    std::int64_t const room_sum = team.exclusive_scan(n, wanted, in.before);
    std::int64_t const unmet = *in.unmet;
    std::int64_t const can_accept = anywhere ? counts.totals[0] : room_sum;
    std::int64_t const moved = minimum{}(minimum{}(room_sum, can_accept), unmet);
    team.for_each(n, [=, this](index_t r) {
      auto const taken = static_cast<std::int32_t>(
          minimum{}(maximum{}(moved - in.before[r], std::int64_t{0}), wanted(r)));
      std::int32_t const left = in.left[r] - taken + in.more[r];
      in.limit[r] = taken;
      in.left[r] = left;
      if (tile == 0 && round < rounds) {
        memory.room_in(round, n)[r] = left;
      }
      if (tile == 0 && r == 0) {
        memory.state->unmet[round] = unmet - moved;
      }
      if (r == 0) {
        *in.moved = moved;
      }
    });
    team.for_each(tokens, [=, this](index_t i) {
      std::int32_t proposed = Team::is_serial ? proposal[begin + i] : in.proposal[i];
      std::int32_t to = unsent;
      if (proposed >= 0) {
        std::int32_t const column = proposed / width;
        std::int32_t const earlier = counts.before[column] + proposed % width;
        proposed = at_home;
        if (earlier < (anywhere ? moved : in.limit[column])) {
          to = anywhere ? static_cast<std::int32_t>(last_not_above(in.before, n, earlier)) : column;
          proposed = anywhere && !rows.visits(begin + i, to) ? moved_alone : moved_along;
        }
      }
      if (proposed == at_home && !keeps_scratch && round < rounds && unmet > moved) {
        static_cast<void>(read_ranks(in, begin, i));
      }
      in.proposal[i] = proposed;
      if constexpr (Team::is_serial) {
        if (to != unsent) {
          send(begin + i, to);
        }
      } else {
        in.destination[i] = to;
      }
    });
    return round < rounds && unmet > moved;
  }
};

}}}  // namespace plimsoll::detail

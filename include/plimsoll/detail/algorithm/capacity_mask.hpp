// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the pairs of tokens and experts to keep when experts, or pools of experts, have a
/// capacity. Each step is a launch: `count_pairs_body` counts pairs by expert (or
/// `count_chosen_body` does while `top_k` selects them); with Expert Drop, `rank_experts_body`
/// marks the experts to leave out; `gather_pairs_body` writes lists of pairs with keys;
/// `select_pairs_body` finds every pool's threshold and numbers the kept pairs; `keep_pairs_body`
/// writes the tokens' rows. If that also limits the pairs per token, `number_pairs_body` numbers
/// the pairs in one more launch. `report_pairs_body` is one problem of the last launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/top_k.hpp>
#include <plimsoll/detail/common/grouped_counts.hpp>
#include <plimsoll/detail/common/radix_select.hpp>
#include <plimsoll/detail/common/score_order.hpp>
#include <plimsoll/detail/common/tile_counts.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Capacity of an expert, in tokens.
struct capacity_rule {
  double factor;
  double const* factors;  ///< `[experts]`, or null: `factor` for all
  rounding_mode round;
  index_t least;
  index_t most;
  index_t tokens;
  index_t choices;
  index_t experts;
  bool unlimited;

  /// The capacity before rounding; 0 without tokens, whatever the factor.
  [[nodiscard]] PLIMSOLL_HD double exact(index_t e) const {
    double const own = factors == nullptr ? factor : factors[e];
    return tokens == 0 ? 0.0
                       : divide(multiply(own, static_cast<double>(tokens * choices)),
                                static_cast<double>(experts));
  }
  /// The most pairs that an expert keeps.
  [[nodiscard]] PLIMSOLL_HD index_t capacity(index_t e) const {
    return unlimited ? tokens : minimum{}(limited(e), tokens);
  }
  /// Rows of a buffer of that capacity. Engines whose buffers have one size in every batch give it
  /// by the least and the most, so a small batch does not narrow it.
  [[nodiscard]] PLIMSOLL_HD index_t width(index_t e) const {
    return unlimited ? maximum{}(tokens, least) : limited(e);
  }

 private:
  [[nodiscard]] PLIMSOLL_HD index_t limited(index_t e) const {
    double const x = exact(e);
    if (x >= static_cast<double>(most)) {
      return most;
    }
    auto const whole = static_cast<index_t>(x);
    bool const rounds_up = round == rounding_mode::up && almost(static_cast<double>(whole)) < x;
    return minimum{}(maximum{}(whole + (rounds_up ? 1 : 0), least), most);
  }
};

/// Pairs of a batch, listed expert by expert: experts in the order of their pools; for each expert
/// its top-k pairs, then its expanded candidates, both in token order. A *column* is a list of
/// pairs of one expert and kind (top-k or expanded); the last three columns hold all other ids.
struct pair_lists {
  index_t experts;
  index_t width;  ///< pairs of a token
  divisor by_width;
  index_t choices;  ///< top-k pairs of a token: its first ones
  index_t pools;
  bool by_rank;                      ///< a pool is the experts of a rank, else one expert
  std::int32_t const* positions_of;  ///< `[experts]`: position in the order of pools; null: the id
  std::int32_t const* experts_at;    ///< `[experts]`: the inverse
  std::int32_t const* pool_begins;   ///< `[pools + 1]` positions; null: spread evenly
  grouped_counts tiles;              ///< counts by column: one or two per position, then three more
  std::int32_t* first;               ///< `[columns + 1]`: start of each column's list
  std::int32_t* columns;             ///< `[pairs]`: column of each pair
  std::uint64_t* keys;               ///< `[pairs]`, in list order; 0 is never kept
  std::int32_t* listed;              ///< `[pairs]`: pairs in list order
  std::int32_t* ranks;               ///< `[pairs]`, in list order: kept pairs before this one
  std::uint8_t* kept;                ///< `[pairs]`
  std::uint8_t* left_out;            ///< `[experts]`: skipped by Expert Drop; or null
  std::int32_t* kept_choices;        ///< `[experts]`; unused with one kind
  std::int32_t* begins;              ///< `[experts]`: first row of each expert
  double* overflows;                 ///< `[pools]`: pairs above the capacity
  /// `[1]` each: pairs with a score of NaN, pairs of tokens with an invalid priority. Zero before a
  /// batch and after it.
  std::int32_t* not_numbers;
  std::int32_t* unknown_class;

  /// Takes the arrays for up to `pairs` pairs; `adding` as in `grouped_counts`.
  [[nodiscard]] PLIMSOLL_HD static pair_lists in(scratch& memory, index_t pairs, index_t experts,
                                                 index_t pools, index_t columns, bool adding) {
    pair_lists result{};
    result.tiles = grouped_counts::in(memory, pairs, columns, adding);
    memory.take(result.not_numbers, 1);
    memory.take(result.unknown_class, 1);
    memory.take(result.first, columns + 1);
    memory.take(result.columns, pairs);
    memory.take(result.listed, pairs);
    memory.take(result.ranks, pairs);
    memory.take(result.keys, pairs);
    memory.take(result.kept, pairs);
    memory.take(result.left_out, experts);
    memory.take(result.kept_choices, experts);
    memory.take(result.begins, experts);
    memory.take(result.overflows, pools);
    return result;
  }

  [[nodiscard]] PLIMSOLL_HD index_t kinds() const { return choices < width ? 2 : 1; }
  /// Returns the position in a column number, which is position * kinds + kind.
  [[nodiscard]] PLIMSOLL_HD index_t position_of(index_t column) const {
    return column >> static_cast<int>(choices < width);
  }
  [[nodiscard]] PLIMSOLL_HD bool is_choice(index_t column) const {
    return (column & static_cast<index_t>(choices < width)) == 0;
  }
  /// Number of columns of experts. Three follow: ids of -1, other invalid ids, and repeated ids.
  [[nodiscard]] PLIMSOLL_HD index_t listed_columns() const { return experts * kinds(); }
  [[nodiscard]] PLIMSOLL_HD static index_t columns_of(index_t experts, index_t kinds) {
    return experts * kinds + 3;
  }

  [[nodiscard]] PLIMSOLL_HD index_t position(index_t e) const {
    return positions_of == nullptr ? e : positions_of[e];
  }
  [[nodiscard]] PLIMSOLL_HD index_t expert_at(index_t position) const {
    return experts_at == nullptr ? position : experts_at[position];
  }
  [[nodiscard]] PLIMSOLL_HD index_t pool_begin(index_t pool) const {
    if (pool_begins != nullptr) {
      return pool_begins[pool];
    }
    return by_rank ? pool * experts / pools : pool;
  }
  /// Returns the column of a pair whose id is not repeated in its row.
  template <class Id>
  [[nodiscard]] PLIMSOLL_HD std::int32_t column_of(Id id, index_t j) const {
    return static_cast<std::int32_t>(id < 0 || id >= static_cast<Id>(experts)
                                         ? listed_columns() + (id != -1)
                                         : position(id) * kinds() +
                                               static_cast<index_t>(j >= choices));
  }
  /// Number of pairs of a column, once `gather_pairs_body` has listed them.
  [[nodiscard]] PLIMSOLL_HD std::int32_t size(index_t column) const {
    return first[column + 1] - first[column];
  }
  /// Number of top-k pairs of an expert, likewise.
  [[nodiscard]] PLIMSOLL_HD std::int32_t load(index_t e) const {
    return size(position(e) * kinds());
  }
  [[nodiscard]] PLIMSOLL_HD index_t token_of(index_t pair) const { return by_width.quotient(pair); }
  [[nodiscard]] PLIMSOLL_HD bool is_listed(index_t pair) const {
    return columns[pair] < listed_columns();
  }
};

/// Counts pairs by column. Problem = tile of pairs.
template <class Id>
struct count_pairs_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  pair_lists lists;
  matrix_ref<Id const> ids;  ///< `[tokens, width]`

  [[nodiscard]] index_t problems() const { return lists.tiles.tiles(); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    lists.tiles.count(team, problem, [this](index_t pair) {
      lists.kept[pair] = 0;
      return lists.columns[pair] = column_of(pair);
    });
  }

 private:
  PLIMSOLL_HD std::int32_t column_of(index_t pair) const {
    Id const* const position = &element(ids, pair);
    Id const id = *position;
    index_t const step = ids.stride(1);
    index_t const j = pair - lists.token_of(pair) * lists.width;
    std::int32_t const column = lists.column_of(id, j);
    if (column >= lists.listed_columns()) {
      return column;
    }
    bool again = false;
    for (index_t i = 1; i <= j; ++i) {
      again |= position[-i * step] == id;
    }
    return again ? static_cast<std::int32_t>(lists.listed_columns() + 2) : column;
  }
};

/// Counts the pairs of a token while `top_k` selects them; it never repeats an id in a row.
struct count_chosen_body {
  pair_lists lists;

  PLIMSOLL_HD void operator()(index_t token, index_t j, std::int32_t id) const {
    // In 32 bits, which a GPU multiplies by one instruction: there are fewer than 2^31 pairs.
    index_t const pair =
        static_cast<std::uint32_t>(token) * static_cast<std::uint32_t>(lists.width) +
        static_cast<std::uint32_t>(j);
    std::int32_t const column = lists.column_of(id, j);
    lists.kept[pair] = 0;
    lists.columns[pair] = column;
    lists.tiles.add(pair, column);
  }
};

/// Sums the counts of tiles if `gather_pairs_body` does not do so by itself. Problem = column.
struct scan_pairs_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  grouped_counts tiles;

  [[nodiscard]] index_t problems() const { return tiles.columns; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return tiles.scan_bytes(); }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t column) const {
    tiles.scan(team, memory, column);
  }
};

/// Marks the `left_out` experts with the fewest top-k pairs, of equal ones those with higher ids.
/// Problem = expert.
struct rank_experts_body {
  using device_team = warp;

  pair_lists lists;
  index_t left_out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t e) const {
    std::int32_t const load = load_of(e);
    index_t const lighter = team.count(lists.experts, [=, this](index_t other) {
      std::int32_t const its = load_of(other);
      return its < load || (its == load && other > e);
    });
    team.single([=, this] { lists.left_out[e] = lighter < left_out; });
  }

 private:
  [[nodiscard]] PLIMSOLL_HD std::int32_t load_of(index_t e) const {
    return lists.tiles.total(lists.position(e) * lists.kinds());
  }
};

/// Lists pairs, each with a key: the larger, the better the pair ranks. Problem = tile of pairs.
template <class Score>
struct gather_pairs_body {
  using device_team = block<256>;
  static constexpr bool is_streaming = true;

  pair_lists lists;
  matrix_ref<Score const> scores;  ///< `[tokens, width]`
  drop_policy drop_by;
  bool choices_first;
  index_t classes;
  int class_bits;
  vector_ref<std::int32_t const> priorities;  ///< `[tokens]`
  std::uint64_t seed;
  std::uint64_t subsequence;
  std::uint64_t first_token;

  [[nodiscard]] index_t problems() const { return lists.tiles.problems(); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(lists.tiles.columns) +
           scratch_bytes_of<std::int32_t>(lists.listed_columns()) +
           scratch_bytes_of<std::uint64_t>(grouped_counts::tile) +
           lists.tiles.visit_bytes<device_team>();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const columns = lists.tiles.columns;
    index_t const listed = lists.listed_columns();
    auto* const next = memory.take<std::int32_t>(columns);
    auto* const earlier = memory.take<std::int32_t>(listed);
    auto* const keys = memory.take<std::uint64_t>(grouped_counts::tile);
    // The pairs of the last columns are not listed.
    team.for_each(columns, [=, this](index_t c) {
      next[c] = 0;
      if (c < listed) {
        grouped_counts::sums const own = lists.tiles.sums_of(c, problem);
        earlier[c] = own.earlier;
        next[c] = own.all;
      }
    });
    std::int32_t const all = team.exclusive_scan(
        listed, [=](index_t c) { return next[c]; }, next);
    if (problem == 0) {
      team.for_each(columns + 1, [=, this](index_t c) {
        std::int32_t begin = c < listed ? next[c] : all;
        for (index_t other = listed; other < c; ++other) {
          begin += lists.tiles.total(other);
        }
        lists.first[c] = begin;
      });
    }
    index_t const begin = lists.tiles.first(problem);
    lists.tiles.visit<device_team>(
        team, memory, problem, next,
        [=, this](index_t pair) {
          // Both reads begin at the same time.
          std::int32_t const column = lists.columns[pair];
          float const score =
              drop_by == drop_policy::score ? static_cast<float>(element(scores, pair)) : 0.0f;
          if (column < listed) {
            keys[pair - begin] = key(pair, column, score);
          }
          return column;
        },
        [=, this](index_t pair, std::int32_t column, std::int32_t of_tile) {
          if (column < listed) {
            std::int32_t const place = of_tile + earlier[column];
            lists.listed[place] = static_cast<std::int32_t>(pair);
            lists.keys[place] = keys[pair - begin];
          }
        });
  }

 private:
  PLIMSOLL_HD std::uint64_t key(index_t pair, index_t column, float score) const {
    index_t const e = lists.expert_at(lists.position_of(column));
    std::uint64_t result = score_key(pair, e, score);
    if (priorities.data != nullptr) {
      std::int32_t c = priorities[lists.token_of(pair)];
      if (c < 0 || c >= classes) {
        increment(lists.unknown_class);
        c = 0;
      }
      result |= static_cast<std::uint64_t>(c) << 32;
    }
    if (lists.left_out != nullptr && lists.left_out[e] != 0) {
      return 0;
    }
    bool const is_first = choices_first && lists.is_choice(column);
    return result | static_cast<std::uint64_t>(is_first) << (32 + class_bits);
  }

  /// Returns the part of the key that depends on the drop policy; never 0.
  PLIMSOLL_HD std::uint32_t score_key(index_t pair, index_t e, float score) const {
    switch (drop_by) {
      case drop_policy::score: {
        std::uint32_t const result = key_of(score);
        if (result == nan_key) {
          increment(lists.not_numbers);
        }
        return result;
      }
      case drop_policy::reverse_order:
        return static_cast<std::uint32_t>(lists.token_of(pair)) + 1;
      case drop_policy::random: {
        std::uint64_t const token = first_token + static_cast<std::uint64_t>(lists.token_of(pair));
        std::uint64_t const index =
            token * static_cast<std::uint64_t>(lists.experts) + static_cast<std::uint64_t>(e);
        return static_cast<std::uint32_t>(random::bits(seed, subsequence, index) >> 32) | 1u;
      }
      default:  // drop_policy::order: ties decide
        return 1;
    }
  }
};

/// List of an expert: its top-k pairs, then its expanded candidates.
struct expert_list {
  index_t begin;
  index_t choices;
  index_t size;

  PLIMSOLL_HD expert_list(pair_lists const& lists, index_t e) {
    index_t const column = lists.position(e) * lists.kinds();
    begin = lists.first[column];
    choices = lists.size(column);
    size = lists.first[column + lists.kinds()] - begin;
  }
};

/// Numbers the kept pairs of an expert in list order and returns their number. stays(i) tells
/// whether the i-th of all listed pairs is kept; tell(pair, stays) is called for every pair of the
/// expert.
template <class Team, class Stays, class Tell>
PLIMSOLL_HD std::int32_t number_expert(Team& team, pair_lists const& lists, expert_list const& list,
                                       Stays stays, Tell tell, matrix_ref<std::int32_t> positions) {
  index_t const begin = list.begin;
  std::int32_t const* const pairs = lists.listed;
  std::int32_t* const ranks = lists.ranks + begin;
  std::int32_t const total = team.exclusive_scan(
      list.size, [=](index_t i) { return static_cast<std::int32_t>(stays(begin + i)); }, ranks);
  // Reads several pairs before it writes them: a GPU waits once for all.
  constexpr index_t at_once = Team::is_serial ? 1 : 4;
  constexpr auto length = static_cast<std::size_t>(at_once);
  index_t const size = list.size;
  index_t const step = (size + at_once - 1) / at_once;
  team.for_each(step, [=](index_t first) {
    std::int32_t pair[length];
    std::int32_t rank[length];
    std::int32_t next[length];
    for (index_t j = 0; j < at_once; ++j) {
      index_t const i = first + j * step;
      pair[j] = i < size ? pairs[begin + i] : 0;
      rank[j] = i < size ? ranks[i] : 0;
      next[j] = i + 1 < size ? ranks[i + 1] : total;
    }
    for (index_t j = 0; j < at_once; ++j) {
      if (first + j * step < size) {
        bool const is_kept = next[j] > rank[j];
        tell(pair[j], is_kept);
        if (positions.data != nullptr) {
          element(positions, pair[j]) = is_kept ? rank[j] : -1;
        }
      }
    }
  });
  return total;
}

/// Keeps the best pairs of a pool, up to the sum of its experts' capacities. Problem = pool.
struct select_pairs_body {
  using device_team = block<256>;
  static constexpr bool is_streaming = true;

  pair_lists lists;
  capacity_rule rule;
  bool numbering;  ///< numbers the kept pairs, since no limit per token follows
  vector_ref<std::int32_t> counts;
  matrix_ref<std::int32_t> positions;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<radix_arrays>();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t pool) const {
    index_t const from = lists.pool_begin(pool);
    index_t const to = lists.pool_begin(pool + 1);
    auto const capacity_at = [=, this](index_t position) {
      index_t const e = lists.expert_at(position);
      return lists.left_out != nullptr && lists.left_out[e] != 0 ? index_t{0} : rule.capacity(e);
    };
    index_t const capacity =
        lists.by_rank ? team.sum(to - from, [=](index_t i) { return capacity_at(from + i); })
                      : capacity_at(from);
    index_t const begin = lists.first[from * lists.kinds()];
    index_t const n = lists.first[to * lists.kinds()] - begin;
    std::uint64_t const* const keys = lists.keys + begin;
    std::int32_t const* const pairs = lists.listed + begin;
    std::uint64_t differing = ~std::uint64_t{0};  // bits below those that all keys share
    radix_threshold best;
    radix_threshold tie;
    // Of equal keys the lower pair ranks first: the lower token, then the earlier column.
    auto const early = [=](index_t i) {
      return std::uint64_t{0xffffffffu - static_cast<std::uint32_t>(pairs[i])};
    };
    index_t const candidates =
        lists.left_out == nullptr ? n : team.count(n, [=](index_t i) { return keys[i] != 0; });
    if (candidates > capacity && capacity > 0) {
      // Keys mostly share their first bits; then fewer digits decide.
      std::uint64_t const key = keys[0];
      int const bits = bit_width(team.reduce(
          n, [=](index_t i) { return keys[i] ^ key; }, bit_or{}, std::uint64_t{0}));
      differing = (std::uint64_t{1} << bits) - 1;
      best = radix_select(
          team, memory, n, capacity, bits, [=](index_t i) { return keys[i] & differing; },
          [](index_t) { return true; });
      if (!best.complete) {
        tie = radix_select(team, memory, n, best.taken, 32, early,
                           [=](index_t i) { return best.is_last(keys[i] & differing); });
      }
    }
    std::uint8_t* const kept = lists.kept;
    auto const stays = [=](index_t i) {
      std::uint64_t const key = keys[i] & differing;
      return capacity > 0 && keys[i] != 0 && best.has(key) &&
             (!best.is_last(key) || tie.has(early(i)));
    };
    std::int32_t* const kept_choices = lists.kept_choices;
    if (!numbering) {
      team.for_each(n, [=](index_t i) { kept[pairs[i]] = stays(i); });
      // `keep_pairs_body` counts the pairs that are left under the limit per token.
      team.for_each(to - from, [=, this](index_t i) {
        index_t const e = lists.expert_at(from + i);
        counts[e] = 0;
        kept_choices[e] = 0;
      });
      return;
    }
    for (index_t i = from; i < to; ++i) {
      index_t const e = lists.expert_at(i);
      expert_list const list(lists, e);
      std::int32_t const total = number_expert(
          team, lists, list, [=](index_t position) { return stays(position - begin); },
          [=](index_t pair, bool is_kept) { kept[pair] = is_kept; }, positions);
      team.store(&counts[e], total);
      std::int32_t const* const ranks = lists.ranks + list.begin;
      team.store(kept_choices + e, list.choices < list.size ? ranks[list.choices] : total);
    }
  }
};

/// Drops the pairs of a token above `max_selected` and writes its row. Problem = tile of tokens.
/// With that limit, also adds the kept pairs to `counts`. Clears the counts of tiles, which nothing
/// reads afterwards.
template <class Id, class Score, class KeptId = std::int32_t>
struct keep_pairs_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;
  static constexpr index_t tile = 128;

  pair_lists lists;
  matrix_ref<Id const> ids;         ///< `[tokens, width]`
  matrix_ref<Score const> scores;   ///< the same
  matrix_ref<float const> weights;  ///< the same, or null: scores
  index_t max_selected;             ///< 0: no limit
  bool choices_first;
  normalization normalize;
  std::int32_t sentinel;
  matrix_ref<KeptId> kept_ids;         ///< the same, or null
  matrix_ref<float> kept_weights;      ///< the same, or null
  matrix_ref<std::int32_t> positions;  ///< the same, or null
  vector_ref<std::int32_t> counts;     ///< `[experts]`

  [[nodiscard]] index_t problems() const { return (ids.extent(0) + tile - 1) / tile; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const first = problem * tile;
    team.for_each(minimum{}(ids.extent(0) - first, tile),
                  [=, this](index_t i) { keep(first + i); });
    if (lists.tiles.adding) {
      lists.tiles.clear(team, problem, (ids.extent(0) + tile - 1) / tile);
    }
  }

 private:
  PLIMSOLL_HD void keep(index_t token) const {
    index_t const first = token * lists.width;
    std::uint8_t* const kept = lists.kept + first;
    if (max_selected > 0) {
      cut(token, kept);
    }
    // Weights first: they may overwrite scores, as kept ids may overwrite ids.
    bool const converts = kept_weights.data != nullptr && normalize == normalization::none;
    if (kept_weights.data != nullptr && !converts) {
      write_normalized(token, kept);
    }
    constexpr index_t at_once = 8;
    index_t j = 0;
    for (; j + at_once <= lists.width; j += at_once) {
      convert<at_once>(token, j, converts);
    }
    for (; j < lists.width; ++j) {
      convert<1>(token, j, converts);
    }
  }

  /// Writes `Pairs` pairs of a token from column `begin` on. Reads everything before it writes
  /// anything: a GPU waits once for all, while reads after a write would wait for it. Outputs may
  /// be the inputs, but not at other pairs of a token.
  template <index_t Pairs>
  PLIMSOLL_HD void convert(index_t token, index_t begin, bool converts) const {
    index_t const first = token * lists.width + begin;
    constexpr auto length = static_cast<std::size_t>(Pairs);
    bool is_kept[length];
    float w[length] = {};
    KeptId id[length] = {};
    bool is_listed[length] = {};
    for (index_t i = 0; i < Pairs; ++i) {
      is_kept[i] = lists.kept[first + i] != 0;
    }
    if (converts) {
      for (index_t i = 0; i < Pairs; ++i) {
        w[i] = weight(token, begin + i);
      }
    }
    if (kept_ids.data != nullptr) {
      for (index_t i = 0; i < Pairs; ++i) {
        id[i] = static_cast<KeptId>(ids(token, begin + i));
      }
    }
    if (positions.data != nullptr) {
      for (index_t i = 0; i < Pairs; ++i) {
        is_listed[i] = lists.is_listed(first + i);
      }
    }
    if (converts) {
      for (index_t i = 0; i < Pairs; ++i) {
        kept_weights(token, begin + i) = is_kept[i] ? w[i] : 0.0f;
      }
    }
    if (kept_ids.data != nullptr) {
      for (index_t i = 0; i < Pairs; ++i) {
        kept_ids(token, begin + i) = is_kept[i] ? id[i] : static_cast<KeptId>(sentinel);
      }
    }
    if (positions.data != nullptr) {
      for (index_t i = 0; i < Pairs; ++i) {
        if (!is_listed[i]) {
          positions(token, begin + i) = -1;
        }
      }
    }
  }

  PLIMSOLL_HD void write_normalized(index_t token, std::uint8_t const* kept) const {
    double all = 0;
    double stays = 0;
    for (index_t j = 0; j < lists.width; ++j) {
      auto const w = static_cast<double>(weight(token, j));
      bool const is_choice = j < lists.choices && lists.is_listed(token * lists.width + j);
      all = is_choice ? add(all, w) : all;
      stays = kept[j] != 0 ? add(stays, w) : stays;
    }
    double const factor = normalize == normalization::to_sum ? all : 1.0;
    double const divisor = stays < least_weight_sum ? least_weight_sum : stays;
    for (index_t j = 0; j < lists.width; ++j) {
      auto const w = static_cast<double>(weight(token, j));
      kept_weights(token, j) =
          kept[j] != 0 ? one_nan(static_cast<float>(divide(multiply(w, factor), divisor))) : 0.0f;
    }
  }

  PLIMSOLL_HD float weight(index_t token, index_t j) const {
    return weights.data != nullptr ? weights(token, j) : static_cast<float>(scores(token, j));
  }

  /// Keeps a token's best `max_selected` pairs by score, of equal ones the earlier; with
  /// `choices_first` its top-k pairs first.
  PLIMSOLL_HD void cut(index_t token, std::uint8_t* kept) const {
    auto const key = [=, this](index_t j) {
      return static_cast<std::uint64_t>(choices_first && j < lists.choices) << 32 |
             key_of(static_cast<float>(scores(token, j)));
    };
    index_t left = 0;
    for (index_t j = 0; j < lists.width; ++j) {
      left += kept[j];
    }
    for (; left > max_selected; --left) {
      index_t worst = -1;
      for (index_t j = 0; j < lists.width; ++j) {
        worst = kept[j] != 0 && (worst < 0 || key(j) <= key(worst)) ? j : worst;
      }
      kept[worst] = 0;
    }
    for (index_t j = 0; j < lists.width; ++j) {
      if (kept[j] != 0) {
        index_t const column = lists.columns[token * lists.width + j];
        index_t const e = lists.expert_at(lists.position_of(column));
        increment(&counts[e]);
        if (lists.kinds() > 1 && lists.is_choice(column)) {
          increment(lists.kept_choices + e);
        }
      }
    }
  }
};

/// Numbers the kept pairs if tokens dropped some after pools had selected theirs. Problem = expert.
struct number_pairs_body {
  pair_lists lists;
  matrix_ref<std::int32_t> positions;

  [[nodiscard]] index_t problems() const { return positions.data != nullptr ? lists.experts : 0; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t e) const {
    static_cast<void>(number_expert(
        team, lists, expert_list(lists, e),
        [this](index_t position) { return lists.kept[lists.listed[position]] != 0; },
        [](index_t, bool) {}, positions));
  }
};

/// Padding of the rows per expert.
struct row_padding {
  padding_mode pad;
  index_t multiple;
  index_t least;

  /// Returns the number of rows that an expert with `count` pairs gets; `width` is that of a buffer
  /// of its capacity.
  [[nodiscard]] PLIMSOLL_HD index_t rows(index_t count, index_t width) const {
    if (pad == padding_mode::to_capacity) {
      return maximum{}(width, least);
    }
    index_t const some = maximum{}(count, least);
    return pad == padding_mode::to_multiple ? (some + multiple - 1) / multiple * multiple : some;
  }
};

/// Writes the report of the batch and the first row of every expert. One problem.
struct report_pairs_body {
  pair_lists lists;
  capacity_rule rule;
  row_padding padding;
  vector_ref<std::int32_t> counts;      ///< `[experts]`
  vector_ref<std::int32_t> offsets;     ///< `[experts + 1]` or null
  vector_ref<capacity_report> reports;  ///< `[1]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t) const {
    index_t const listed = lists.listed_columns();
    capacity_report report;
    report.routed = lists.first[listed];
    // Both sums are below 2^31.
    std::uint64_t const sums = team.sum(lists.experts, [this](index_t e) {
      return static_cast<std::uint64_t>(counts[e]) << 32 |
             static_cast<std::uint32_t>(lists.load(e));
    });
    report.kept = static_cast<std::int64_t>(sums >> 32);
    report.choices = static_cast<std::uint32_t>(sums);
    report.kept_choices =
        lists.kinds() == 1 ? report.kept : team.sum(lists.experts, [this](index_t e) {
          return std::int64_t{lists.kept_choices[e]};
        });
    report.unrouted = lists.size(listed);
    report.out_of_range = lists.size(listed + 1);
    report.duplicates = lists.size(listed + 2);
    report.not_numbers = *lists.not_numbers;
    report.unknown_class = *lists.unknown_class;
    double const even = rule.factors == nullptr ? rule.exact(0) : 0.0;
    // Only a part of the team sums in order.
    double* const overflows = lists.overflows;
    team.for_each(lists.pools, [=, this](index_t pool) { overflows[pool] = over(pool, even); });
    double const overflow =
        team.sum_ordered(lists.pools, [=](index_t pool) { return overflows[pool]; });
    if (report.choices > 0) {
      auto const all = static_cast<double>(report.choices);
      report.dropped_fraction =
          divide(static_cast<double>(report.choices - report.kept_choices), all);
      report.overflow_fraction = divide(overflow, all);
    }
    if (offsets.data != nullptr) {
      std::int32_t* const begins = lists.begins;
      std::int32_t const all = team.exclusive_scan(
          lists.experts, [this](index_t e) { return static_cast<std::int32_t>(rows(e)); }, begins);
      team.for_each(lists.experts + 1,
                    [=, this](index_t e) { offsets[e] = e < lists.experts ? begins[e] : all; });
      report.rows = all;
    }
    team.single([=, this] {
      reports[0] = report;
      *lists.not_numbers = 0;
      *lists.unknown_class = 0;
    });
  }

 private:
  /// Returns the top-k pairs of a pool above its capacity before rounding (equation 11 of the
  /// paper). `even` is the capacity of an expert if all have the same.
  [[nodiscard]] PLIMSOLL_HD double over(index_t pool, double even) const {
    std::int64_t load = 0;
    double capacity = 0;
    for (index_t i = lists.pool_begin(pool); i < lists.pool_begin(pool + 1); ++i) {
      index_t const e = lists.expert_at(i);
      load += lists.load(e);
      capacity = add(capacity, rule.factors == nullptr ? even : rule.exact(e));
    }
    return maximum{}(add(static_cast<double>(load), -capacity), 0.0);
  }

  /// Returns the number of rows of an expert in a buffer of all kept pairs.
  PLIMSOLL_HD index_t rows(index_t e) const {
    return padding.rows(counts[e], padding.pad == padding_mode::to_capacity ? rule.width(e) : 0);
  }
};

/// Runs the report as problem 0 of the launch of `body`; the other problems neither read nor write
/// what it uses.
template <class Body>
struct with_report {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  Body body;
  report_pairs_body report;

  [[nodiscard]] index_t problems() const { return body.problems() + 1; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    if (problem == 0) {
      report(team, memory, 0);
    } else {
      body(team, memory, problem - 1);
    }
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `swap_search`: one restart, and the choice of the best.
///
/// All decisions compare integers. Tokens are multiples of a power of two (fixed_load.hpp), so that
/// sums of them are exact in double. A latency is converted to a whole number of units, chosen so
/// that all steps together have fewer than 2^61. Hence the order in which swaps are evaluated
/// cannot affect the result, and swaps that cannot be the best may be skipped.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/swap_search_inputs.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Scratch memory of a search.
struct search_arrays {
  double* tokens;                   ///< `[ranks, steps]`
  std::int64_t* latency;            ///< `[ranks, steps]`
  std::int64_t* top[3];             ///< `[steps]`: longest, second and third longest latency
  std::int64_t* others;             ///< `[steps]`: lower bound of the latency after any swap of a,b
  std::int64_t* gap;                ///< `[steps]`: latency minus that bound, ordered as `order`
  std::int32_t* holder[2];          ///< `[steps]`: ranks of the longest and second longest latency
  std::int32_t* order;              ///< `[steps]`: steps in which a, then b, is slowest come first
  std::uint64_t* item_keys;         ///< `[slots]`
  std::int64_t* sum;                ///< `[ranks]`, of a start: total latency of each rank
  std::int64_t* sum_with;           ///< `[ranks]`, of a start: the same with one more replica
  std::int64_t* score_rise;         ///< `[ranks]`, of a start: rise of the score by that replica
  std::int64_t* gain_without_rank;  ///< `[ranks]`: gain if the rank were removed
  std::int64_t* pair_gain;          ///< `[ranks]`: gain if the rank and rank a were removed
  std::uint64_t* rank_keys;         ///< `[ranks]`
  std::int32_t* begin;              ///< `[ranks]`
  std::int32_t* end;                ///< `[ranks]`
  std::int32_t* mark;               ///< `[ranks]`
  std::byte* sort_storage;          ///< of item_keys or rank_keys

  [[nodiscard]] PLIMSOLL_HD static search_arrays in(scratch& memory, index_t ranks, index_t steps,
                                                    index_t slots, index_t sort_bytes) {
    search_arrays result{};
    memory.take(result.tokens, ranks * steps);
    memory.take(result.latency, ranks * steps);
    memory.take(result.top[0], steps);
    memory.take(result.top[1], steps);
    memory.take(result.top[2], steps);
    memory.take(result.others, steps);
    memory.take(result.gap, steps);
    memory.take(result.holder[0], steps);
    memory.take(result.holder[1], steps);
    memory.take(result.order, steps);
    memory.take(result.item_keys, slots);
    memory.take(result.sum, ranks);
    memory.take(result.sum_with, ranks);
    memory.take(result.score_rise, ranks);
    memory.take(result.gain_without_rank, ranks);
    memory.take(result.pair_gain, ranks);
    memory.take(result.rank_keys, ranks);
    memory.take(result.begin, ranks);
    memory.take(result.end, ranks);
    memory.take(result.mark, ranks);
    memory.take(result.sort_storage, sort_bytes);
    return result;
  }
};

/// One search: a greedy start, then steepest descent by swaps. Problem = layer and restart.
template <class Cost>
struct swap_search_body : search_problem {
  using device_team = block<128>;

  Cost cost;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<search_arrays>(where.ranks(), steps, where.ranges.slots,
                                         most_sort_bytes());
  }
  [[nodiscard]] PLIMSOLL_HD index_t most_sort_bytes() const {
    return sort_bytes<device_team, std::uint64_t>(maximum{}(where.ranges.slots, where.ranks()));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layer = problem / restarts;
    index_t const restart = problem % restarts;
    if (!layers[layer].is_usable) {
      return;
    }
    state const s(*this, memory, layer, found + problem * where.ranges.slots);
    start(team, s, restart);
    std::int64_t score = rank_latencies(team, s);
    index_t count = 0;
    index_t plateau_moves = 0;  // since the score was last lowered
    while (count < max_swaps) {
      candidate best = best_swap(team, s, score, neighborhood::swaps);
      if (best.gain == 0 && plateau_moves < max_plateau_moves) {
        best = best_swap(team, s, score, neighborhood::plateau);
        ++plateau_moves;
      } else {
        plateau_moves = 0;
      }
      if (best.gain == 0) {
        break;
      }
      commit(team, s, best);
      ++count;
      std::int64_t const before = score;
      score = rank_latencies(team, s);
      double const drop = static_cast<double>(before - score);
      if (plateau_moves == 0 && drop < multiply(min_gain, static_cast<double>(before))) {
        break;
      }
    }
    team.single([&] {
      scores[problem] = score;
      swaps[problem] = static_cast<std::int32_t>(count);
    });
  }

 protected:
  /// Changes among which a descent chooses the best.
  enum class neighborhood : std::int32_t {
    swaps,      ///< swaps that lower the score
    plateau,    ///< swaps that keep it and shorten the longer latency of the two ranks
    partitions  ///< swaps, and all ways to fill the slots of two ranks that have few slots
  };

  /// A swap of the contents of two slots, or a new division of the contents of two ranks.
  struct candidate {
    std::int64_t gain = 0;
    index_t rank_a = -1;
    index_t rank_b = -1;
    index_t slot_a = -1;
    index_t slot_b = -1;
    std::uint32_t to_a = 0;  ///< bits of the slots of a, then b, whose contents go to a; 0: a swap
  };

  /// Current state of a search.
  struct state : search_arrays {
    search_price<Cost> price;
    search_layer known;
    index_t layer;
    index_t ranks;
    index_t steps;
    double const* shares;           ///< `[experts + 1, steps]`
    std::int32_t const* expert_of;  ///< `[items]`
    std::int32_t* item_in;          ///< `[slots]`, -1 in an empty one
    double* moved = nullptr;        ///< `[partition_rows, steps]`, if partitions are evaluated

    PLIMSOLL_HD state(swap_search_body const& b, scratch& memory, index_t in_layer,
                      std::int32_t* result)
        : price(b.price_in(b.layers[in_layer], b.cost)),
          known(b.layers[in_layer]),
          layer(in_layer),
          ranks(b.where.ranks()),
          steps(b.steps),
          shares(b.shares_of(in_layer)),
          expert_of(b.expert_of + in_layer * b.where.ranges.slots),
          item_in(result) {
      // In the list of initializers, before `price`, this would cost device teams more registers.
      static_cast<search_arrays&>(*this) =
          search_arrays::in(memory, ranks, steps, b.where.ranges.slots, b.most_sort_bytes());
    }
  };

  /// Expert in a slot; `experts`, a dummy without tokens, in an empty slot.
  [[nodiscard]] PLIMSOLL_HD index_t expert_in(state const& s, index_t slot) const {
    std::int32_t const item = s.item_in[slot];
    return item < 0 ? experts : index_t{s.expert_of[item]};
  }
  [[nodiscard]] PLIMSOLL_HD double const* share_in(state const& s, index_t slot) const {
    return s.shares + expert_in(s, slot) * steps;
  }
  [[nodiscard]] PLIMSOLL_HD bool holds(state const& s, index_t expert, index_t begin, index_t end,
                                       index_t except) const {
    for (index_t slot = begin; slot < end; ++slot) {
      if (slot != except && expert_in(s, slot) == expert) {
        return true;
      }
    }
    return false;
  }

  /// Greedy start, algorithm 2 of GEM: places replicas in order of falling total load, each on the
  /// rank where the sum of step latencies stays lowest; among several such ranks, on the one with
  /// the shortest total latency.
  template <class Team>
  PLIMSOLL_HD void start(Team& team, state const& s, index_t restart) const {
    index_t const ranks = s.ranks;
    std::int32_t* const next = s.mark;  // first free slot of each rank
    team.for_each(where.ranges.slots, [&](index_t slot) { s.item_in[slot] = -1; });
    team.for_each(ranks, [&](index_t r) {
      s.begin[r] = static_cast<std::int32_t>(where.begin(s.layer, r));
      s.end[r] = static_cast<std::int32_t>(where.end(s.layer, r));
      next[r] = s.begin[r];
      std::int64_t const idle = s.begin[r] < s.end[r] ? s.price(r, 0.0) : 0;
      for (index_t t = 0; t < s.steps; ++t) {
        s.tokens[r * s.steps + t] = 0;
        s.latency[r * s.steps + t] = idle;
      }
      s.sum[r] = idle * s.steps;
    });
    team.for_each(steps, [&](index_t t) {
      s.top[0][t] = 0;
      for (index_t r = 0; r < ranks; ++r) {
        s.top[0][t] = maximum{}(s.top[0][t], s.latency[r * s.steps + t]);
      }
    });
    team.for_each(s.known.items, [&](index_t item) {
      s.item_keys[item] = heavier_first(noisy_use(s, restart, item), item);
    });
    team.sort(s.item_keys, s.known.items, s.sort_storage);
    for (index_t i = 0; i < s.known.items; ++i) {
      index_t const item = id_of(s.item_keys[i]);
      index_t const rank = best_rank(team, s, next, s.expert_of[item]);
      double const* const more = s.shares + index_t{s.expert_of[item]} * steps;
      team.for_each(steps, [&](index_t t) {
        index_t const cell = rank * s.steps + t;
        s.tokens[cell] += more[t];
        s.latency[cell] = s.price(rank, s.tokens[cell]);
        s.top[0][t] = maximum{}(s.top[0][t], s.latency[cell]);
      });
      team.single([&] {
        s.sum[rank] = s.sum_with[rank];
        s.item_in[next[rank]++] = static_cast<std::int32_t>(item);
      });
    }
  }

  [[nodiscard]] PLIMSOLL_HD fixed_load noisy_use(state const& s, index_t restart,
                                                 index_t item) const {
    if (!(s.known.most_tokens > 0)) {
      // Without load, all first copies precede all second copies, and so on, as in numbered slots.
      index_t copy = 0;
      while (copy < item && s.expert_of[item - copy - 1] == s.expert_of[item]) {
        ++copy;
      }
      return static_cast<fixed_load>(rank_limit - copy);
    }
    fixed_load const used = use[s.layer * experts + s.expert_of[item]];
    if (restart == 0) {
      return used;
    }
    double const draw = random::uniform(seed, static_cast<std::uint64_t>(s.layer),
                                        static_cast<std::uint64_t>((restart << 32) + item));
    double const factor = mul_then_add(mul_then_add(2.0, draw, -1.0), noise, 1.0);
    return static_cast<fixed_load>(multiply(static_cast<double>(used), factor));
  }

  /// Returns the best rank for a replica. Leaves the total latency of each candidate in `sum_with`.
  template <class Team>
  PLIMSOLL_HD index_t best_rank(Team& team, state const& s, std::int32_t const* next,
                                index_t expert) const {
    double const* const more = s.shares + expert * steps;
    auto const is_open = [&](index_t r) { return next[r] < s.end[r]; };
    // Copies of an expert share a rank only if no other rank has a free slot.
    bool const apart = s.known.has_replicas && team.any(s.ranks, [&](index_t r) {
      return is_open(r) && !holds(s, expert, s.begin[r], next[r], -1);
    });
    auto const may_take = [&](index_t r) {
      return is_open(r) && !(apart && holds(s, expert, s.begin[r], next[r], -1));
    };
    // The rank with the shortest total latency so far is usually the best: its result is a limit at
    // which the evaluation of the others can stop.
    index_t const guess =
        team.argmin(s.ranks,
                    [&](index_t r) { return may_take(r) ? s.sum[r] : highest<std::int64_t>; })
            .index;
    auto const with_more = [&](index_t r, index_t t) {
      return s.price(r, s.tokens[r * s.steps + t] + more[t]);
    };
    std::int64_t const limit =
        team.sum(steps, [&](index_t t) { return rise_above(s.top[0][t], with_more(guess, t)); });
    // If the guess keeps the score, a rank that already has a longer total latency cannot win.
    std::int64_t const longest =
        limit > 0 ? highest<std::int64_t>
                  : team.sum(steps, [&](index_t t) { return with_more(guess, t); });
    team.for_each(s.ranks, [&](index_t r) {
      bool const may_win = may_take(r) && s.sum[r] <= longest;
      std::int64_t rise = may_win ? 0 : highest<std::int64_t>;
      std::int64_t busy = 0;
      for (index_t t = 0; t < s.steps && rise <= limit; ++t) {
        std::int64_t const after = with_more(r, t);
        rise += rise_above(s.top[0][t], after);
        busy += after;
      }
      s.score_rise[r] = rise;
      s.sum_with[r] = busy;
    });
    std::int64_t const least = team.min(s.ranks, [&](index_t r) { return s.score_rise[r]; });
    return team
        .argmin(s.ranks,
                [&](index_t r) {
                  return s.score_rise[r] == least ? s.sum_with[r] : highest<std::int64_t>;
                })
        .index;
  }
  [[nodiscard]] PLIMSOLL_HD static std::int64_t rise_above(std::int64_t top, std::int64_t after) {
    return maximum{}(after - top, std::int64_t{0});
  }

  /// Finds the three longest latencies of every step. Returns the score.
  template <class Team>
  PLIMSOLL_HD std::int64_t rank_latencies(Team& team, state const& s) const {
    team.for_each(steps, [&](index_t t) {
      std::int64_t longest[3] = {-1, -1, -1};
      std::int32_t whose[2] = {-1, -1};
      for (index_t r = 0; r < s.ranks; ++r) {
        std::int64_t const latency = s.latency[r * s.steps + t];
        if (latency > longest[0]) {
          longest[2] = longest[1];
          longest[1] = longest[0];
          longest[0] = latency;
          whose[1] = whose[0];
          whose[0] = static_cast<std::int32_t>(r);
        } else if (latency > longest[1]) {
          longest[2] = longest[1];
          longest[1] = latency;
          whose[1] = static_cast<std::int32_t>(r);
        } else if (latency > longest[2]) {
          longest[2] = latency;
        }
      }
      for (int i = 0; i < 3; ++i) {
        s.top[i][t] = maximum{}(longest[i], std::int64_t{0});
      }
      s.holder[0][t] = whose[0];
      s.holder[1][t] = whose[1];
    });
    return objective.value(team, steps, s.top[0]);
  }

  /// Returns the swap, or move into a free slot, that lowers the score most. Branch and bound:
  /// pairs of ranks come in order of the gain if both were removed, which bounds the gain of their
  /// swaps. Ties go to the first: by the gain without one rank, then without both, then by slots.
  template <class Team>
  PLIMSOLL_HD candidate best_swap(Team& team, state const& s, std::int64_t score,
                                  neighborhood moves) const {
    bool const is_plateau = moves == neighborhood::plateau;
    // Only steps at least this long affect the score.
    std::int64_t const counts = objective.is_sum ? 0 : score;
    team.for_each(s.ranks, [&](index_t r) {
      std::int64_t gain = -1;  // -1: the rank is never the slowest
      for (index_t t = 0; t < s.steps; ++t) {
        if (s.holder[0][t] == r && s.top[0][t] >= counts) {
          gain =
              maximum{}(gain, std::int64_t{0}) + (objective.is_sum ? s.top[0][t] - s.top[1][t] : 0);
        }
      }
      s.gain_without_rank[r] = gain;
      s.mark[r] = 0;  // 1: all its swaps have been evaluated
    });
    candidate best;
    for (;;) {
      auto const worst = team.argmax(s.ranks, [&](index_t r) {
        return s.mark[r] == 0 ? s.gain_without_rank[r] : std::int64_t{-1};
      });
      if (worst.key < 0) {
        return best;
      }
      index_t const a = worst.index;
      bound_pairs(team, s, a, score);
      for (index_t i = 0; i < s.ranks; ++i) {
        index_t const b = id_of(s.rank_keys[i]);
        if (s.pair_gain[b] < 0 || (!is_plateau && bound_of(s.rank_keys[i]) <= best.gain)) {
          break;
        }
        if (moves == neighborhood::partitions && slots_of_pair(s, a, b) <= partition_slots) {
          evaluate_partitions(team, s, a, b, score, best);
        } else {
          evaluate_pair(team, s, a, b, score, is_plateau, best);
        }
      }
      team.single([&] { s.mark[a] = 1; });
    }
  }

  /// Orders the ranks by an upper bound for the gain of swaps between them and `a`: the gain if
  /// both were removed.
  template <class Team>
  PLIMSOLL_HD void bound_pairs(Team& team, state const& s, index_t a, std::int64_t score) const {
    team.for_each(s.ranks, [&](index_t r) {
      bool const is_other = r != a && s.mark[r] == 0 && s.begin[r] < s.end[r];
      std::int64_t const both =
          s.gain_without_rank[a] + maximum{}(s.gain_without_rank[r], std::int64_t{0});
      s.pair_gain[r] = !is_other ? -1 : objective.is_sum ? both : score;
    });
    if (objective.is_sum) {
      team.single([&] {
        for (index_t t = 0; t < s.steps; ++t) {
          bool const first = s.holder[0][t] == a;
          std::int32_t const other = first ? s.holder[1][t] : s.holder[0][t];
          if ((first || s.holder[1][t] == a) && other >= 0 && s.pair_gain[other] >= 0) {
            s.pair_gain[other] += s.top[1][t] - s.top[2][t];
          }
        }
      });
    }
    team.for_each(s.ranks, [&](index_t r) {
      std::uint64_t const bound = (static_cast<std::uint64_t>(s.pair_gain[r]) >> key_shift) + 2;
      s.rank_keys[r] = heavier_first(s.pair_gain[r] < 0 ? 0 : bound, r);
    });
    team.sort(s.rank_keys, s.ranks, s.sort_storage);
  }
  /// Shift that fits 2^61 units into the 48 bits of a key, rounded up.
  static constexpr int key_shift = 14;
  [[nodiscard]] PLIMSOLL_HD static std::int64_t bound_of(std::uint64_t key) {
    return static_cast<std::int64_t>(heavy_load_of(key) - 1) << key_shift;
  }

  /// Two ranks whose swaps are evaluated.
  struct pair {
    index_t a;
    index_t b;
    typename search_price<Cost>::rank_view price_a;
    typename search_price<Cost>::rank_view price_b;
    double const* tokens_a;
    double const* tokens_b;
    index_t of_a;       ///< number of steps in which a is slowest, the first in `order`
    index_t of_either;  ///< number of steps in which a or b is slowest; those of b come next
    std::int64_t most;  ///< upper bound for the gain of a swap

    /// The longer latency of the two after `tokens` have moved from b to a.
    [[nodiscard]] PLIMSOLL_HD std::int64_t latency(index_t t, double tokens) const {
      return maximum{}(price_a(tokens_a[t] + tokens), price_b(tokens_b[t] - tokens));
    }
  };

  template <class Team>
  PLIMSOLL_HD pair pair_of(Team& team, state const& s, index_t a, index_t b) const {
    pair p{.a = a,
           .b = b,
           .price_a = s.price.of_rank(a),
           .price_b = s.price.of_rank(b),
           .tokens_a = s.tokens + a * steps,
           .tokens_b = s.tokens + b * steps,
           .of_a = 0,
           .of_either = 0,
           .most = 0};
    team.for_each(steps, [&](index_t t) {
      std::int32_t const first = s.holder[0][t];
      std::int32_t const second = s.holder[1][t];
      if (first != a && first != b) {
        s.others[t] = s.top[0][t];
        return;
      }
      // However a swap divides the tokens of the pair, one rank has at least half of them.
      double const half = multiply(p.tokens_a[t] + p.tokens_b[t], 0.5);
      std::int64_t const without = s.top[second == a || second == b ? 2 : 1][t];
      s.others[t] = maximum{}(without, minimum{}(p.price_a(half), p.price_b(half)));
    });
    p.of_a = team.count(steps, [&](index_t t) { return s.holder[0][t] == a; });
    p.of_either = p.of_a + team.count(steps, [&](index_t t) { return s.holder[0][t] == b; });
    team.single([&] {
      index_t next[] = {0, p.of_a, p.of_either};
      for (index_t t = 0; t < s.steps; ++t) {
        std::int32_t const last = s.holder[0][t];
        index_t const i = next[last == a ? 0 : last == b ? 1 : 2]++;
        s.order[i] = static_cast<std::int32_t>(t);
        s.gap[i] = s.top[0][t] - s.others[t];
      }
    });
    p.most = team.sum(p.of_either, [&](index_t i) { return s.gap[i]; });
    return p;
  }

  template <class Team>
  PLIMSOLL_HD void evaluate_pair(Team& team, state const& s, index_t a, index_t b,
                                 std::int64_t score, bool is_plateau, candidate& best) const {
    pair const p = pair_of(team, s, a, b);
    if (!is_plateau && objective.is_sum && p.most <= best.gain) {
      return;
    }
    index_t const width = s.end[b] - s.begin[b];
    divisor const by_width(width);
    std::int64_t const least = best.gain;
    auto const found_best = team.argmax((s.end[a] - s.begin[a]) * width, [&](index_t i) {
      index_t const row = by_width.quotient(i);
      index_t const slot_a = s.begin[a] + row;
      index_t const slot_b = s.begin[b] + i - row * width;
      auto const change = [from_a = share_in(s, slot_a), from_b = share_in(s, slot_b)](index_t t) {
        return from_b[t] - from_a[t];
      };
      std::int64_t const gain = gain_of(s, p, change, score, is_plateau ? -1 : least);
      std::int64_t const value = !is_plateau ? gain : gain >= 0 ? shorter(s, p, change) : 0;
      return value > least && !violates_anti_affinity(s, a, b, slot_a, slot_b) ? value
                                                                               : std::int64_t{0};
    });
    if (found_best.key > best.gain) {
      best = candidate{found_best.key, a, b, s.begin[a] + found_best.index / width,
                       s.begin[b] + found_best.index % width};
    }
  }

  /// Partitions are all ways to divide the contents of two ranks over their slots: at most 924 (12
  /// choose 6) for 12 slots. They include every swap, and two items for one.
  static constexpr index_t partition_slots = 12;
  static constexpr index_t partition_rows = 2 << (partition_slots / 2);
  [[nodiscard]] PLIMSOLL_HD static index_t slots_of_pair(state const& s, index_t a, index_t b) {
    return s.end[a] - s.begin[a] + s.end[b] - s.begin[b];
  }
  /// The i-th slot of the pair: those of a first, then those of b.
  [[nodiscard]] PLIMSOLL_HD static index_t slot_of_pair(state const& s, index_t a, index_t b,
                                                        index_t i) {
    index_t const width = s.end[a] - s.begin[a];
    return i < width ? s.begin[a] + i : s.begin[b] + i - width;
  }
  /// Tokens that a gets from b if the contents of the slots in `to_a` go to a, as the sum of two
  /// tabulated rows: one for the first half of the slots, one for the second.
  struct row_pair {
    double const* first;
    double const* second;

    PLIMSOLL_HD double operator()(index_t t) const { return first[t] + second[t]; }
  };
  [[nodiscard]] PLIMSOLL_HD row_pair moved_by(state const& s, index_t slots,
                                              std::uint32_t to_a) const {
    std::uint32_t const rows = std::uint32_t{1} << slots / 2;
    return {s.moved + to_a % rows * steps, s.moved + (rows + to_a / rows) * steps};
  }
  template <class Team>
  PLIMSOLL_HD void tabulate_moved(Team& team, state const& s, index_t a, index_t b) const {
    index_t const width = s.end[a] - s.begin[a];
    index_t const slots = slots_of_pair(s, a, b);
    index_t const half = slots / 2;
    index_t const rows = index_t{1} << half;
    team.for_each(rows + (index_t{1} << (slots - half)), [&](index_t row) {
      double* const out = s.moved + row * steps;
      for (index_t t = 0; t < steps; ++t) {
        out[t] = 0;
      }
      index_t const first = row < rows ? 0 : half;
      index_t const last = row < rows ? half : slots;
      index_t const to_a = row < rows ? row : row - rows;
      for (index_t i = first; i < last; ++i) {
        bool const goes_to_a = (to_a >> (i - first) & 1) != 0;
        double const* const tokens = share_in(s, slot_of_pair(s, a, b, i));
        for (index_t t = 0; t < steps && goes_to_a != (i < width); ++t) {
          out[t] += goes_to_a ? tokens[t] : -tokens[t];
        }
      }
    });
  }

  template <class Team>
  PLIMSOLL_HD void evaluate_partitions(Team& team, state const& s, index_t a, index_t b,
                                       std::int64_t score, candidate& best) const {
    pair const p = pair_of(team, s, a, b);
    if (objective.is_sum && p.most <= best.gain) {
      return;
    }
    tabulate_moved(team, s, a, b);
    index_t const width = s.end[a] - s.begin[a];
    index_t const slots = slots_of_pair(s, a, b);
    std::int64_t const least = best.gain;
    auto const found_best = team.argmax(index_t{1} << slots, [&](index_t i) {
      auto const to_a = static_cast<std::uint32_t>(i);
      if (bit_count(to_a) != width) {
        return std::int64_t{0};
      }
      std::int64_t const gain = gain_of(s, p, moved_by(s, slots, to_a), score, least);
      return gain > least && !violates_anti_affinity(s, a, b, to_a) ? gain : std::int64_t{0};
    });
    if (found_best.key > best.gain) {
      best = candidate{found_best.key, a, b, -1, -1, static_cast<std::uint32_t>(found_best.index)};
    }
  }

  /// Returns whether a partition would bring copies of an expert together on one of the two ranks.
  [[nodiscard]] PLIMSOLL_HD bool violates_anti_affinity(state const& s, index_t a, index_t b,
                                                        std::uint32_t to_a) const {
    if (!s.known.has_replicas) {
      return false;
    }
    index_t const slots = slots_of_pair(s, a, b);
    for (index_t i = 0; i < slots; ++i) {
      index_t const expert = expert_in(s, slot_of_pair(s, a, b, i));
      for (index_t j = 0; j < i && expert < experts; ++j) {
        if ((to_a >> i & 1) == (to_a >> j & 1) &&
            expert_in(s, slot_of_pair(s, a, b, j)) == expert) {
          return true;
        }
      }
    }
    return false;
  }

  /// Returns whether a swap would bring copies of an expert together on one rank.
  [[nodiscard]] PLIMSOLL_HD bool violates_anti_affinity(state const& s, index_t a, index_t b,
                                                        index_t slot_a, index_t slot_b) const {
    if (!s.known.has_replicas) {
      return false;
    }
    index_t const from_a = expert_in(s, slot_a);
    index_t const from_b = expert_in(s, slot_b);
    return (from_a < experts && holds(s, from_a, s.begin[b], s.end[b], slot_b)) ||
           (from_b < experts && holds(s, from_b, s.begin[a], s.end[a], slot_a));
  }

  /// Returns the gain, the fall of the score, if a gets `change(t)` tokens from b in step t. If the
  /// gain is not above `least`, returns any number up to `least`.
  template <class Change>
  [[nodiscard]] PLIMSOLL_HD std::int64_t gain_of(state const& s, pair const& p,
                                                 Change const& change, std::int64_t score,
                                                 std::int64_t least) const {
    return objective.is_sum ? total_gain(s, p, change, least)
                            : quantile_gain(s, p, change, score, least);
  }

  template <class Change>
  [[nodiscard]] PLIMSOLL_HD std::int64_t total_gain(state const& s, pair const& p,
                                                    Change const& change,
                                                    std::int64_t least) const {
    // A step gains nothing if its slowest rank does not lose tokens.
    std::int32_t const* const order = s.order;
    std::int64_t const* const gap = s.gap;
    auto const lost_for_sure = [=, of_a = p.of_a](index_t i) {
      double const more = change(order[i]);
      bool const grows = i < of_a ? more >= 0 : more <= 0;
      return grows ? gap[i] : 0;
    };
    std::int64_t left = p.most;
    for (index_t i = 0; i < p.of_either; ++i) {
      left -= lost_for_sure(i);
    }
    for (index_t i = 0; i < steps && left > least; ++i) {
      index_t const t = order[i];
      std::int64_t const latency = p.latency(t, change(t));
      left -= maximum{}(latency - s.others[t], std::int64_t{0}) -
              (i < p.of_either ? lost_for_sure(i) : 0);
    }
    return left;
  }

  template <class Change>
  [[nodiscard]] PLIMSOLL_HD std::int64_t quantile_gain(state const& s, pair const& p,
                                                       Change const& change, std::int64_t score,
                                                       std::int64_t least) const {
    auto const is_reached = [&](std::int64_t limit) {
      index_t higher = 0;
      for (index_t t = 0; t < steps && higher <= objective.above; ++t) {
        bool const is_higher = s.others[t] > limit || p.latency(t, change(t)) > limit;
        higher += static_cast<index_t>(is_higher);
      }
      return higher <= objective.above;
    };
    std::int64_t high = score - least - 1;
    if (high < 0 || !is_reached(high)) {
      return least;
    }
    for (std::int64_t low = -1; high - low > 1;) {
      std::int64_t const middle = low + (high - low) / 2;
      (is_reached(middle) ? high : low) = middle;
    }
    return score - high;
  }

  /// Returns by how much a swap shortens the longer latency of the two ranks, over all steps.
  template <class Change>
  [[nodiscard]] PLIMSOLL_HD std::int64_t shorter(state const& s, pair const& p,
                                                 Change const& change) const {
    std::int64_t sum = 0;
    for (index_t t = 0; t < steps; ++t) {
      sum += maximum{}(s.latency[p.a * s.steps + t], s.latency[p.b * s.steps + t]) -
             p.latency(t, change(t));
    }
    return sum;
  }

  template <class Team>
  PLIMSOLL_HD void commit(Team& team, state const& s, candidate const& swap) const {
    index_t const a = swap.rank_a;
    index_t const b = swap.rank_b;
    index_t const slots = slots_of_pair(s, a, b);
    if (swap.to_a != 0) {
      tabulate_moved(team, s, a, b);  // the table has been overwritten for other pairs since
    }
    team.for_each(steps, [&](index_t t) {
      double const change = swap.to_a != 0
                                ? moved_by(s, slots, swap.to_a)(t)
                                : share_in(s, swap.slot_b)[t] - share_in(s, swap.slot_a)[t];
      index_t const at_a = a * s.steps + t;
      index_t const at_b = b * s.steps + t;
      s.tokens[at_a] += change;
      s.tokens[at_b] -= change;
      s.latency[at_a] = s.price(a, s.tokens[at_a]);
      s.latency[at_b] = s.price(b, s.tokens[at_b]);
    });
    team.single([&] {
      if (swap.to_a == 0) {
        std::int32_t const item = s.item_in[swap.slot_a];
        s.item_in[swap.slot_a] = s.item_in[swap.slot_b];
        s.item_in[swap.slot_b] = item;
        return;
      }
      std::int32_t items[partition_slots];
      for (index_t i = 0; i < slots; ++i) {
        items[i] = s.item_in[slot_of_pair(s, a, b, i)];
      }
      index_t next_a = s.begin[a];
      index_t next_b = s.begin[b];
      for (index_t i = 0; i < slots; ++i) {
        s.item_in[(swap.to_a >> i & 1) != 0 ? next_a++ : next_b++] = items[i];
      }
    });
  }
};

/// Writes the placement of the best restart of a layer, the first among equals, and its
/// certificate. Problem = layer.
template <class Cost>
struct search_result_body : search_problem {
  using device_team = warp;

  Cost cost;
  matrix_ref<std::int32_t> physical_to_logical;
  matrix_ref<double> restart_scores;  ///< `[layers, restarts]` or empty
  problem_report* reports;

  struct arrays {
    double* latency;        ///< `[steps]`
    std::int64_t* rounded;  ///< `[steps]`: latencies in units

    [[nodiscard]] PLIMSOLL_HD static arrays in(scratch& memory, index_t steps) {
      arrays result{};
      memory.take(result.latency, steps);
      memory.take(result.rounded, steps);
      return result;
    }
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(steps);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    if (!layers[layer].is_usable) {
      return;
    }
    double const per_cost = units->per_cost;
    index_t const slots = physical_to_logical.extent(1);
    std::int64_t const* const score_of_restart = scores + layer * restarts;
    auto const best = team.argmin(restarts, [=](index_t i) { return score_of_restart[i]; });
    team.for_each(slots, [=, this](index_t slot) {
      std::int32_t const item = found[(layer * restarts + best.index) * slots + slot];
      physical_to_logical(layer, slot) = item < 0 ? -1 : expert_of[layer * slots + item];
    });
    if (restart_scores.data != nullptr) {
      team.for_each(restarts, [=, this](index_t i) {
        restart_scores(layer, i) = divide(static_cast<double>(score_of_restart[i]), per_cost);
      });
    }
    std::int64_t const bound = objective.value(team, steps, bounds + layer * steps);
    std::int64_t const work = team.sum(
        restarts, [=, this](index_t i) { return std::int64_t{swaps[layer * restarts + i]}; });
    search_units exact = *units;
    std::int64_t const score = score_of(team, memory, layer, exact);
    team.single([=, this] {
      certificate& result = reports[layer].result;
      bool const is_proven = score == bound && exact.top == units->top;
      // The score of a search may be too low: tokens were rounded down, latencies above `top`
      // counted as `top`, or each latency was rounded down to a unit, where a double can show that.
      bool const is_short = layers[layer].is_rounded || exact.top > units->top ||
                            best.key == bound || best.key < std::int64_t{1} << 53;
      result.value = is_proven || !is_short ? divide(static_cast<double>(best.key), per_cost)
                                            : divide(at_least(score), exact.per_cost);
      result.lower_bound = is_proven ? result.value : divide(at_most(bound), per_cost);
      result.work = work;
      result.status = is_proven ? certificate_status::optimal : certificate_status::feasible;
    });
  }

 private:
  /// Returns the score of the placement, rounded up: tokens that were rounded down count as a grain
  /// more, and latencies are rounded up to whole units. If a latency exceeds `top`, `exact` gets
  /// larger units.
  template <class Team>
  PLIMSOLL_HD std::int64_t score_of(Team& team, scratch memory, index_t layer,
                                    search_units& exact) const {
    arrays const local = arrays::in(memory, steps);
    double const grain = layers[layer].grain;
    double const* const share = shares_of(layer);
    team.for_each(steps, [=, this](index_t t) {
      double longest = 0;
      for (index_t r = 0; r < where.ranks(); ++r) {
        double tokens = 0;
        for (index_t slot = where.begin(layer, r); slot < where.end(layer, r); ++slot) {
          std::int32_t const e = physical_to_logical(layer, slot);
          tokens += e < 0 ? 0.0 : share[e * steps + t] + grain;
        }
        longest = maximum{}(longest, where.slots_of(layer, r) > 0 ? cost(r, tokens) : 0.0);
      }
      local.latency[t] = longest;
    });
    double const top = team.max(steps, [=](index_t t) { return local.latency[t]; });
    if (top > exact.top) {
      exact = search_units::up_to(top, steps);
    }
    team.for_each(steps, [=](index_t t) { local.rounded[t] = exact.above(local.latency[t]); });
    return objective.value(team, steps, local.rounded);
  }
  /// Largest double at most x, and in `at_least` the smallest double at least x.
  [[nodiscard]] PLIMSOLL_HD static double at_most(std::int64_t x) {
    int const spare = maximum{}(bit_width(static_cast<std::uint64_t>(x)) - 53, 0);
    return static_cast<double>(x >> spare << spare);
  }
  [[nodiscard]] PLIMSOLL_HD static double at_least(std::int64_t x) {
    int const spare = maximum{}(bit_width(static_cast<std::uint64_t>(x)) - 53, 0);
    return at_most(x + (std::int64_t{1} << spare) - 1);
  }
};

}}}  // namespace plimsoll::detail

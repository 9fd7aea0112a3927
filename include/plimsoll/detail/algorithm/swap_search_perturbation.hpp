// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `swap_search` that perturbs the best search of a layer and descends again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/swap_search.hpp>
#include <plimsoll/detail/algorithm/swap_search_inputs.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Iterated local search on the best search of a layer: makes a few random swaps, descends again,
/// and keeps the placement if it is no worse. Ends at the lower bound. Problem = layer.
template <class Cost>
struct search_perturbation_body : swap_search_body<Cost> {
  using device_team = block<128>;
  using base = swap_search_body<Cost>;
  using candidate = typename base::candidate;
  using neighborhood = typename base::neighborhood;
  using state = typename base::state;
  /// Layers of more slots are not perturbed: swaps alone come close there, and descents take
  /// longer.
  static constexpr index_t most_slots = 64;
  static constexpr int perturbation_swaps = 4;
  static constexpr int perturbation_draws = 2 * perturbation_swaps;  // not every draw is a swap

  struct arrays {
    double* moved;
    std::int32_t* kept;  ///< `[slots]`: the placement that the next round begins with
    std::int32_t* best;  ///< `[slots]`

    [[nodiscard]] PLIMSOLL_HD static arrays in(scratch& memory, index_t moved, index_t slots) {
      arrays result{};
      memory.take(result.moved, moved);
      memory.take(result.kept, slots);
      memory.take(result.best, slots);
      return result;
    }
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return base::scratch_bytes() +
           bytes_taken_by<arrays>(base::partition_rows * this->steps, this->where.ranges.slots);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    if (!this->layers[layer].is_usable) {
      return;
    }
    index_t const slots = this->where.ranges.slots;
    std::int64_t const bound =
        this->objective.value(team, this->steps, this->bounds + layer * this->steps);
    index_t const begin = layer * this->restarts;
    auto const first =
        team.argmin(this->restarts, [&](index_t i) { return this->scores[begin + i]; });
    index_t const improved = begin + first.index;
    std::int64_t least = first.key;
    index_t count = this->swaps[improved];
    std::int32_t* const map = this->found + improved * slots;
    state s(*this, memory, layer, map);
    arrays const more = arrays::in(memory, base::partition_rows * this->steps, slots);
    s.moved = more.moved;
    std::int32_t* const kept = more.kept;
    std::int32_t* const best = more.best;
    team.for_each(slots, [&](index_t i) { kept[i] = best[i] = map[i]; });
    // With only two ranks and at most 12 slots, the partitions of the first descent are all
    // placements.
    bool const is_exact = slots <= base::partition_slots && team.count(s.ranks, [&](index_t r) {
      return this->where.slots_of(layer, r) > 0;
    }) <= 2;
    index_t const last = is_exact ? 0 : this->max_perturbations;
    index_t draws = 0;
    for (index_t i = 0; i <= last && least > bound && count < this->max_swaps; ++i) {
      take_up(team, s);
      if (i > 0) {
        perturb(team, s, first.index, draws, count);
      }
      std::int64_t const score = descend(team, s, count);
      // Going on from a placement with equal score leads to others, but only a lower score replaces
      // the result.
      bool const is_kept = score <= least;
      bool const is_best = score < least;
      least = minimum{}(score, least);
      team.for_each(slots, [&](index_t slot) {
        kept[slot] = is_kept ? map[slot] : kept[slot];
        best[slot] = is_best ? map[slot] : best[slot];
        map[slot] = kept[slot];
      });
    }
    team.for_each(slots, [&](index_t slot) { map[slot] = best[slot]; });
    team.single([&] {
      this->scores[improved] = least;
      this->swaps[improved] = static_cast<std::int32_t>(count);
    });
  }

 private:
  /// Computes tokens and latencies of the ranks from the contents of their slots.
  template <class Team>
  PLIMSOLL_HD void take_up(Team& team, state const& s) const {
    team.for_each(s.ranks, [&](index_t r) {
      s.begin[r] = static_cast<std::int32_t>(this->where.begin(s.layer, r));
      s.end[r] = static_cast<std::int32_t>(this->where.end(s.layer, r));
      for (index_t t = 0; t < s.steps; ++t) {
        double tokens = 0;
        for (index_t slot = s.begin[r]; slot < s.end[r]; ++slot) {
          tokens += this->share_in(s, slot)[t];
        }
        s.tokens[r * s.steps + t] = tokens;
        s.latency[r * s.steps + t] = s.begin[r] < s.end[r] ? s.price(r, tokens) : 0;
      }
    });
  }

  /// Makes a few random swaps. Fewer are soon undone by the descent; more amount to a new start.
  template <class Team>
  PLIMSOLL_HD void perturb(Team& team, state const& s, index_t restart, index_t& draws,
                           index_t& count) const {
    auto const draw = [&] {
      // Random numbers at positions below 2^31 belong to the starts.
      auto const position = (std::uint64_t{static_cast<std::uint32_t>(restart)} << 32) +
                            (std::uint64_t{1} << 31) + static_cast<std::uint64_t>(draws++);
      double const part =
          random::uniform(this->seed, static_cast<std::uint64_t>(s.layer), position);
      return static_cast<index_t>(multiply(part, static_cast<double>(this->where.ranges.slots)));
    };
    auto const rank_of = [&](index_t slot) {
      return team.max(s.ranks, [&](index_t r) {
        return s.begin[r] <= slot && slot < s.end[r] ? r : index_t{-1};
      });
    };
    index_t made = 0;
    for (int i = 0; i < perturbation_draws && made < perturbation_swaps && count < this->max_swaps;
         ++i) {
      candidate swap;
      swap.slot_a = draw();
      swap.slot_b = draw();
      swap.rank_a = rank_of(swap.slot_a);
      swap.rank_b = rank_of(swap.slot_b);
      bool const is_usable =
          swap.rank_a >= 0 && swap.rank_b >= 0 && swap.rank_a != swap.rank_b &&
          this->expert_in(s, swap.slot_a) != this->expert_in(s, swap.slot_b) &&
          !this->violates_anti_affinity(s, swap.rank_a, swap.rank_b, swap.slot_a, swap.slot_b);
      if (is_usable) {
        this->commit(team, s, swap);
        ++made;
        ++count;
      }
    }
  }

  /// Descends until no swap and no partition of two ranks lowers the score. Returns the score.
  template <class Team>
  PLIMSOLL_HD std::int64_t descend(Team& team, state const& s, index_t& count) const {
    std::int64_t score = this->rank_latencies(team, s);
    while (count < this->max_swaps) {
      candidate best = this->best_swap(team, s, score, neighborhood::swaps);
      if (best.gain == 0) {
        best = this->best_swap(team, s, score, neighborhood::partitions);
      }
      if (best.gain == 0) {
        break;
      }
      this->commit(team, s, best);
      ++count;
      score = this->rank_latencies(team, s);
    }
    return score;
  }
};

}}}  // namespace plimsoll::detail

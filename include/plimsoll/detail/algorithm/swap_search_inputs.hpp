// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inputs that all restarts of `swap_search` share: replicas and shares of a layer, costs in units,
/// and lower bounds of the latency of each step.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/latency.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Score of the latencies of all steps: their sum, or a quantile, which is the lowest latency that
/// at most `above` others exceed.
struct step_objective {
  bool is_sum;
  index_t above;

  template <class Team>
  PLIMSOLL_HD std::int64_t value(Team& team, index_t steps, std::int64_t const* latency) const {
    if (is_sum) {
      return team.sum(steps, [=](index_t t) { return latency[t]; });
    }
    return team.min(steps, [=, limit = above](index_t t) {
      index_t higher = 0;
      for (index_t other = 0; other < steps; ++other) {
        higher += static_cast<index_t>(latency[other] > latency[t]);
      }
      return higher <= limit ? latency[t] : highest<std::int64_t>;
    });
  }
};

/// Properties of a layer that all its restarts share.
struct search_layer {
  double top;          ///< longer latencies count as equal to this one
  double most_tokens;  ///< largest number of tokens of a step
  double grain;        ///< a replica's tokens were rounded down by less; 0: not at all
  std::int32_t items;  ///< number of replicas
  bool is_rounded;     ///< loads were rounded, not only load / copies
  bool is_usable;
  bool has_replicas;  ///< an expert has several replicas
  bool is_whole;      ///< every replica has whole tokens in every step
};

/// Converts costs to whole numbers of units, the same for all layers.
struct search_units {
  double top;
  double per_cost;         ///< units per cost, a power of two
  std::int64_t tabulated;  ///< the table holds the units of token counts below this

  /// Accepts any cost, even an invalid one: the table is filled before layers are refused for their
  /// costs, and a double outside int64 must not be converted.
  PLIMSOLL_HD std::int64_t floor(double cost) const {
    double const usable = cost > 0 ? cost : 0.0;
    return static_cast<std::int64_t>(multiply(usable < top ? usable : top, per_cost));
  }
  /// Units of a cost up to `top`, rounded up.
  PLIMSOLL_HD std::int64_t above(double cost) const {
    std::int64_t const below = floor(cost);
    return below + static_cast<std::int64_t>(static_cast<double>(below) < multiply(cost, per_cost));
  }
  /// Chooses the unit so that `steps` latencies up to `top` together have fewer than 2^61 units.
  PLIMSOLL_HD static search_units up_to(double top, index_t steps) {
    int const exponent = top > 0 ? maximum{}(static_cast<int>(bits_of(top) >> 52) - 1022, -900) : 0;
    int const room = 60 - bit_width(static_cast<std::uint64_t>(steps));
    return {top, scale_by_power_of_two(1.0, room - exponent), 0};
  }
};

/// Units of cost(rank, tokens) in a layer, from a table for small whole token counts, which are the
/// most frequent.
template <class Cost>
struct search_price {
  Cost cost;
  search_units units;
  std::int64_t const* table;  ///< `[ranks, width]`
  index_t width;
  std::int64_t tabulated;  ///< 0 if replicas of the layer have fractions of tokens

  struct rank_view {
    std::int64_t const* table;
    std::int64_t tabulated;
    search_price const* all;
    index_t rank;

    PLIMSOLL_HD std::int64_t operator()(double tokens) const {
      auto const n = static_cast<std::int64_t>(tokens);
      return n < tabulated ? table[n] : all->units.floor(all->cost(rank, tokens));
    }
  };

  PLIMSOLL_HD std::int64_t operator()(index_t rank, double tokens) const {
    return of_rank(rank)(tokens);
  }
  PLIMSOLL_HD rank_view of_rank(index_t rank) const {
    return {table + rank * width, tabulated, this, rank};
  }
};

/// Sizes, limits and arrays that the bodies of one search share; each body derives from it.
struct search_problem {
  topology where;
  step_objective objective;
  index_t layer_count;
  index_t steps;
  index_t experts;
  index_t restarts;
  index_t table_width;
  // Limits of the search, as in `swap_search_options`.
  std::uint64_t seed;
  double noise;
  double min_gain;
  index_t max_swaps;
  index_t max_plateau_moves;
  index_t max_perturbations;

  search_layer* layers;
  search_units* units;
  double* shares;           ///< `[layers, experts + 1, steps]`: tokens of one copy; last row: 0
  std::uint64_t* use;       ///< `[layers, experts]`: tokens of one copy in all steps, fixed point
  std::int32_t* expert_of;  ///< `[layers, slots]`: expert of each replica
  double* totals;           ///< `[layers, steps]`: tokens of each step
  std::int64_t* bounds;     ///< `[layers, steps]`: lower bound of each latency, in units
  std::int64_t* table;      ///< `[ranks, table_width]`: units of the costs of whole token counts
  std::int32_t* found;      ///< `[layers, restarts, slots]`: replica in each slot, or -1
  std::int64_t* scores;     ///< `[layers, restarts]`, in units
  std::int32_t* swaps;      ///< `[layers, restarts]`

  /// Takes the arrays of a problem of the same sizes and limits.
  [[nodiscard]] PLIMSOLL_HD static search_problem in(scratch& memory, search_problem const& sizes) {
    search_problem result = sizes;
    index_t const layers = sizes.layer_count;
    index_t const slots = sizes.where.ranges.slots;
    memory.take(result.layers, layers);
    memory.take(result.units, 1);
    memory.take(result.shares, layers * (sizes.experts + 1) * sizes.steps);
    memory.take(result.use, layers * sizes.experts);
    memory.take(result.expert_of, layers * slots);
    memory.take(result.totals, layers * sizes.steps);
    memory.take(result.bounds, layers * sizes.steps);
    memory.take(result.table, sizes.where.ranks() * sizes.table_width);
    memory.take(result.found, layers * sizes.restarts * slots);
    memory.take(result.scores, layers * sizes.restarts);
    memory.take(result.swaps, layers * sizes.restarts);
    return result;
  }

  /// Returns the tokens `[experts + 1, steps]` of one copy of each expert of a layer.
  [[nodiscard]] PLIMSOLL_HD double* shares_of(index_t layer) const {
    return shares + layer * (experts + 1) * steps;
  }
  template <class Cost>
  [[nodiscard]] PLIMSOLL_HD search_price<Cost> price_in(search_layer const& layer,
                                                        Cost const& cost) const {
    return {cost, *units, table, table_width, layer.is_whole ? units->tabulated : 0};
  }
};

/// Prepares a layer's trace for its restarts: replicas, shares and totals. Problem = layer.
template <class Loads, class Cost>
struct search_input_body : search_problem {
  using device_team = block<256>;

  Loads loads;                                   ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> replica_count;  ///< `[layers, experts]` or empty: one copy each
  Cost cost;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int64_t>(experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const first_item = memory.take<std::int64_t>(experts);
    search_layer result{};
    problem_report outcome = refuse_cost_speeds(team, cost, where.ranks(),
                                                [this](index_t r) { return where.is_active(r); });
    if (!outcome.refused) {
      outcome = number_items(team, layer, first_item, result);
    }
    if (!outcome.refused) {
      auto const row = [=, this](index_t i) { return loads(i / experts, layer, i % experts); };
      load_scale const scale = scale_loads(team, steps * experts, row);
      outcome = scale.report();
      if (outcome.refused.kind == fault_kind::load) {
        outcome.refused.also = outcome.refused.where / experts;
        outcome.refused.where %= experts;
      } else if (!outcome.refused) {
        share_out(team, layer, scale.shift, first_item, result);
        outcome = refuse_cost(team, layer, result);
      }
    }
    result.is_usable = !outcome.refused;
    team.single([=, this] {
      layers[layer] = result;
      reports[layer] = outcome;
    });
  }

 private:
  [[nodiscard]] PLIMSOLL_HD std::int32_t copies_of(index_t layer, index_t e) const {
    return replica_count.data == nullptr ? 1 : replica_count(layer, e);
  }

  /// Numbers the replicas expert by expert and checks offsets, liveness and counts.
  template <class Team>
  PLIMSOLL_HD problem_report number_items(Team& team, index_t layer, std::int64_t* first_item,
                                          search_layer& result) const {
    index_t const ranks = where.ranks();
    index_t const rank = where.ranges.first_fault(team, layer);
    if (rank < ranks) {
      return refusal(fault_kind::rank_offsets, rank, where.ranges.end(layer, rank));
    }
    if (where.active.data != nullptr &&
        !team.any(ranks, [this](index_t r) { return where.is_active(r); })) {
      return refusal(fault_kind::no_rank);
    }
    index_t const bad = team.min(experts, [=, this](index_t e) {
      std::int32_t const copies = copies_of(layer, e);
      return copies >= 1 && copies <= rank_limit ? experts : e;
    });
    if (bad < experts) {
      return refusal(fault_kind::copies, bad, copies_of(layer, bad));
    }
    std::int64_t const items = team.exclusive_scan(
        experts, [=, this](index_t e) { return std::int64_t{copies_of(layer, e)}; }, first_item);
    index_t const slots =
        team.sum(ranks, [=, this](index_t r) { return where.slots_of(layer, r); });
    if (items > slots) {
      return refusal(fault_kind::copies_total, -1, items);
    }
    result.items = static_cast<std::int32_t>(items);
    result.has_replicas = items > experts;
    return problem_report{};
  }

  template <class Team>
  PLIMSOLL_HD void share_out(Team& team, index_t layer, int shift, std::int64_t const* first_item,
                             search_layer& result) const {
    auto const part_of = [=, this](index_t t, index_t e) {
      return share(to_fixed(loads(t, layer, e), shift), copies_of(layer, e));
    };
    team.for_each(experts + 1, [=, this](index_t e) {
      double* const out = shares_of(layer) + e * steps;
      std::uint64_t sum = 0;
      for (index_t t = 0; t < steps; ++t) {
        fixed_load const part = e < experts ? part_of(t, e) : 0;
        out[t] = from_fixed(part, shift);
        sum += part;
      }
      if (e < experts) {
        use[layer * experts + e] = sum;
        for (std::int32_t copy = 0; copy < copies_of(layer, e); ++copy) {
          expert_of[layer * where.ranges.slots + first_item[e] + copy] =
              static_cast<std::int32_t>(e);
        }
      }
    });
    team.for_each(steps, [=, this](index_t t) {
      fixed_load sum = 0;
      for (index_t e = 0; e < experts; ++e) {
        sum += to_fixed(loads(t, layer, e), shift);
      }
      totals[layer * steps + t] = from_fixed(sum, shift);
    });
    result.most_tokens =
        team.max(steps, [=, this](index_t t) { return totals[layer * steps + t]; });
    result.is_rounded = team.any(experts * steps, [=, this](index_t i) {
      return is_rounded(loads(i % steps, layer, i / steps), shift);
    });
    bool const is_exact = !result.is_rounded && !team.any(experts * steps, [=, this](index_t i) {
      fixed_load const load = to_fixed(loads(i % steps, layer, i / steps), shift);
      return part_of(i % steps, i / steps) * static_cast<fixed_load>(copies_of(layer, i / steps)) !=
             load;
    });
    result.grain = !is_exact ? scale_by_power_of_two(1.0, -shift) : 0.0;
    result.is_whole = !team.any(experts * steps, [=, this](index_t i) {
      double const tokens = shares_of(layer)[i];
      return whole_tokens(tokens) != tokens;
    });
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse_cost(Team& team, index_t layer, search_layer& result) const {
    index_t const ranks = where.ranks();
    auto const busy = [=, this](index_t i) {
      return where.slots_of(layer, i / steps) > 0
                 ? cost(i / steps, totals[layer * steps + i % steps])
                 : 0.0;
    };
    index_t const bad = team.min(ranks * steps, [=, this](index_t i) {
      double const idle = where.slots_of(layer, i / steps) > 0 ? cost(i / steps, 0.0) : 0.0;
      return idle >= 0 && busy(i) >= idle && busy(i) < 0x1p960 ? ranks * steps : i;
    });
    if (bad < ranks * steps) {
      return refusal(fault_kind::cost, bad / steps, busy(bad), bad % steps);
    }
    result.top = longest_of_use(team, layer, result);
    return problem_report{};
  }

  /// Returns the longest possible latency, limited to 2^20 times the latency that no step exceeds
  /// if all replicas are on the fastest ranks with enough slots for them. Without the limit a
  /// single far slower rank would make the unit so large that the latencies of the others vanish.
  template <class Team>
  PLIMSOLL_HD double longest_of_use(Team& team, index_t layer, search_layer const& known) const {
    index_t const ranks = where.ranks();
    auto const latency = [=, this, tokens = known.most_tokens](index_t r) {
      return where.slots_of(layer, r) > 0 ? cost(r, tokens) : 0.0;
    };
    auto const idle = [=, this](index_t r) {
      return where.slots_of(layer, r) > 0 ? cost(r, 0.0) : 0.0;
    };
    double const longest = team.reduce(ranks, latency, maximum{}, 0.0);
    double const shortest = team.min(ranks, [=, this](index_t r) {
      return where.slots_of(layer, r) > 0 ? latency(r) : highest<double>;
    });
    if (multiply(shortest, 0x1p20) >= longest) {
      return longest;
    }
    // Bisection over the bits, which order non-negative doubles like their values.
    std::uint64_t low = bits_of(shortest);
    for (std::uint64_t high = bits_of(longest); low < high;) {
      std::uint64_t const middle = low + (high - low) / 2;
      index_t const room = team.sum(ranks, [=, this](index_t r) {
        return latency(r) <= double_of(middle) ? where.slots_of(layer, r) : index_t{0};
      });
      if (room >= known.items) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    double const enough = maximum{}(double_of(low), team.reduce(ranks, idle, maximum{}, 0.0));
    return minimum{}(longest, multiply(enough, 0x1p20));
  }
};

/// Chooses the unit so that all steps of a layer together have fewer than 2^61 units. Problem = 0.
struct search_units_body : search_problem {
  using device_team = warp;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t) const {
    double const top = team.reduce(
        layer_count, [this](index_t l) { return layers[l].top; }, maximum{}, 0.0);
    double const tokens = team.reduce(
        layer_count, [this](index_t l) { return layers[l].most_tokens; }, maximum{}, 0.0);
    team.single([=, this] {
      auto const limit = static_cast<double>(table_width - 1);
      *units = search_units::up_to(top, steps);
      units->tabulated = static_cast<std::int64_t>(tokens < limit ? tokens : limit) + 1;
    });
  }
};

/// Tabulates the costs of whole token counts. Problem = rank and part of its table.
template <class Cost>
struct search_table_body : search_problem {
  using device_team = warp;
  static constexpr index_t part = 1024;

  Cost cost;

  [[nodiscard]] PLIMSOLL_HD index_t parts() const { return (table_width + part - 1) / part; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const rank = problem / parts();
    index_t const first = problem % parts() * part;
    index_t const last = minimum{}(first + part, units->tabulated);
    team.for_each(maximum{}(last - first, index_t{0}), [=, this](index_t i) {
      index_t const n = first + i;
      table[rank * table_width + n] = units->floor(cost(rank, static_cast<double>(n)));
    });
  }
};

/// Computes a lower bound of each step's latency: the largest of the time of an idle rank, of the
/// heaviest replica on the fastest rank, and of all ranks together if tokens could be divided at
/// will. The last one is a bisection over time. Problem = layer and step.
template <class Cost>
struct search_bound_body : search_problem {
  using device_team = warp;
  /// Number of parts into which a step's tokens are divided.
  static constexpr std::int32_t parts = 1 << 16;
  /// The bisection stops at a relative width of 2^-precision.
  static constexpr int precision = 14;

  Cost cost;

  /// Numbers of parts, `[ranks]`.
  struct arrays {
    std::int32_t* some;    ///< that a rank can do in time
    std::int32_t* enough;  ///< that it cannot do in time
    std::int32_t* now;

    [[nodiscard]] PLIMSOLL_HD static arrays in(scratch& memory, index_t ranks) {
      arrays result{};
      memory.take(result.some, ranks);
      memory.take(result.enough, ranks);
      memory.take(result.now, ranks);
      return result;
    }
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(where.ranks());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layer = problem / steps;
    index_t const step = problem % steps;
    index_t const ranks = where.ranks();
    if (!layers[layer].is_usable) {
      return;
    }
    auto const price = price_in(layers[layer], cost);
    arrays const local = arrays::in(memory, ranks);
    double const total = totals[problem];
    double const heaviest =
        team.max(experts, [=, this](index_t e) { return shares_of(layer)[e * steps + step]; });
    auto const least = [=, this, &team](double tokens) {
      return team.min(ranks, [=, this](index_t r) {
        return where.slots_of(layer, r) > 0 ? price(r, tokens) : highest<std::int64_t>;
      });
    };
    std::int64_t const idle = team.max(ranks, [=, this](index_t r) {
      return where.slots_of(layer, r) > 0 ? price(r, 0.0) : std::int64_t{0};
    });
    std::int64_t low = maximum{}(idle, least(heaviest)) - 1;  // too short
    std::int64_t high = maximum{}(idle, least(total));        // long enough
    team.for_each(ranks, [=, this](index_t r) {
      local.some[r] = 0;
      local.enough[r] = where.slots_of(layer, r) > 0 ? parts + 1 : 1;
    });
    // Keeps 37 bits of the number of tokens, so that all multiples of a part are exact.
    double const part = multiply(double_of(bits_of(total) >> 16 << 16), 1.0 / parts);
    bool const is_whole = layers[layer].is_whole;
    while (high - low > 1 + (high >> precision)) {
      std::int64_t const time = low + (high - low) / 2;
      index_t const done = team.sum(ranks, [=](index_t r) {
        std::int32_t a = local.some[r];
        for (std::int32_t b = local.enough[r]; b - a > 1;) {
          std::int32_t const middle = a + (b - a) / 2;
          double const tokens = multiply(part, static_cast<double>(middle));
          (price(r, is_whole ? whole_tokens(tokens) : tokens) <= time ? a : b) = middle;
        }
        local.now[r] = a;
        return index_t{a} + 1;  // the rank can do less than this
      });
      bool const is_enough = done >= parts;
      team.for_each(ranks, [=](index_t r) {
        (is_enough ? local.enough[r] : local.some[r]) =
            local.now[r] + static_cast<std::int32_t>(is_enough);
      });
      (is_enough ? high : low) = time;
    }
    team.single([=, this] { bounds[problem] = low + 1; });
  }
};

}}}  // namespace plimsoll::detail

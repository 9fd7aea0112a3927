// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pieces of latency curves, and the bodies of `rank_latencies` and `step_latencies`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

struct latency_curves;
struct token_cost;

namespace detail {

/// Straight piece of a latency curve.
struct latency_piece {
  double begin;
  double latency;
  double slope;
  double limit;  ///< latency at the end of the piece, which a rounded latency must not exceed

  PLIMSOLL_HD double operator()(double tokens) const {
    return minimum{}(mul_then_add(slope, add(tokens, -begin), latency), limit);
  }
};

/// Rounds tokens up: a fraction of a token takes as long as a whole token. For 0 to below 2^53.
PLIMSOLL_HD inline double whole_tokens(double tokens) {
  auto const below = static_cast<double>(static_cast<std::int64_t>(tokens));
  return below < tokens ? below + 1 : below;
}

/// Returns piece i of the `samples + 1` pieces of a rank's curve: up to the first sample (i = 0),
/// from sample i - 1 to sample i, or past the last sample (i = samples). A piece includes its right
/// end.
template <class Curves>
PLIMSOLL_HD latency_piece piece_of(Curves const& curves, index_t rank, index_t i) {
  index_t const samples = curves.tokens.extent(0);
  index_t const row = curves.latency.extent(0) == 1 ? 0 : rank;
  auto const at = [&](index_t sample) {
    double const latency = curves.latency(row, sample);
    return curves.speeds.data == nullptr ? latency : divide(latency, curves.speeds[rank]);
  };
  bool const is_past = i == samples;
  if (i == 0 || (!is_past && curves.tokens[i] <= curves.dense_until)) {
    return {0.0, at(i), 0.0, at(i)};
  }
  index_t const to = is_past ? i - 1 : i;
  double const slope = divide(add(at(to), -at(to - 1)),
                              static_cast<double>(curves.tokens[to] - curves.tokens[to - 1]));
  return {static_cast<double>(curves.tokens[i - 1]), at(i - 1), slope,
          is_past ? highest<double> : at(i)};
}

/// Refuses speeds of a cost that are out of range. A `latency_table` has checked its speeds before.
template <class Team, class Cost, class Lives>
PLIMSOLL_HD problem_report refuse_cost_speeds(Team& team, Cost const& cost, index_t ranks,
                                              Lives lives) {
  if constexpr (std::same_as<Cost, token_cost> || std::same_as<Cost, latency_curves>) {
    if (cost.speeds.data != nullptr) {
      return topology::refuse_speeds(team, cost.speeds, ranks, lives);
    }
  }
  return problem_report{};
}

/// Number of steps of one problem of `latencies_body`.
inline constexpr index_t latency_steps = 8;

/// Body of `rank_latencies` and `step_latencies`. Problem = tile of steps and layer. Either output
/// may be empty.
template <class Loads, class Cost>
struct latencies_body {
  using device_team = warp;

  Loads loads;  ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  Cost cost;
  matrix_ref<double> of_step;  ///< `[steps, layers]`
  tensor_ref<double> of_rank;  ///< `[steps, layers, ranks]`
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD index_t problems() const {
    return (loads.extent(0) + latency_steps - 1) / latency_steps * loads.extent(1);
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<fixed_load>(loads.extent(2)) + scratch_bytes_of<double>(ranges.ranks) +
           scratch_bytes_of<index_t>(ranges.ranks + 1);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    index_t const layer = problem % loads.extent(1);
    index_t const first = problem / loads.extent(1) * latency_steps;
    index_t const last = minimum{}(first + latency_steps, loads.extent(0));
    auto* const part = memory.take<fixed_load>(experts);
    auto* const latency = memory.take<double>(ranges.ranks);
    auto* const begin = memory.take<index_t>(ranges.ranks + 1);
    team.for_each(ranges.ranks + 1, [=, this](index_t r) {
      // Invalid offsets of a placement must not lead out of bounds.
      begin[r] = minimum{}(maximum{}(ranges.begin(layer, r), index_t{0}), ranges.slots);
    });
    // A rank without experts may be dead, so its speed is not compared with the fastest.
    problem_report outcome = refuse_cost_speeds(team, cost, ranges.ranks, [=, this](index_t r) {
      bool holds = false;
      for (index_t slot = begin[r]; slot < begin[r + 1] && !holds; ++slot) {
        holds = physical_to_logical(layer, slot) >= 0;
      }
      return holds;
    });
    for (index_t step = first; step < last && !outcome.refused; ++step) {
      load_scale const scale =
          scale_loads(team, experts, [=, this](index_t e) { return loads(step, layer, e); });
      outcome = scale.report();
      if (!outcome.refused) {
        team.for_each(experts, [=, this](index_t e) {
          part[e] = share(to_fixed(loads(step, layer, e), scale.shift),
                          maximum{}(replica_count(layer, e), std::int32_t{1}));
        });
        team.for_each(ranges.ranks, [=, this](index_t r) {
          fixed_load sum = 0;
          for (index_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
            index_t const e = physical_to_logical(layer, slot);
            sum += e >= 0 && e < experts ? part[e] : 0;
          }
          latency[r] = cost(r, from_fixed(sum, scale.shift));
          if (of_rank.data != nullptr) {
            of_rank(step, layer, r) = latency[r];
          }
        });
        index_t const bad = team.min(ranges.ranks, [=, this](index_t r) {
          return latency[r] >= 0 && latency[r] < 0x1p960 ? ranges.ranks : r;
        });
        if (bad < ranges.ranks) {
          outcome = refusal(fault_kind::cost, bad, latency[bad]);
        } else if (of_step.data != nullptr) {
          double const longest = team.max(ranges.ranks, [=](index_t r) { return latency[r]; });
          team.single([=, this] { of_step(step, layer) = longest; });
        }
      }
      outcome.refused.also = step;
    }
    team.single([=, this] { reports[problem] = outcome; });
  }
};

/// Writes the mean over the steps of each layer to one row. Problem = layer.
struct mean_steps_body {
  using device_team = warp;

  matrix_ref<double const> steps;  ///< `[steps, layers]`
  index_t row;
  matrix_ref<double> means;  ///< `[rows, layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    double const sum =
        team.sum_ordered(steps.extent(0), [=, this](index_t t) { return steps(t, layer); });
    team.single(
        [=, this] { means(row, layer) = divide(sum, static_cast<double>(steps.extent(0))); });
  }
};

}  // namespace detail
}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body that judges plans: how every recorded step is balanced under each, and how long it takes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Mean and peak of the tokens of the live ranks over their speeds.
struct step_balance {
  double mean = 0;
  double peak = 0;

  [[nodiscard]] PLIMSOLL_HD bool has_load() const { return mean > 0; }
  [[nodiscard]] PLIMSOLL_HD double balancedness() const {
    return mean < peak ? divide(mean, peak) : 1.0;
  }
};
struct timed_step : step_balance {
  double seconds = 0;        ///< of the busiest rank
  double least_seconds = 0;  ///< of the slowest rank under perfect balance
};

/// For calls to which balance alone matters.
struct no_cost {};

/// Plans of layers, one per row.
struct judged_plans {
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;   ///< its layers are the rows, too
  double const* speed;  ///< `[ranks]`; 0 for dead ranks
  double total_speed;
  certificate const* peaks;  ///< `[steps, plans]` of the optimal split; null: the even split
};

/// Judges one step under one plan. Problem = step * plans + plan.
template <class Loads, class Cost>
struct step_balance_body {
  using device_team = warp;
  static constexpr bool is_timed = !std::same_as<Cost, no_cost>;
  using result = std::conditional_t<is_timed, timed_step, step_balance>;

  Loads loads;  ///< `[steps, plans, experts]`, which have been checked
  judged_plans plans;
  Cost cost;
  result* results;                    ///< `[steps, plans]`
  problem_report* reports = nullptr;  ///< `[steps, plans]`: refused costs

  struct arrays {
    scratch_ref memory;
    index_t ranks;

    double* tokens = memory.take(ranks);
    double* seconds = memory.take(is_timed ? ranks : 0);
    double* least = memory.take(is_timed ? ranks : 0);  ///< seconds under perfect balance
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(plans.ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const rows = loads.extent(1);
    index_t const step = problem / rows;
    index_t const plan = problem % rows;
    index_t const ranks = plans.ranges.ranks;
    arrays const local{memory, ranks};
    double const total = team.sum_ordered(loads.extent(2), [this, step, plan](index_t e) {
      return static_cast<double>(loads(step, plan, e));
    });
    result found;
    found.mean = divide(total, plans.total_speed);
    if (plans.peaks != nullptr) {
      found.peak = plans.peaks[problem].value;
    } else {
      team.for_each(ranks, [=, this](index_t r) { local.tokens[r] = even_tokens(step, plan, r); });
      found.peak = team.max(ranks, [=, this](index_t r) {
        return plans.speed[r] > 0 ? divide(local.tokens[r], plans.speed[r]) : 0.0;
      });
    }
    if constexpr (is_timed) {
      problem_report const outcome = set_times(team, local, step, plan, total, found);
      team.single([=, this] { reports[problem] = outcome; });
    }
    team.single([=, this] { results[problem] = found; });
  }

 private:
  /// Returns the tokens of a rank if all copies of an expert get equal shares.
  [[nodiscard]] PLIMSOLL_HD double even_tokens(index_t step, index_t plan, index_t rank) const {
    double sum = 0;
    index_t const end = plans.ranges.end(plan, rank);
    for (index_t slot = plans.ranges.begin(plan, rank); slot < end; ++slot) {
      if (std::int32_t const e = plans.physical_to_logical(plan, slot); e >= 0) {
        auto const copies = static_cast<double>(plans.replica_count(plan, e));
        sum = add(sum, divide(static_cast<double>(loads(step, plan, e)), copies));
      }
    }
    return sum;
  }

  /// Sets the times of a step, or returns the first cost that is refused.
  template <class Team>
  PLIMSOLL_HD problem_report set_times(Team& team, arrays const& local, index_t step, index_t plan,
                                       double total, result& found) const {
    index_t const ranks = plans.ranges.ranks;
    team.for_each(ranks, [=, this](index_t r) {
      index_t held = 0;
      index_t const end = plans.ranges.end(plan, r);
      for (index_t slot = plans.ranges.begin(plan, r); slot < end; ++slot) {
        held += plans.physical_to_logical(plan, slot) >= 0 ? 1 : 0;
      }
      bool const works = plans.speed[r] > 0 && held > 0;
      if (plans.peaks != nullptr) {
        local.tokens[r] = works ? minimum{}(total, multiply(found.peak, plans.speed[r])) : 0.0;
      }
      local.seconds[r] = seconds_of(r, local.tokens[r], held);
      local.least[r] = works ? seconds_of(r, multiply(found.mean, plans.speed[r]), held) : 0.0;
    });
    auto const is_time = [](double seconds) { return seconds >= 0 && seconds < 0x1p960; };
    index_t const bad = team.min(ranks, [=](index_t r) {
      return is_time(local.seconds[r]) && is_time(local.least[r]) ? ranks : r;
    });
    if (bad < ranks) {
      double const seconds = local.seconds[bad];
      return refusal(fault_kind::cost, bad, is_time(seconds) ? local.least[bad] : seconds, step);
    }
    found.seconds = team.max(ranks, [=](index_t r) { return local.seconds[r]; });
    found.least_seconds =
        minimum{}(found.seconds, team.max(ranks, [=](index_t r) { return local.least[r]; }));
    return {};
  }

  [[nodiscard]] PLIMSOLL_HD double seconds_of(index_t rank, double tokens, index_t held) const {
    if constexpr (std::same_as<Cost, moe_cost>) {
      return cost(tokens, held);
    } else {
      return cost(rank, tokens);
    }
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `decide_replan`: time and balancedness of every layer of recorded steps under a plan.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
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

/// One layer of one step under a plan.
struct replan_sample {
  double seconds = 0;        ///< of the busiest rank
  double least_seconds = 0;  ///< of the slowest rank under perfect balance
  double balancedness = 1;
  double load = 0;  ///< all tokens
};

/// Problem = step * layers + layer.
template <class Loads, class Cost>
struct replan_gate_body {
  using device_team = warp;

  Loads loads;  ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  double const* speed;  ///< `[ranks]`; 0 for dead ranks
  double total_speed;
  certificate const* peaks;  ///< `[steps, layers]` of the optimal split; null: the even split
  Cost cost;
  replan_sample* samples;   ///< `[steps, layers]`
  problem_report* reports;  ///< `[steps, layers]`

  struct arrays {
    scratch_ref memory;
    index_t experts;
    index_t ranks;

    fixed_load* part = memory.take(experts);  ///< load of one copy
    double* tokens = memory.take(ranks);
    double* seconds = memory.take(ranks);
    double* least = memory.take(ranks);  ///< seconds under perfect balance
  };

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(loads.extent(2), ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layers = loads.extent(1);
    index_t const experts = loads.extent(2);
    index_t const ranks = ranges.ranks;
    index_t const layer = problem % layers;
    index_t const step = problem / layers;
    load_scale const scale =
        scale_loads(team, experts, [=, this](index_t e) { return loads(step, layer, e); });
    problem_report outcome = scale.report();
    if (outcome.refused) {
      outcome.refused.also = step;
      team.single([=, this] { reports[problem] = outcome; });
      return;
    }
    arrays const local{memory, experts, ranks};
    team.for_each(experts, [=, this](index_t e) {
      local.part[e] = share(to_fixed(loads(step, layer, e), scale.shift), replica_count(layer, e));
    });
    fixed_load const sum_of_loads = team.sum(
        experts, [=, this](index_t e) { return to_fixed(loads(step, layer, e), scale.shift); });
    double const total = from_fixed(sum_of_loads, scale.shift);
    double const balanced = divide(total, total_speed);
    team.for_each(ranks, [=, this](index_t r) {
      fixed_load sum = 0;
      index_t held = 0;
      for (index_t slot = ranges.begin(layer, r); slot < ranges.begin(layer, r + 1); ++slot) {
        index_t const e = physical_to_logical(layer, slot);
        held += e >= 0 ? 1 : 0;
        sum += e >= 0 ? local.part[e] : 0;
      }
      bool const works = speed[r] > 0 && held > 0;
      double const tokens = peaks == nullptr ? from_fixed(sum, scale.shift)
                            : works ? minimum{}(total, multiply(peaks[problem].value, speed[r]))
                                    : 0.0;
      local.tokens[r] = tokens;
      local.seconds[r] = seconds_of(r, tokens, held);
      local.least[r] = works ? seconds_of(r, multiply(balanced, speed[r]), held) : 0.0;
    });
    index_t const bad = team.min(ranks, [=](index_t r) {
      bool const good = local.seconds[r] >= 0 && local.seconds[r] < 0x1p960 &&
                        local.least[r] >= 0 && local.least[r] < 0x1p960;
      return good ? ranks : r;
    });
    if (bad < ranks) {
      bool const is_good = local.seconds[bad] >= 0 && local.seconds[bad] < 0x1p960;
      outcome =
          refusal(fault_kind::cost, bad, is_good ? local.least[bad] : local.seconds[bad], step);
      team.single([=, this] { reports[problem] = outcome; });
      return;
    }
    double const peak = peaks == nullptr
                            ? team.max(ranks, [=](index_t r) { return local.tokens[r]; })
                            : peaks[problem].value;
    double const seconds = team.max(ranks, [=](index_t r) { return local.seconds[r]; });
    double const least = team.max(ranks, [=](index_t r) { return local.least[r]; });
    team.single([=, this] {
      samples[problem] = {seconds, minimum{}(least, seconds),
                          balanced < peak ? divide(balanced, peak) : 1.0, total};
      reports[problem] = {};
    });
  }

 private:
  [[nodiscard]] PLIMSOLL_HD double seconds_of(index_t rank, double tokens, index_t held) const {
    if constexpr (std::same_as<Cost, moe_cost>) {
      return cost(tokens, held);
    } else {
      return cost(rank, tokens);
    }
  }
};

}}}  // namespace plimsoll::detail

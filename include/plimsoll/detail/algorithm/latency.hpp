// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `rank_latencies` and `step_latencies`, and of means over steps.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/common/step_tiles.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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

/// Outputs of a replay of latencies. Either may be empty.
struct latency_outputs {
  matrix_ref<double> of_step = {};  ///< `[steps, layers]`
  tensor_ref<double> of_rank = {};  ///< `[steps, layers, ranks]`
};

/// Problems of `latencies_body`.
using latency_tiles = step_tiles<8>;

/// Body of `rank_latencies` and `step_latencies`. Problem = tile of steps and layer.
template <class Loads, class Cost>
struct latencies_body {
  using device_team = warp;

  Loads loads;  ///< `[steps, layers, experts]`
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  Cost cost;
  latency_outputs out;
  problem_report* reports;

  struct arrays {
    scratch_ref memory;
    index_t experts;
    index_t ranks;

    fixed_load* part = memory.take(experts);  ///< load of one copy
    double* latency = memory.take(ranks);
    index_t* begin = memory.take(ranks + 1);  ///< first slot of each rank
  };

  [[nodiscard]] PLIMSOLL_HD latency_tiles tiles() const {
    return {loads.extent(0), loads.extent(1)};
  }
  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return tiles().problems(); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(loads.extent(2), ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    step_tile const tile = tiles().tile(problem);
    index_t const layer = tile.layer;
    arrays const local{memory, experts, ranges.ranks};
    team.for_each(ranges.ranks + 1, [=, this](index_t r) {
      // Invalid offsets of a placement must not lead out of bounds.
      local.begin[r] = minimum{}(maximum{}(ranges.begin(layer, r), index_t{0}), ranges.slots);
    });
    // A rank without experts may be dead, so its speed is not compared with the fastest.
    problem_report outcome = refuse_cost_speeds(team, cost, ranges.ranks, [=, this](index_t r) {
      bool holds = false;
      for (index_t slot = local.begin[r]; slot < local.begin[r + 1] && !holds; ++slot) {
        holds = physical_to_logical(layer, slot) >= 0;
      }
      return holds;
    });
    for (index_t step = tile.first; step < tile.last && !outcome.refused; ++step) {
      load_scale const scale =
          scale_loads(team, experts, [=, this](index_t e) { return loads(step, layer, e); });
      outcome = scale.report();
      if (!outcome.refused) {
        team.for_each(experts, [=, this](index_t e) {
          local.part[e] = share(to_fixed(loads(step, layer, e), scale.shift),
                                maximum{}(replica_count(layer, e), std::int32_t{1}));
        });
        team.for_each(ranges.ranks, [=, this](index_t r) {
          fixed_load sum = 0;
          for (index_t slot = local.begin[r]; slot < local.begin[r + 1]; ++slot) {
            index_t const e = physical_to_logical(layer, slot);
            sum += e >= 0 && e < experts ? local.part[e] : 0;
          }
          local.latency[r] = cost(r, from_fixed(sum, scale.shift));
          if (out.of_rank.data != nullptr) {
            out.of_rank(step, layer, r) = local.latency[r];
          }
        });
        index_t const bad = team.min(ranges.ranks, [=, this](index_t r) {
          return local.latency[r] >= 0 && local.latency[r] < 0x1p960 ? ranges.ranks : r;
        });
        if (bad < ranges.ranks) {
          outcome = refusal(fault_kind::cost, bad, local.latency[bad]);
        } else if (out.of_step.data != nullptr) {
          double const longest =
              team.max(ranges.ranks, [=](index_t r) { return local.latency[r]; });
          team.single([=, this] { out.of_step(step, layer) = longest; });
        }
      }
      outcome.refused.also = step;
    }
    team.single([=, this] { reports[problem] = outcome; });
  }
};

}}}  // namespace plimsoll::detail

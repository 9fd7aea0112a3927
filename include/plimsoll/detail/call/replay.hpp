// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `replay`: checks shapes and options, launches the bodies, and names refused values.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/history.hpp>
#include <plimsoll/detail/algorithm/replay.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/replay_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Loads>
void expect_replay(std::string_view function, Loads const& loads, placement_ref const& placement,
                   replay_options const& options, matrix_ref<double> const& balancedness) {
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  index_t const rows = placement.physical_to_logical.extent(0);
  auto const& counts = placement.replica_count;
  expect_between(function, "loads", 1, 0x7fffffff, loads.extent(0), "steps");
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_extent(function, "balancedness", layers, balancedness.extent(1), "layers");
  expect_extent(function, "placement.physical_to_logical", balancedness.extent(0) * layers, rows,
                "rows (plans * layers)");
  expect_ranked(function, placement, experts);
  expect_extent(function, "placement.replica_count", rows, counts.extent(0),
                "rows (plans * layers)");
  expect_extent(function, "placement.replica_count", experts, counts.extent(1), "experts");
  expect_elements(function, "placement.replica_count", counts);
  static_cast<void>(with_ranks_of(function, options.on, placement.ranks));
  expect_no_speeds(function, options.on, "balancedness counts tokens");
  expect_enumerator(function, "options.split", split_rule::optimal, options.split);
}

inline index_t replay_reports(index_t steps, index_t layers) {
  return replay_tiles(steps) * layers;
}

/// Enqueues a replay. `reports` must have `replay_reports` elements.
template <class Context, class Loads>
void enqueue_replay(Context const& context, Loads const& loads, placement_ref const& placement,
                    vector_ref<std::uint8_t const> active, matrix_ref<double> balancedness,
                    problem_report* reports) {
  auto const& map = placement.physical_to_logical;
  index_t const steps = loads.extent(0);
  index_t const rows = map.extent(0);
  buffer<double, Context> const memory(context, rows * replay_tiles(steps));
  matrix_ref<double> const sums(memory.data(), rows, replay_tiles(steps));
  replay_body<Loads> const body{.loads = loads,
                                .physical_to_logical = map,
                                .replica_count = placement.replica_count,
                                .ranges = {placement.rank_offsets, map.extent(1), placement.ranks},
                                .active = active,
                                .plans = balancedness.extent(0),
                                .sums = sums,
                                .reports = reports};
  launch(context, body.problems(), body);
  launch(context, rows, step_means_body<matrix_ref<double const>>{sums, steps, balancedness});
}

}}}  // namespace plimsoll::detail

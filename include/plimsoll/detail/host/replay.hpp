// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `replay`: checks of shapes and options, and messages about refused values.
#pragma once

#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/fixed_load.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
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
}

inline void throw_replay_fault(refused_value const& of) {
  throw_load_fault(of);
  throw_map_fault(of);
}

}}}  // namespace plimsoll::detail

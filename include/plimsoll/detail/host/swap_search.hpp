// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `swap_search`: checks of shapes and options.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/swap_search_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the number of slots of a placement that is to be made.
inline void expect_slots(std::string_view name, index_t experts, index_t slots) {
  expect_between(name, "slots", experts, expert_limit, slots, "slots (at least one per expert)");
}

inline void expect_searchable(std::string_view name, index_t steps, index_t layers, index_t experts,
                              index_t slots, swap_search_options const& options) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_rank_set(name, options.on);
  expect_no_speeds(name, options.on, "the cost of a rank includes its speed");
  expect_between(name, "physical_to_logical", experts, expert_limit, slots,
                 "slots (at least one per expert)");
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  if (is_given(name, "options.replica_count", options.replica_count)) {
    expect_extent(name, "options.replica_count", layers, options.replica_count.extent(0), "layers");
    expect_extent(name, "options.replica_count", experts, options.replica_count.extent(1),
                  "experts");
  }
  expect_between(name, "options.restarts", 1, 1 << 24, options.restarts, "restarts");
  expect_between(name, "options.max_swaps", 0, INT32_MAX, options.max_swaps, "swaps");
  expect_between(name, "options.max_plateau_moves", 0, INT32_MAX, options.max_plateau_moves,
                 "swaps");
  expect_between(name, "options.max_perturbations", 0, 1 << 24, options.max_perturbations,
                 "perturbations");
  expect_number(name, "options.min_gain", 0, 1, options.min_gain);
  if (!(options.noise >= 0 && options.noise < 1)) {
    fail(name, "options.noise", "a number from 0 to below 1", text(options.noise));
  }
  if (!(options.quantile > 0 && options.quantile <= 1)) {
    fail(name, "options.quantile", "a number above 0, at most 1", text(options.quantile));
  }
}

}}}  // namespace plimsoll::detail

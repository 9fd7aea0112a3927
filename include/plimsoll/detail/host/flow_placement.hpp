// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `flow_placement`: checks of shapes and options, and its reports.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the inputs of `flow_placement`; `holder` is the argument that gives the number of slots.
inline void expect_flow_placement(std::string_view name, index_t steps, index_t layers,
                                  index_t experts, index_t slots,
                                  flow_placement_options const& options, std::string_view holder) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_between(name, holder, experts, expert_limit, slots, "slots (at least one per expert)");
  expect_rank_set(name, options.on);
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  expect_between(name, "options.max_partners", 0, rank_limit, options.max_partners, "partners");
}

/// Returns the reports, which the body writes as certificates.
inline std::vector<flow_placement_report> flow_reports(std::vector<certificate> const& written) {
  std::vector<flow_placement_report> result;
  for (certificate const& one : written) {
    result.push_back({one.work, static_cast<index_t>(one.value)});
  }
  return result;
}

}}}  // namespace plimsoll::detail

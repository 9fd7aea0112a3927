// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `replicate`: checks shapes and options, launches the body, and names refused values.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replication.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/replication_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the inputs common to `replicate` and the systems built on it; `argument` is the argument
/// that gives the number of slots.
inline void expect_replicable(std::string_view function, std::string_view argument, index_t experts,
                              index_t slots) {
  expect_between(function, "loads", 1, expert_limit, experts, "experts");
  expect_between(function, argument, experts, experts + rank_limit - 1, slots,
                 "slots (at least one per expert)");
}

/// Checks the inputs of `replicate`.
inline void expect_replication_options(std::string_view function, index_t layers, index_t experts,
                                       index_t slots, replication_options const& options) {
  expect_replicable(function, "slots", experts, slots);
  // Required anti-affinity limits the copies by the ranks, so that it needs them.
  if (options.where.on.ranks != 0 || requires_anti_affinity(options.where)) {
    expect_placeable(function, layers, experts, slots, options.where, "options.where");
  }
  expect_placement_values(function, "options.where", options.where);
  expect_between(function, "options.min_copies", 1, rank_limit, options.min_copies, "copies");
  expect_between(function, "options.max_copies", 1, rank_limit, options.max_copies, "copies");
  checked_call call(function, {{"experts", experts}});
  call.expect_given("options.min_copies_each", options.min_copies_each, "[experts]");
  call.expect_given("options.max_copies_each", options.max_copies_each, "[experts]");
}

template <class Context, class Loads>
void enqueue_replicate(Context const& context, Loads const& loads, index_t slots,
                       replication_options const& options, matrix_ref<std::int32_t> replica_count,
                       problem_report* reports) {
  launch(context, loads.extent(0),
         replication_body<Loads>{.loads = loads,
                                 .slots = slots,
                                 .where = topology_of(options.where, slots),
                                 .rule = rule_of(options.where),
                                 .least = {options.min_copies, options.min_copies_each},
                                 .most = {options.max_copies, options.max_copies_each},
                                 .load_exponent = options.where.load_exponent,
                                 .replica_count = replica_count,
                                 .reports = reports});
}

}}}  // namespace plimsoll::detail

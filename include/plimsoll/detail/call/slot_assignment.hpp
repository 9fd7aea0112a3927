// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `assign_slots`: checks options, launches the body, and names refused values.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/slot_assignment.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/slot_assignment_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_slot_assignment_options(std::string_view function,
                                           slot_assignment_options const& options) {
  expect_rank_set(function, options.on);
  expect_no_speeds(function, options.on, "slots are divided by number");
  expect_enumerator(function, "options.remainder", remainder_spread::endpoints, options.remainder);
}

/// Divides the slots of `plans` plans, which have the same number of consecutive rows, and writes
/// one report per plan. Totals of ranks start at 0 in every plan.
template <class Context>
void enqueue_slot_assignment(Context const& context, vector_ref<std::int32_t const> layer_slots,
                             index_t plans, slot_assignment_options const& options,
                             matrix_ref<std::int32_t> rank_offsets, problem_report* reports) {
  launch(context, plans,
         slot_assignment_body{.layer_slots = layer_slots,
                              .layers = layer_slots.extent(0) / plans,
                              .active = options.on.active,
                              .ranks = options.on.ranks,
                              .endpoints = options.remainder == remainder_spread::endpoints,
                              .rank_offsets = rank_offsets,
                              .reports = reports});
}

}}}  // namespace plimsoll::detail

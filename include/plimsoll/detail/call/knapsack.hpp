// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `knapsack` and `knapsack_curve`: checks shapes and options, launches the body, and
/// names refused values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/knapsack.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/knapsack_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_capacity(std::string_view function, knapsack_options const& options) {
  expect_between(function, "options.capacity", 0, index_t{1} << 30, options.capacity,
                 "units of weight");
}

template <class Weights>
void expect_knapsack(checked_call& call, Weights const& weights, knapsack_options const& options) {
  expect_between(call, "weights", weights.extent(1) > 0 ? 1 : 0, expert_limit, weights.extent(2),
                 "options");
  expect_capacity(call, options);
  expect_enumerator(call, "options.fill", knapsack_fill::exactly, options.fill);
  expect_enumerator(call, "options.choice", class_choice::at_most_one, options.choice);
  call.expect_given("options.capacities", options.capacities, "[problems]");
  call.expect_given("options.option_count", options.option_count, "[problems, classes]");
}

/// Enqueues knapsacks, one report per problem. `choices` and `curve` may be empty: they are not
/// written then.
template <class Context, class Weights, class Values>
void enqueue_knapsack(Context const& context, Weights const& weights, Values const& values,
                      knapsack_options const& options, matrix_ref<std::int32_t> choices,
                      matrix_ref<double> curve, problem_report* reports) {
  launch(context, weights.extent(0),
         knapsack_body<Weights, Values>{.weights = weights,
                                        .values = values,
                                        .counts = options.option_count,
                                        .capacity = options.capacities,
                                        .largest_capacity = options.capacity,
                                        .exact = options.fill == knapsack_fill::exactly,
                                        .may_skip = options.choice == class_choice::at_most_one,
                                        .choices = choices,
                                        .curve = curve,
                                        .reports = reports});
}

}}}  // namespace plimsoll::detail

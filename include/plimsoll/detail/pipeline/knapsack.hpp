// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launch of `knapsack` and `knapsack_curve`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/knapsack.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/knapsack_types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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

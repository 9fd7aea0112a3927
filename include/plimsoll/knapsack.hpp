// SPDX-License-Identifier: Apache-2.0
/// @file
/// Multiple-choice knapsack: picks one option of every class so that the total value is largest
/// within a capacity.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/knapsack.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/knapsack_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Solves multiple-choice knapsack problems: picks one option of every class so that the
/// total value is largest within the capacity.
///
/// Ties between best choices are broken from the last class to the first: each class takes none if
/// that is allowed and leads to the best value, else its first option that does. CRAFT divides
/// replicas among layers this way (algorithm 2): a class is a layer, and an option a number of
/// replicas.
///
/// @param weights `[problems, classes, options]` int32, int64 or generated, at least 0, in the
///   policy's memory
/// @param values `[problems, classes, options]` float, double or generated, of any sign, magnitudes
///   below 2^960
/// @param options capacity, how it is filled, and whether a class may take no option
/// @param[out] choices `[problems, classes]` int32: the chosen option of every class; -1 for none,
///   and for all classes of a problem without a solution
/// @return one certificate per problem. Its value is the sum of the chosen values, its bound equals
///   the value, and its status is optimal; or value 0 and status infeasible if no choice meets the
///   capacity. work = cells of the table. Values are added in the order of the classes, and each
///   sum is rounded; `optimal` refers to these rounded sums. They are exact if doubles represent
///   them, such as integers below 2^53
/// @throws invalid_input for wrong shapes and options; and for wrong weights, values, capacities
///   and option counts, naming problem, class and option, in which case `choices` is unspecified
/// @complexity O(classes * capacity * options) per problem
/// @workspace for each problem in flight, 2 bytes per class and unit of capacity, 16 bytes per unit
///   of capacity, 16 bytes per option of a class, 8 bytes per class and 56 more; and 64 bytes per
///   problem
/// @stream synchronizes once
/// @determinism the same bits under every policy: values are added in the order of the classes
template <execution_policy P, class Weights, class Values, class Choices>
std::vector<certificate> knapsack(P const& policy, Weights const& weights, Values const& values,
                                  knapsack_options const& options, Choices&& choices) {
  detail::checked_call call("knapsack");
  auto const weight =
      PLIMSOLL_INPUT_OF("int32 or int64", call, "knapsack", weights, "[problems, classes, options]",
                        detail::one_of_also_generated<std::int32_t, std::int64_t>);
  detail::expect_knapsack(call, weight, options);
  auto const value =
      PLIMSOLL_INPUT_OF("float or double", call, "knapsack", values, "[problems, classes, options]",
                        detail::one_of_also_generated<float, double>);
  auto const chosen = PLIMSOLL_OUTPUT(int32, call, "knapsack", choices, "[problems, classes]");

  auto const context = detail::resolve(policy);
  return detail::run_planning(
      call, context, weight.extent(0), 1, [&](detail::problem_report* reports) {
        detail::enqueue_knapsack(context, weight, value, options, chosen, {}, reports);
      });
}

/// @brief Computes the best value for every capacity up to `options.capacity`, from one table.
///
/// @param[out] best `[problems, options.capacity + 1]` double: element c is the value that
///   `knapsack` attains with capacity c; minus infinity if there is no solution, and beyond the
///   problem's own capacity
/// @return as `knapsack`, for the problems' capacities
/// @workspace 16 bytes per unit of capacity, 16 bytes per option of a class, 8 bytes per class and
///   56 more for each problem in flight, and 64 bytes per problem
///
/// Everything else is as for `knapsack`.
template <execution_policy P, class Weights, class Values, class Best>
std::vector<certificate> knapsack_curve(P const& policy, Weights const& weights,
                                        Values const& values, knapsack_options const& options,
                                        Best&& best) {
  detail::checked_call call("knapsack_curve");
  auto const weight = PLIMSOLL_INPUT_OF("int32 or int64", call, "knapsack_curve", weights,
                                        "[problems, classes, options]",
                                        detail::one_of_also_generated<std::int32_t, std::int64_t>);
  detail::expect_knapsack(call, weight, options);
  call.know({"options.capacity", options.capacity, "capacities"});
  auto const value = PLIMSOLL_INPUT_OF("float or double", call, "knapsack_curve", values,
                                       "[problems, classes, options]",
                                       detail::one_of_also_generated<float, double>);
  auto const curve =
      PLIMSOLL_OUTPUT(double, call, "knapsack_curve", best, "[problems, options.capacity + 1]");

  auto const context = detail::resolve(policy);
  return detail::run_planning(
      call, context, weight.extent(0), 1, [&](detail::problem_report* reports) {
        detail::enqueue_knapsack(context, weight, value, options, {}, curve, reports);
      });
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

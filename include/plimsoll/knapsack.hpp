// SPDX-License-Identifier: Apache-2.0
/// @file
/// Multiple-choice knapsack: picks one option of every class so that the total value is largest
/// within a capacity.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/knapsack.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/knapsack.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Use of the capacity: an upper limit, or an exact total.
enum class knapsack_fill : std::int32_t {
  at_most,  ///< the chosen weights add up to at most the capacity
  exactly   ///< the chosen weights add up to exactly the capacity
};

/// Number of options chosen from a class.
enum class class_choice : std::int32_t {
  one,         ///< exactly one of every class
  at_most_one  ///< one or none; none has weight 0 and value 0
};

/// Options of `knapsack` and `knapsack_curve`. Arrays are in the policy's memory.
struct knapsack_options {
  /// Capacity of every problem, 0 to 2^40; with `capacities`, an upper limit on these.
  index_t capacity = 0;
  knapsack_fill fill = knapsack_fill::at_most;
  class_choice choice = class_choice::one;
  /// `[problems]`: a capacity for each problem, 0 to `capacity`. Empty: `capacity` for all.
  vector_ref<std::int64_t const> capacities = {};
  /// `[problems, classes]`: number of options of each class, at least 1. Options beyond it are not
  /// read. Empty: all options.
  matrix_ref<std::int32_t const> option_count = {};
};

/// Weights of options: int32 or int64, stored or generated.
template <class M, int Rank>
concept weight_view =
    detail::readable<M, Rank> && (std::same_as<detail::normalized_value_t<M, Rank>, std::int32_t> ||
                                  std::same_as<detail::normalized_value_t<M, Rank>, std::int64_t>);

/// Values of options: float or double, stored or generated.
template <class M, int Rank>
concept value_view =
    detail::readable<M, Rank> && (std::same_as<detail::normalized_value_t<M, Rank>, float> ||
                                  std::same_as<detail::normalized_value_t<M, Rank>, double>);

namespace detail {

inline void expect_capacity(std::string_view name, knapsack_options const& options) {
  expect_between(name, "options.capacity", 0, index_t{1} << 40, options.capacity,
                 "units of weight");
}

inline namespace PLIMSOLL_DEVICE_ABI {

template <class Policy, class Weights, class Values>
std::vector<certificate> knapsack(std::string_view name, Policy const& policy, Weights weights,
                                  Values values, knapsack_options const& options,
                                  matrix_ref<std::int32_t> choices, matrix_ref<double> curve) {
  index_t const problems = weights.extent(0);
  index_t const classes = weights.extent(1);
  expect_between(name, "weights", classes > 0 ? 1 : 0, expert_limit, weights.extent(2), "options");
  expect_extent(name, "values", problems, values.extent(0), "problems");
  expect_extent(name, "values", classes, values.extent(1), "classes");
  expect_extent(name, "values", weights.extent(2), values.extent(2), "options");
  expect_capacity(name, options);
  if (options.capacities.data != nullptr) {
    expect_extent(name, "options.capacities", problems, options.capacities.extent(0), "problems");
  }
  if (options.option_count.data != nullptr) {
    expect_extent(name, "options.option_count", problems, options.option_count.extent(0),
                  "problems");
    expect_extent(name, "options.option_count", classes, options.option_count.extent(1), "classes");
  }
  auto const context = resolve(policy);
  buffer<problem_report, std::remove_const_t<decltype(context)>> const reports(context, problems);
  launch(context, problems,
         knapsack_body<Weights, Values>{weights, values, options.option_count, options.capacities,
                                        options.capacity, options.fill == knapsack_fill::exactly,
                                        options.choice == class_choice::at_most_one, choices, curve,
                                        reports.data()});
  return collect(name, reports, problems, throw_knapsack_fault);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

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
/// @workspace for each problem in flight, 2 bytes per class and unit of capacity and 16 bytes per
///   unit of capacity; and 64 bytes per problem
/// @stream synchronises once
/// @determinism the same bits under every policy: values are added in the order of the classes
template <execution_policy P, weight_view<3> Weights, value_view<3> Values,
          output_of<std::int32_t, 2> Choices>
std::vector<certificate> knapsack(P const& policy, Weights const& weights, Values const& values,
                                  knapsack_options const& options, Choices&& choices) {
  constexpr char const* name = "knapsack";
  auto const weight = detail::argument<3>(name, "weights", weights);
  matrix_ref<std::int32_t> const chosen = detail::argument<2>(name, "choices", choices);
  detail::expect_extent(name, "choices", weight.extent(0), chosen.extent(0), "problems");
  detail::expect_extent(name, "choices", weight.extent(1), chosen.extent(1), "classes");
  return detail::knapsack(name, policy, weight, detail::argument<3>(name, "values", values),
                          options, chosen, {});
}

/// @brief Computes the best value for every capacity up to `options.capacity`, from one table.
///
/// @param[out] best `[problems, options.capacity + 1]` double: element c is the value that
///   `knapsack` attains with capacity c; minus infinity if there is no solution, and beyond the
///   problem's own capacity
/// @return as `knapsack`, for the problems' capacities
/// @workspace 16 bytes per unit of capacity for each problem in flight, and 64 bytes per problem
///
/// Everything else is as for `knapsack`.
template <execution_policy P, weight_view<3> Weights, value_view<3> Values,
          output_of<double, 2> Best>
std::vector<certificate> knapsack_curve(P const& policy, Weights const& weights,
                                        Values const& values, knapsack_options const& options,
                                        Best&& best) {
  constexpr char const* name = "knapsack_curve";
  auto const weight = detail::argument<3>(name, "weights", weights);
  matrix_ref<double> const curve = detail::argument<2>(name, "best", best);
  detail::expect_capacity(name, options);  // so that options.capacity + 1 cannot overflow
  detail::expect_extent(name, "best", weight.extent(0), curve.extent(0), "problems");
  detail::expect_extent(name, "best", options.capacity + 1, curve.extent(1),
                        "capacities (options.capacity + 1)");
  return detail::knapsack(name, policy, weight, detail::argument<3>(name, "values", values),
                          options, {}, curve);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of multiple-choice knapsacks, without the functions that solve them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
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
  /// Capacity of every problem, 0 to 2^30; with `capacities`, an upper limit on these.
  index_t capacity = 0;
  /// Use of the capacity: an upper limit on the total weight (`at_most`), or the exact total weight
  /// (`exactly`).
  knapsack_fill fill = knapsack_fill::at_most;
  /// Number of options chosen from each class: `one`, or `at_most_one`. Choosing none has weight 0
  /// and value 0.
  class_choice choice = class_choice::one;
  /// `[problems]`: a capacity for each problem, 0 to `capacity`. Empty: `capacity` for all.
  vector_ref<std::int64_t const> capacities = {};
  /// `[problems, classes]`: number of options of each class, at least 1. Options beyond it are not
  /// read. Empty: all options.
  matrix_ref<std::int32_t const> option_count = {};
};

}}  // namespace plimsoll

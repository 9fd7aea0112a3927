// SPDX-License-Identifier: Apache-2.0
/// @file
/// The verdict of --verdict: whether the new plan is worth it, why, and what would change that.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <plimsoll/replan_gate_types.hpp>
#include <plimsoll/types.hpp>

#include "curves_file.hpp"
#include "loads.hpp"
#include "plan.hpp"

namespace examples {

/// Exit statuses of --verdict; 0 is "try it".
inline constexpr int not_now = 3;
inline constexpr int not_enough_to_tell = 4;

/// Costs that the decision takes into account.
struct decision_request {
  plimsoll::replan_options<> how = {};       ///< without `cost`
  std::optional<curve_samples> curves = {};  ///< in place of `token_us`
  double token_us = 0;                       ///< time of a token copy on a rank
  double flat_below = 0;                     ///< tokens of a rank that cost nothing
  bool counts_moves = false;  ///< an engine moves from the plan in use while it serves
  bool knows_bytes = false;   ///< the bytes of an expert are known
};

/// A verdict on a plan.
struct decision_outcome {
  plimsoll::replan_answer answer = plimsoll::replan_answer::keep;
  plimsoll::replan_judgment judged = {};
  index_t steps = 0;            ///< with load
  double step_seconds = 0;      ///< of the experts, under the plan in use
  double possible_seconds = 0;  ///< gained by perfect balance
  std::int64_t horizon = 0;     ///< steps until the next decision
  double rank_tokens = 0;       ///< mean token copies of a rank in a layer of a step
  bool counts_moves = false;
  bool knows_bytes = false;
  double flat_below = 0;

  [[nodiscard]] int exit_status() const {
    return answer == plimsoll::replan_answer::move   ? 0
           : answer == plimsoll::replan_answer::keep ? not_now
                                                     : not_enough_to_tell;
  }
  /// Returns how many more steps probably suffice to tell, at least 1.
  [[nodiscard]] std::int64_t more_steps() const;
  /// Returns the verdict with the figure behind it.
  [[nodiscard]] std::string text() const;
  /// Returns what would change it.
  [[nodiscard]] std::string change() const;
};

/// Part of the time of the experts that a plan must save to be worth the trouble.
inline constexpr double least_part = 0.01;
/// Fewest steps that --verdict judges by.
inline constexpr index_t least_steps = 4;

/// A plan to judge, and the plans that its planner made from each half of the steps, if it planned.
struct judged_plans {
  plan const& after;
  std::optional<std::array<plan, 2>> of_halves = {};
};

/// Judges on steps with load, `[steps, layers, experts]`.
[[nodiscard]] decision_outcome decide(npy::any_array const& steps, plan const& before,
                                      judged_plans const& plans, decision_request const& request);

/// Returns the steps from `first` up to, but not including, `last` as a file of that name.
[[nodiscard]] load_file part_of(npy::any_array const& steps, index_t first, index_t last,
                                std::string const& name);

}  // namespace examples

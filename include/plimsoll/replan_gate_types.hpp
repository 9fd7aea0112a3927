// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and decisions of `decide_replan`.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Answer to the question whether a new plan should replace the one in use.
enum class replan_answer : std::int32_t {
  keep,                  ///< the plan in use stays: moving costs more than it gains
  move,                  ///< moving pays
  insufficient_evidence  ///< steps are too few or too unlike to tell; the plan in use stays
};

/// Plan that might replace the one in use, and the plans that judge its planner. All have the
/// shape, ranks and rank offsets of the plan in use, whose slots they share best: `align` them.
struct replan_candidate {
  /// The plan that would come into use.
  placement_ref plan = {};
  /// Plan of the same planner for the first half of the steps with load: with load in every step,
  /// [0, steps / 2). Empty, like the next one: `plan` is judged on all steps, and must not have
  /// been made from them.
  placement_ref of_first_half = {};
  /// Plan of the same planner for the steps from the first one of the second half on.
  placement_ref of_second_half = {};
};

/// Costs of a step and of moves, and the evidence that moving needs. Arrays are in the policy's
/// memory.
/// @tparam Cost callable as cost(rank, tokens) -> double, or `moe_cost`
template <class Cost = moe_cost>
struct replan_options {
  /// Ranks: nodes, liveness and, for the optimal split, speeds. `on.ranks` is that of the
  /// placements or 0.
  rank_set on = {};
  /// Split of an expert's tokens among its copies: `optimal`, as by `minmax_lp`, or `even`.
  split_rule split = split_rule::optimal;
  /// Seconds that a rank needs for its tokens in one layer of one step, from 0 to below 2^960 and
  /// not falling as tokens rise: `moe_cost`, `token_cost`, `latency_curves`,
  /// `latency_table::cost()`, or your own, which runs where the policy runs.
  Cost cost = {};
  /// Steps until the next decision, at least 1: the time in which a move must pay.
  std::int64_t horizon = 0;
  /// Bytes of the weights of one expert in one layer, at least 1.
  std::int64_t expert_bytes = 1;
  /// Speeds from which the duration of transfers is estimated.
  transfer_bandwidths bandwidths = {};
  /// Rule of the rounds of transfers.
  round_rule rounds = round_rule::one_peer;
  /// Part of the duration of transfers that steps wait for, from 0 to 1: 1 if serving stops, less
  /// if transfers run beside it.
  double transfer_share = 1;
  /// Seconds that serving stops for each layer that changes, in addition to its transfers.
  double layer_stall = 0;
  /// Fewest steps with load that are evidence, at least 1.
  index_t least_steps = 4;
  /// Standard errors that a gain must exceed to be one, at least 0.
  double standard_errors = 1;
  /// Mean balancedness from which the plan in use stays whatever a candidate gains, from 0 to 1.
  double enough_balancedness = 1;
};

/// Judgment of a move, of one layer or of all layers. Means are over the steps with load.
struct replan_judgment {
  /// Whether the plan in use stays.
  replan_answer answer = replan_answer::keep;
  /// Mean balancedness of the steps that the plans had not seen, less that of the plan in use.
  double gain = 0;
  /// Seconds by which these steps are shorter in the mean: the layers' busiest ranks, added up.
  double gain_seconds = 0;
  /// Standard error of `gain_seconds`, from the gains of every layer in up to 16 blocks of
  /// neighboring steps: such steps are alike.
  double standard_error = 0;
  /// Seconds that serving waits for the move.
  double move_seconds = 0;
  /// Steps after which the gain has made up for the move, rounded up; infinity without a gain.
  double break_even_steps = 0;
  /// Slots that change.
  slot_changes changes = {};
};

/// Judgment of a candidate: all layers together, and each one.
struct candidate_judgment : replan_judgment {
  std::vector<replan_judgment> layers;
};

/// Decision of `decide_replan`.
struct replan_decision {
  /// `move` if that is the answer for a candidate, else `insufficient_evidence` if that is, else
  /// `keep`.
  replan_answer answer = replan_answer::keep;
  /// With `move`: index of the candidate that gains most until the next decision, less the cost of
  /// moving; else -1.
  index_t chosen = -1;
  /// In the order of the candidates.
  std::vector<candidate_judgment> candidates;
  /// Number of steps with load.
  index_t steps = 0;
  /// Mean balancedness of the plan in use, over the layers with load of these steps.
  double balancedness = 1;
  /// Mean seconds of a step under the plan in use: the layers' busiest ranks, added up.
  double step_seconds = 0;
  /// Seconds by which a step would be shorter if every layer were perfectly balanced: no plan gains
  /// more.
  double possible_seconds = 0;
};

}}  // namespace plimsoll

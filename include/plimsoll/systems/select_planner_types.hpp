// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and report of `select_planner`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A planner that `select_planner` may choose.
enum class planner : std::int32_t {
  flow_optimal,  ///< `place_by_flow` for the optimal split: with the graph of partners
  flow_even,     ///< `place_by_flow` for the even split: without the graph
  eplb,          ///< `eplb` on the summed loads
  eplb_shrunk,   ///< `eplb` with `load_exponent`
  eplb_spread,   ///< `eplb` with at most one copy of an expert on a rank
  eplb_joint     ///< `eplb` with `load_exponent` and `eplb_refinement::joint`
};

/// Ranks with their slots, the split of later steps, and the candidates.
struct select_planner_options {
  /// Ranks: number, nodes and liveness. Speeds are refused: balancedness counts tokens. Arrays are
  /// in the policy's memory.
  rank_set on = {};
  /// `[layers, ranks + 1]`, in the policy's memory: first slot of each rank, as in
  /// `placement_options`. Empty: slots are spread evenly.
  matrix_ref<std::int32_t const> rank_offsets = {};
  /// Split of an expert's tokens among its copies in every step, under which plans are judged:
  /// `optimal`, as by `minmax_lp`, or `even`.
  split_rule split = split_rule::optimal;
  /// Candidates; of candidates that are equally good, the earlier one is chosen. Empty:
  /// `place_by_flow` for this split and for the other one, `eplb`, `eplb_shrunk` and
  /// `eplb_spread`.
  std::vector<planner> candidates = {};
  /// Exponent of the loads that `eplb_shrunk` and `eplb_joint` plan with, above 0 and at most 1.
  double load_exponent = 0.85;
  /// Further exponents of the loads that `place_by_flow` for this split plans with, above 0 and at
  /// most 1: with each it is another candidate, after that with exponent 1. 0.9, 0.8, 0.7 and 0.6
  /// are good ones.
  std::vector<double> flow_exponents = {};
  /// The plan in use, in the policy's memory, with the slots of ranks of the options: the first
  /// candidate, which is judged on all steps without planning. The plans of the others get the
  /// labels and slots with which the fewest experts move from it, as by `align`. Empty: there is
  /// none.
  placement_ref in_use = {};
  /// With `in_use`: balancedness by which a plan must be better for each move of a layer, from 0 to
  /// 1, as in `plan_within`; `price_of_move` returns it from times.
  double move_price = 0;
};

/// Judgment of one candidate.
struct planner_report {
  /// "in_use"; name of the enumerator, with an exponent of the loads as in "flow_optimal^0.9"; or
  /// the name that the caller gave.
  std::string name = {};
  /// Mean balancedness of the steps that its plans had not seen; 0 if the candidate was not judged.
  double balancedness = 0;
  /// Standard error of the mean by which it is below the best candidate.
  double standard_error = 0;
  /// Message of the error that the candidate threw. Empty: none.
  std::string error = {};
  /// Moves of a layer from the plan in use, the mean over layers and plans judged; 0 without one.
  double moves = 0;
  /// Number of steps on which its plans were judged.
  index_t steps = 0;
};

}}  // namespace plimsoll

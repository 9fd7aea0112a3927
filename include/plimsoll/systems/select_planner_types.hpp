// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and report of `select_planner`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A planner that `select_planner` may choose.
enum class planner : std::int32_t {
  flow_optimal,  ///< `flow_placement` for the optimal split: with the graph of partners
  flow_even,     ///< `flow_placement` for the even split: without the graph
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
  /// `flow_placement` for this split and for the other one, `eplb`, `eplb_shrunk` and
  /// `eplb_spread`.
  std::vector<planner> candidates = {};
  /// Exponent of the loads that `eplb_shrunk` and `eplb_joint` plan with, above 0 and at most 1.
  double load_exponent = 0.85;
};

/// Judgment of one candidate.
struct planner_report {
  /// Name of the enumerator, or the name that the caller gave.
  std::string name = {};
  /// Mean balancedness of the steps that its plans had not seen; 0 if the candidate was not judged.
  double balancedness = 0;
  /// Standard error of the mean by which it is below the best candidate.
  double standard_error = 0;
  /// Message of the error that the candidate threw. Empty: none.
  std::string error = {};
};

}}  // namespace plimsoll

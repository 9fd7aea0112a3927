// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and results of CRAFT.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/knapsack_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/slot_assignment_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Objective that the allocation of replicas maximizes.
enum class craft_objective : std::int32_t {
  gain,                ///< the sum of the layers' gains, as in CRAFT's text
  replicas_times_gain  ///< the sum of replicas times gain, as in CRAFT's algorithm 2
};

/// Budget value that lets `allocate_replicas` choose the budget from the gains.
inline constexpr index_t automatic_budget = -1;

/// Options of CRAFT. Arrays are in the policy's memory.
struct craft_options {
  /// Ranks: number, nodes and liveness. Speeds are refused: gains count tokens.
  rank_set on = {};
  /// Replicas of all layers together, at least 0, or `automatic_budget`. CRAFT's R replicas per
  /// rank are R * ranks; `replica_budget` converts bytes to replicas. The budget need not be a
  /// multiple of the ranks; the slots of the ranks over all layers then differ by at most one.
  index_t budget = automatic_budget;
  /// Numbers of replicas that a layer may get, apart from 0: rising, from at least 1. Empty: the
  /// powers of two below the number of live ranks, and that number.
  std::vector<std::int32_t> replica_counts = {};
  /// Sum that the allocation maximizes: of gains, or of replicas times gain.
  craft_objective objective = craft_objective::gain;
  /// Use of the budget: as an upper limit, or exactly, as in the table of algorithm 2.
  knapsack_fill fill = knapsack_fill::at_most;
  /// Split of a step's tokens under which gains are estimated, as in `replay_options`: that of the
  /// engine. CRAFT's is even.
  split_rule split = split_rule::even;
  /// Spread of a remainder over the ranks that tie for it, as in `slot_assignment_options`.
  remainder_spread remainder = remainder_spread::interleaved;
  /// Number of expert groups, as in `eplb_options`. CRAFT's paper has neither this option nor those
  /// that follow.
  index_t groups = 1;
  /// Hierarchical or global balancing, as in `eplb_options`.
  eplb_policy policy = eplb_policy::automatic;
  /// Part of the plan that `refine` improves afterwards, as in `eplb_options`.
  eplb_refinement refine = eplb_refinement::none;
  /// Exponent of the loads to plan with, as in `eplb_options`. Gains count the loads themselves.
  double load_exponent = 1.0;
  /// Keeps replicas of one expert on different ranks or nodes, as in `eplb_options`.
  anti_affinity replica_anti_affinity = anti_affinity::none;
  /// Soft or hard constraint, as in `eplb_options`.
  strictness anti_affinity_strength = strictness::preferred;
};

/// Estimated gain in balancedness from replicas, on the host. Balancedness is that of `replay`.
struct gain_estimate {
  /// `[counts]`: replica counts of the options, or the default counts.
  std::vector<std::int32_t> replica_counts = {};
  std::vector<double> base = {};  ///< `[layers]`: balancedness without replicas
  std::vector<double> gain = {};  ///< `[layers, counts]`: balancedness with replicas, minus base
};

/// Number of replicas of every layer, on the host.
struct replica_allocation {
  std::vector<std::int32_t> replicas = {};  ///< `[layers]`: replicas of each layer
  std::vector<double> gain = {};            ///< `[layers]`: estimated gain of these replicas
  /// Element R is the largest sum of gains with R replicas on each live rank, up to the R at which
  /// every layer may have the largest count.
  std::vector<double> curve = {};
  index_t knee = 0;    ///< The R that the automatic budget chooses
  index_t budget = 0;  ///< The budget of the options, or the automatic budget
  index_t used = 0;    ///< The sum of `replicas`: replicas that the layers get
};

/// Results of `craft`, on the host.
struct craft_plan {
  gain_estimate estimate = {};                 ///< Result of `estimate_gains`
  replica_allocation allocation = {};          ///< Result of `allocate_replicas`
  std::vector<certificate> certificates = {};  ///< `[layers]`: of `eplb` on the summed loads
};

}}  // namespace plimsoll

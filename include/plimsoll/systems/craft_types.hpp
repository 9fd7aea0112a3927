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

/// Objective that the allocation of replicas maximises.
enum class craft_objective : std::int32_t {
  gain,                ///< the sum of the layers' gains, as in CRAFT's text
  replicas_times_gain  ///< the sum of replicas times gain, as in CRAFT's algorithm 2
};

/// Budget value that lets `allocate_replicas` choose the budget from the gains.
inline constexpr index_t automatic_budget = -1;

/// Options of CRAFT. Arrays are in the policy's memory.
struct craft_options {
  /// Ranks, as in `eplb_options`. Speeds are refused: gains count tokens.
  rank_set on = {};
  /// Replicas of all layers together, at least 0, or `automatic_budget`. CRAFT's R replicas per
  /// rank are R * ranks. It need not be a multiple of the ranks; the slots of the ranks over all
  /// layers then differ by at most one.
  index_t budget = automatic_budget;
  /// Numbers of replicas that a layer may get, apart from 0: rising, from at least 1. Empty: the
  /// powers of two below the number of live ranks, and that number.
  std::vector<std::int32_t> replica_counts = {};
  craft_objective objective = craft_objective::gain;
  /// Use of the budget: as an upper limit, or exactly, as in the table of algorithm 2.
  knapsack_fill fill = knapsack_fill::at_most;
  /// As in `slot_assignment_options`.
  remainder_spread remainder = remainder_spread::interleaved;
  /// As in `eplb_options`. CRAFT's paper has none of these options.
  index_t groups = 1;
  eplb_policy policy = eplb_policy::automatic;
  eplb_refinement refine = eplb_refinement::none;
  anti_affinity replica_anti_affinity = anti_affinity::none;
  strictness anti_affinity_strength = strictness::preferred;
};

/// Estimated gain in balancedness from replicas, on the host. Balancedness is that of `replay`.
struct gain_estimate {
  /// `[counts]`: those of the options, or the default counts.
  std::vector<std::int32_t> replica_counts = {};
  std::vector<double> base = {};  ///< `[layers]`: balancedness without replicas
  std::vector<double> gain = {};  ///< `[layers, counts]`: balancedness with replicas, minus base
};

/// Number of replicas of every layer, on the host.
struct replica_allocation {
  std::vector<std::int32_t> replicas = {};  ///< `[layers]`
  std::vector<double> gain = {};            ///< `[layers]`: estimated gain of these replicas
  /// Element R is the largest sum of gains with R replicas on each live rank, up to the R at which
  /// every layer may have the largest count.
  std::vector<double> curve = {};
  index_t knee = 0;    ///< the R that the automatic budget chooses
  index_t budget = 0;  ///< the budget of the options, or the automatic budget
  index_t used = 0;    ///< the sum of `replicas`
};

/// Results of `craft`, on the host.
struct craft_plan {
  gain_estimate estimate = {};
  replica_allocation allocation = {};
  std::vector<certificate> certificates = {};  ///< `[layers]`: of `eplb` on the summed loads
};

}}  // namespace plimsoll

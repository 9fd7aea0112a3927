// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `refine`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Stopping criteria of `refine`.
struct refinement_options {
  /// Relative gap between peak and lower bound at which the search stops, 0 to 1.
  double tolerance = 1e-3;
  /// Largest number of plans with other replica counts to try, per layer (with node lists: per node
  /// of a layer); 0 keeps the counts.
  std::int64_t max_trials = 256;
  /// Largest number of randomly perturbed plans to try when no swap helps any more, per layer (with
  /// node lists: per node of a layer); never more than 2^19 / slots^2, and none in layers of more
  /// than 64 slots.
  std::int64_t max_perturbations = 1024;
  /// Price of a move, an expert that arrives on a rank: the least decrease of the load of the most
  /// loaded rank that pays for it, as a fraction of the mean load, at least 0. Above 0, the search
  /// follows one path from the given plan and stops at the first plan within the tolerance, so that
  /// a looser tolerance never moves more; neither the greedy placement nor perturbed plans are
  /// tried. The bound is then one for any counts.
  double move_price = 0;
};

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Token copies that leave their rank or their node on the way to an expert.
#pragma once

#include <vector>

#include "outcome.hpp"
#include "plan.hpp"

namespace examples {

/// Says on which ranks the tokens of each expert start, and how many nodes the ranks form.
struct token_sources {
  index_t nodes = 1;
  /// `[ranks, layers, experts]`: token copies of each expert that start on each rank. Empty, or 0
  /// on all ranks: as many on each.
  std::vector<double> copies = {};
};

/// Counts the traffic of a plan from the loads `[layers, slots]` of its slots. `from.copies` must
/// have the ranks of the plan.
[[nodiscard]] plan_traffic traffic_of(plan const& p, std::vector<double> const& slot_loads,
                                      token_sources const& from);

}  // namespace examples

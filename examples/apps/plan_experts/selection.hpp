// SPDX-License-Identifier: Apache-2.0
/// @file
/// The planner that was chosen.
#pragma once

#include <cstddef>
#include <vector>

#include <plimsoll/systems/select_planner_types.hpp>

namespace examples {

/// Candidates of `select_planner`, and the chosen one.
struct selection {
  std::vector<plimsoll::planner_report> candidates = {};
  std::size_t chosen = 0;
};

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text that plan_experts prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcome.hpp"

namespace examples {

/// Returns the dimensions, a table of balancedness and the planning time, as lines of text.
[[nodiscard]] std::string table_of(outcome const& result);

/// Lists warnings about the plan, one sentence each.
[[nodiscard]] std::vector<std::string> warnings_of(outcome const& result);

/// Returns one sentence that says whether to serve the plan, and with which options of the engine.
/// It is based on the loads of --evaluate if there are any, and on single steps if there are
/// several.
[[nodiscard]] std::string verdict_of(outcome const& result);

/// Describes how the replicas on each rank were chosen, such as "chosen at the knee".
[[nodiscard]] std::string choice_text(craft_outcome const& c);

/// The moves from the plan of --previous, in words.
struct moves_text {
  std::string ranks = {};  ///< empty if they are those of the plan in use
  std::string moves;
  std::string gain = {};  ///< empty without a limit on the moves
  std::string transfers;
  std::vector<std::string> break_even;  ///< on each file of loads
};

/// Describes the moves of `result`, which must have some.
[[nodiscard]] moves_text text_of_moves(outcome const& result);

/// Formats a number of bytes, such as "8.79 GiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What plan_experts prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcome.hpp"

namespace examples {

/// The sizes, a table of balancedness and the planning time, as lines of text.
[[nodiscard]] std::string table_of(outcome const& result);

/// Lists warnings about the plan, a sentence each.
[[nodiscard]] std::vector<std::string> warnings_of(outcome const& result);

/// Whether to serve the plan, and with which options of the engine, in one sentence. It goes by the
/// loads of --evaluate where there are any, and by single steps where there are steps.
[[nodiscard]] std::string verdict_of(outcome const& result);

/// How the replicas on each rank were chosen: "chosen at the knee".
[[nodiscard]] std::string choice_text(craft_outcome const& c);

/// "8.79 GiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

}  // namespace examples

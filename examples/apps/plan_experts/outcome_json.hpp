// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes the JSON files of results and of transfers that docs/plan_experts.md describes.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes all figures of the report, for programs.
void write_outcome(std::ostream& out, outcome const& result);

/// Writes the transfers of `result`, which must have moves.
void write_transfers(std::ostream& out, outcome const& result);

}  // namespace examples

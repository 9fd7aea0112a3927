// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes the JSON file of results that docs/plan_experts.md describes.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes all figures of the report, for programs.
void write_outcome(std::ostream& out, outcome const& result);

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file of results that docs/plan_experts.md describes.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes all that the report shows, to be read by programs.
void write_outcome(std::ostream& out, outcome const& result);

}  // namespace examples

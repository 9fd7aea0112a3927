// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sections of the report for craft.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes the gain as a function of the number of replicas, for each layer, and the replicas that
/// every layer got.
void write_craft_sections(std::ostream& out, outcome const& o);

}  // namespace examples

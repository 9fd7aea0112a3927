// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of the report that is about craft.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// What replicas gain by how many there are, by layer, and how many every layer got.
void write_craft_sections(std::ostream& out, outcome const& o);

}  // namespace examples

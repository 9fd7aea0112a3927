// SPDX-License-Identifier: Apache-2.0
/// @file
/// The report of plan_experts: one HTML file that shows how balanced the ranks were and are.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes a page that needs nothing else, neither another file nor a script, and is well-formed XML
/// as well. Both plans and all comparisons, at least one, have the same layers, experts and ranks.
void write_report(std::ostream& out, outcome const& o);

/// Writes an SVG file of what the ranks carry in one layer, before and after. `row` counts the
/// layers that the first comparison has, from 0.
void write_layer_picture(std::ostream& out, outcome const& o, index_t row);

}  // namespace examples

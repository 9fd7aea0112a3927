// SPDX-License-Identifier: Apache-2.0
/// @file
/// The report of plan_experts: one HTML file that shows the balance of the ranks before and after.
#pragma once

#include <ostream>

#include "outcome.hpp"

namespace examples {

/// Writes a self-contained page, without scripts, that is also well-formed XML. Both plans and all
/// comparisons, at least one, must have the same layers, experts and ranks.
void write_report(std::ostream& out, outcome const& o);

/// Writes an SVG file of the rank loads of one layer, before and after. `row` is the layer's row in
/// the first comparison.
void write_layer_picture(std::ostream& out, outcome const& o, index_t row);

}  // namespace examples

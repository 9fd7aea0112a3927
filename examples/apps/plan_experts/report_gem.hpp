// SPDX-License-Identifier: Apache-2.0
/// @file
/// The section of the report for gem.
#pragma once

#include <ostream>
#include <string_view>

#include "outcome.hpp"

namespace examples {

/// Writes the latency of every rank on the loads of a comparison; nothing without curves.
void write_latency_section(std::ostream& out, outcome const& o, index_t comparison,
                           std::string_view title);

}  // namespace examples

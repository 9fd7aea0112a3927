// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of the report that is about gem.
#pragma once

#include <ostream>
#include <string_view>

#include "outcome.hpp"

namespace examples {

/// How long every rank takes on the loads of a comparison; nothing where no curves say it.
void write_latency_section(std::ostream& out, outcome const& o, index_t comparison,
                           std::string_view title);

}  // namespace examples

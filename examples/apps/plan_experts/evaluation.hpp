// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures plans on loads.
#pragma once

#include <optional>

#include <plimsoll/latency.hpp>

#include "input_file.hpp"
#include "loads.hpp"
#include "outcome.hpp"
#include "plan.hpp"
#include "traffic.hpp"

namespace examples {

/// Measures two plans on the loads of a file, in one pass: their balancedness, and with curves
/// their latency. Curves and sources are for the ranks of both plans. A layer without load in a
/// step is left out.
[[nodiscard]] comparison compare(load_file const& file, load_totals const& totals,
                                 plan const& before, plan const& after,
                                 std::optional<plimsoll::latency_curves> const& curves = {},
                                 reading_progress const& progress = {},
                                 token_sources const& sources = {});

}  // namespace examples

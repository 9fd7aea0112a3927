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

namespace examples {

/// Measures two plans on the loads of a file, in one pass over it: their balance, and with curves,
/// which are for the ranks of both plans, their latency. Layers of steps without load are left out.
[[nodiscard]] comparison compare(load_file const& file, load_totals const& totals,
                                 plan const& before, plan const& after,
                                 std::optional<plimsoll::latency_curves> const& curves = {},
                                 reading_progress const& progress = {});

}  // namespace examples

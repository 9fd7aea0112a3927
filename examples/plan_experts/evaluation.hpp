// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures plans on loads.
#pragma once

#include <optional>
#include <string>

#include <plimsoll/latency.hpp>

#include "npy.hpp"
#include "outcome.hpp"
#include "plan.hpp"

namespace examples {

/// Measures two plans on loads `[steps, layers, experts]` read from the file `name`: their balance,
/// and with curves, which are for the ranks of both plans, their latency.
[[nodiscard]] comparison compare(std::string name, npy::any_array const& loads, plan const& before,
                                 plan const& after,
                                 std::optional<plimsoll::latency_curves> const& curves = {});

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures plans on loads.
#pragma once

#include <string>

#include "npy.hpp"
#include "outcome.hpp"
#include "plan.hpp"

namespace examples {

/// Measures two plans on loads `[steps, layers, experts]` read from the file `name`.
[[nodiscard]] comparison compare(std::string name, npy::any_array const& loads, plan const& before,
                                 plan const& after);

}  // namespace examples

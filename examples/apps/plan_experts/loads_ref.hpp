// SPDX-License-Identifier: Apache-2.0
/// @file
/// Views of loads.
#pragma once

#include <plimsoll/views.hpp>

namespace examples {

/// Loads `[layers, experts]` on the host.
template <class Load>
using loads_ref = plimsoll::matrix_ref<Load const>;

/// Loads `[steps, layers, experts]` on the host.
template <class Load>
using steps_ref = plimsoll::tensor_ref<Load const>;

}  // namespace examples

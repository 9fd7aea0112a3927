// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loads of slots, as engines count them that balance already: vLLM's window, vLLM Ascend's
/// `moe_load` and TensorRT-LLM's statistics.
#pragma once

#include "loads.hpp"
#include "plan.hpp"

namespace examples {

/// Adds up the slots of every expert: returns loads `[steps, layers, experts]` from those
/// `[steps, layers, slots]` of the selected layers of `slots`, which `in_use` holds. Throws
/// `file_error` for other dimensions, values that are no loads, and tokens in an empty slot.
[[nodiscard]] load_file expert_loads(load_file& slots, plan const& in_use,
                                     reading_progress const& progress = {});

}  // namespace examples

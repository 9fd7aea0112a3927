// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "command_line.hpp"

namespace split_step {

using ints = std::vector<std::int32_t>;

/// Which expert every slot holds. All ranks plan from the same history, so they plan the same.
struct layer_plan {
  ints map;     ///< [experts + replicas]
  ints copies;  ///< [experts]

  layer_plan(options const& o, int ranks);
};

}  // namespace split_step

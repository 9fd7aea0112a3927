// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "command_line.hpp"

namespace split_step {

using ints = std::vector<std::int32_t>;

/// The placement of a layer. All ranks plan it from the same history, so they get the same one.
struct layer_plan {
  ints map;     ///< [experts + replicas]
  ints copies;  ///< [experts]

  layer_plan(options const& o, int ranks);
};

}  // namespace split_step

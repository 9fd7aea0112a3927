// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `select_planner` that counts steps without load, which are not judged.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Counts the steps in which a layer has load. Problem = layer.
template <class Loads>
struct loaded_steps_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< `[steps, layers, experts]`
  std::int64_t* loaded;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    std::int64_t count = 0;
    for (index_t step = 0; step < loads.extent(0); ++step) {
      count += team.any(loads.extent(2),
                        [this, step, layer](index_t e) { return loads(step, layer, e) > 0; });
    }
    team.single([=, this] { loaded[layer] = count; });
  }
};

}}}  // namespace plimsoll::detail

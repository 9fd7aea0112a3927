// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `lplb::plan`: one team splits and rounds a layer, in one launch.
#pragma once

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/algorithm/quota.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Runs the body of `minmax_lp` and then that of `round_split` on the split that the first wrote.
/// Problem = layer.
template <class Loads>
struct lplb_plan_body {
  // A step plans few layers, so that a block for each finds room. It takes a quarter fewer
  // instructions in sequence than a warp, whose lanes go over the experts eight times.
  using device_team = block<128>;

  minmax_lp_body<Loads> split;
  quota_body<Loads> round;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return maximum{}(split.scratch_bytes(), round.scratch_bytes());
  }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    split(team, memory, layer);
    round(team, memory, layer);
  }
};

}}}  // namespace plimsoll::detail

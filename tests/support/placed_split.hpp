// SPDX-License-Identifier: Apache-2.0
// The placement and the ranks of a `split_case`, on the host.
#pragma once

#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>

#include <cstddef>
#include <vector>

#include "minmax_lp.hpp"

namespace plimsoll_test::minmax_lp_support {

/// Views of a case that outlives it. A case without offsets spreads slots evenly.
class placed_split {
 public:
  explicit placed_split(split_case const& c) : c_(c) {
    for (std::int32_t const quarter : c.quarters) {
      speeds_.push_back(quarter / 4.0);
    }
  }
  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result{.physical_to_logical = {c_.map.data(), c_.layers, c_.slots},
                                   .replica_count = {nullptr, c_.layers, c_.experts},
                                   .ranks = c_.ranks};
    if (!c_.offsets.empty()) {
      result.rank_offsets = {c_.offsets.data(), c_.layers, c_.ranks + 1};
    }
    return result;
  }
  [[nodiscard]] plimsoll::rank_set on() const {
    return {.ranks = c_.ranks, .active = c_.active, .speeds = speeds_};
  }

 private:
  split_case const& c_;
  reals speeds_;
};

}  // namespace plimsoll_test::minmax_lp_support

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `plan_within`: the plans that are compared, and the choice within the budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/migration_plan.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Budget of `plan_within` in moves.
struct move_budget {
  std::int64_t of_layer;
  std::int64_t in_total;

  explicit move_budget(migration_options const& options)
      : of_layer(std::min(options.max_moves_per_layer,
                          options.max_bytes_per_layer / options.expert_bytes)),
        in_total(std::min(options.max_moves, options.max_bytes / options.expert_bytes)) {
    of_layer = std::min(of_layer, in_total);
  }
};

/// A plan of a layer that can be chosen.
struct plan_option {
  compared_plan plan;
  slot_changes changes;
  double peak;
};

/// Keeps the plans within the budget of a layer of which none with as few moves has a smaller peak, in
/// rising order of moves. The first plan is the one in use; without moves it is the only one.
inline std::vector<plan_option> undominated(std::vector<plan_option> plans,
                                            std::int64_t most_moves) {
  std::stable_sort(plans.begin() + 1, plans.end(), [](plan_option const& a, plan_option const& b) {
    return a.changes.moves < b.changes.moves;
  });
  std::vector<plan_option> kept(1, plans.front());
  for (plan_option const& one : plans) {
    if (most_moves > 0 && one.changes.moves <= most_moves && one.peak < kept.back().peak) {
      if (one.changes.moves == kept.back().changes.moves) {
        kept.pop_back();
      }
      kept.push_back(one);
    }
  }
  return kept;
}

}}}  // namespace plimsoll::detail

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
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/pipeline/knapsack.hpp>
#include <plimsoll/detail/report.hpp>
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

/// Chooses a plan of every layer so that the sum of the peaks is smallest with at most `most_moves`
/// moves. Ties go to fewer moves.
inline std::vector<plan_option> choose_plans(std::vector<std::vector<plan_option>> const& layers,
                                             std::int64_t most_moves) {
  std::int64_t wanted = 0;
  std::size_t widest = 1;
  for (auto const& options : layers) {
    wanted += options.back().changes.moves;
    widest = std::max(widest, options.size());
  }
  std::vector<plan_option> result;
  if (wanted <= most_moves) {
    for (auto const& options : layers) {
      result.push_back(options.back());
    }
    return result;
  }
  auto const rows = static_cast<index_t>(layers.size());
  auto const columns = static_cast<index_t>(widest);
  std::vector<std::int64_t> moves(layers.size() * widest);
  std::vector<double> values(layers.size() * widest);
  std::vector<std::int32_t> counts;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (std::size_t i = 0; i < layers[layer].size(); ++i) {
      moves[layer * widest + i] = layers[layer][i].changes.moves;
      values[layer * widest + i] = -layers[layer][i].peak;
    }
    counts.push_back(static_cast<std::int32_t>(layers[layer].size()));
  }
  std::vector<std::int32_t> chosen(layers.size());
  problem_report report;
  enqueue_knapsack(host_context<inline_executor>{},
                   tensor_ref<std::int64_t const>(moves.data(), 1, rows, columns),
                   tensor_ref<double const>(values.data(), 1, rows, columns),
                   {.capacity = most_moves, .option_count = {counts.data(), 1, rows}},
                   {chosen.data(), 1, rows}, {}, &report);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    result.push_back(layers[layer][static_cast<std::size_t>(chosen[layer])]);
  }
  return result;
}

}}}  // namespace plimsoll::detail

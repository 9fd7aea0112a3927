// SPDX-License-Identifier: Apache-2.0
// Replaces create_balance_plan of rtp_llm/eplb/ep_balancer.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../planner.hpp"
#include "stand_in.hpp"

namespace rtp_llm {

/// Rank 0 has one.
class BalancePlanner {
 public:
  /// @param moe_layer_index the layers that have experts
  /// @param phy2log [layers, P]: the map in use
  /// @throws std::runtime_error if sizes or option values are wrong
  BalancePlanner(int experts, int ranks, std::vector<std::size_t> moe_layer_index,
                 std::vector<ints> phy2log, EPLBConfig const& config);

  /// Adds a step to the history of every layer, selects a layer, and plans it. Few slots get
  /// another expert, and none if steps that the plan was not made from gain nothing.
  /// @param log_stats [layers, E]: tokens of each expert since the last plan
  /// @param gpu_loads [layers, ranks]: tokens of each rank
  /// @param[out] plan all but layer_id and moe_weight
  /// @param active_ranks [ranks], 1 if live, or null; slots of other ranks are -1 in the plan
  /// @throws std::runtime_error with the planner's text; the map in use and `plan` stay
  void create_balance_plan(ints const& log_stats, ints const& gpu_loads, EplbPlanTensors& plan,
                           std::uint8_t const* active_ranks = nullptr);

 private:
  std::size_t get_balanced_layer(ints const& gpu_loads);

  expert_planner::layer_sizes sizes_;
  std::vector<std::size_t> moe_layer_index_;
  std::vector<ints> phy2log_;
  std::string balance_method_;
  expert_planner::planner planner_;
  std::size_t update_cnt_ = 0, next_ = 0;
};

}  // namespace rtp_llm

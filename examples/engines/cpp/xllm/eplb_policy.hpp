// SPDX-License-Identifier: Apache-2.0
// Replaces xllm/core/framework/eplb/eplb_policy.h: the same public functions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../planner.hpp"
#include "stand_in.hpp"

namespace xllm {

class EplbPolicy {
 public:
  /// @param device_experts_num slots of a device, redundant ones included
  EplbPolicy(std::int32_t device_experts_num, std::int32_t device_num, std::int32_t layer_num);

  /// Plans all layers. Few slots get another expert, and none if steps that the plan was not made
  /// from gain nothing.
  /// @param expert_load [layers, experts]: what the manager has summed up. It halves the sum after
  ///   each call, so what has come since is the sum less half the one before.
  /// @return the map [layers, devices, slots], and the layers whose map has changed
  /// @throws std::runtime_error with the planner's text; the map in use stays
  std::pair<Tensor<std::int32_t>, std::vector<bool>> rebalance_experts(
      Tensor<std::int64_t> const& expert_load);

 private:
  expert_planner::planner planner_;
  Tensor<std::int64_t> halved_load_;          ///< [layers, experts]: what the last call has left
  Tensor<std::int32_t> expert_distribution_;  ///< [layers, devices, slots]: the map in use
};

}  // namespace xllm

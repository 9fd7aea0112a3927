// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM's planning functions by expert_planner. placement_planner.cpp also defines
// doReplication and doPlacement, which the engine's header declares. A mask of dead ranks is
// [ranks], nonzero for a rank that is lost; null or empty, it means that no rank is. PATCH.md tells
// which call of the engine becomes which.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../planner.hpp"
#include "types.hpp"

namespace tensorrt_llm::runtime {

/// Writes `expertReplicaCount` and `placementInfoForGPU` for `rankExpertIds`. Entries of
/// `globalSlotIds` behind the last list are the number of slots. The engine's own function for
/// this, prepareGpuPlacementInfo, is in an anonymous namespace and calls this one. With the same
/// name for both, calls would be ambiguous.
/// @throws std::runtime_error
void fillGpuPlacementInfo(kernels::MoeLoadBalanceMetaInfo metaInfo,
                          MoePlacementCpuInfo* cpuPlacement);

/// Replaces `doReplication` and `doPlacement` in the task of the compute thread: plans near the
/// placement in use, from the loads of the last plans. One object has all layers.
class PlacementPlanner {
 public:
  using Log = std::function<void(std::string const& text)>;

  /// @param log takes a line for every new refusal; may be empty
  /// @throws std::runtime_error for sizes and options
  PlacementPlanner(kernels::MoeLoadBalanceMetaInfo metaInfo, int layers,
                   expert_planner::planner_options options, Log log = {});

  /// Writes `expertReplicaCount` and `rankExpertIds`; `oldRankExpertIds` is the placement in use.
  /// After a refusal they are as before. Logs a refusal once: not again while a layer has it.
  expert_planner::answer replan(int layer, float const* expertLoadFactor,
                                std::vector<std::uint8_t> const* deadRankMask,
                                MoePlacementCpuInfo* cpuPlacement) noexcept;

 private:
  expert_planner::answer plan(int layer, float const* expertLoadFactor,
                              std::vector<std::uint8_t> const* deadRankMask,
                              MoePlacementCpuInfo* cpuPlacement);
  void logRefusal(int layer, std::string const& text);

  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  expert_planner::planner mPlanner;
  Log mLog;
  std::map<int, std::string> mRefusals;  ///< of the layers whose last plan was refused
};

}  // namespace tensorrt_llm::runtime

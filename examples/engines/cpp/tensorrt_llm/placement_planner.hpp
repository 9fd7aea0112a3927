// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM's planning functions by expert_planner. A mask of dead ranks is [ranks], nonzero for
// a rank that is lost, or null. PATCH.md tells which call of the engine becomes which.
#pragma once

#include <cstdint>

#include "../planner.hpp"
#include "types.hpp"

namespace tensorrt_llm::runtime {

/// Writes `expertReplicaCount` for these loads.
/// @throws std::runtime_error where the engine's TLLM_CHECK throws
void doReplication(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                   MoePlacementCpuInfo* cpuPlacement, std::uint8_t const* deadRankMask = nullptr);

/// Writes `rankExpertIds` for `expertReplicaCount`. Ranks and slots are named so that the fewest
/// experts move from `oldRankExpertIds`.
/// @throws std::runtime_error
void doPlacement(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                 MoePlacementCpuInfo* cpuPlacement, std::uint8_t const* deadRankMask = nullptr);

/// Writes `expertReplicaCount` and `placementInfoForGPU` for `rankExpertIds`. Entries of
/// `globalSlotIds` behind the last list are the number of slots.
/// @throws std::runtime_error
void prepareGpuPlacementInfo(kernels::MoeLoadBalanceMetaInfo metaInfo,
                             MoePlacementCpuInfo* cpuPlacement);

/// Takes dead ranks out of `placementInfoForGPU` and out of the placement in use; other slots stay.
/// Returns false and changes nothing if an expert has no copy on a live rank.
/// @throws std::runtime_error
bool computeMaskOnlyReplicaCounts(kernels::MoeLoadBalanceMetaInfo metaInfo,
                                  MoePlacementCpuInfo* cpuPlacement,
                                  std::uint8_t const* deadRankMask);

/// Replaces `doReplication` and `doPlacement` in the task of the compute thread: plans near the
/// placement in use, from the loads of the last plans. One object has all layers.
class PlacementPlanner {
 public:
  /// @throws std::runtime_error for sizes and options
  PlacementPlanner(kernels::MoeLoadBalanceMetaInfo metaInfo, int layers,
                   expert_planner::planner_options options);

  /// Writes `expertReplicaCount` and `rankExpertIds`; `oldRankExpertIds` is the placement in use.
  /// After a refusal they are as before.
  expert_planner::answer replan(int layer, float const* expertLoadFactor,
                                std::uint8_t const* deadRankMask,
                                MoePlacementCpuInfo* cpuPlacement);

 private:
  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  expert_planner::planner mPlanner;
};

}  // namespace tensorrt_llm::runtime

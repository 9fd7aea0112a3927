// SPDX-License-Identifier: Apache-2.0
// Types of TensorRT-LLM that its planner reads and writes, and the two functions that its tests
// call, as moeLoadBalanceCommon.h and moeLoadBalancer.h declare them.
#pragma once

#include <cstdint>
#include <vector>

namespace tensorrt_llm::kernels {

struct MoeLoadBalanceMetaInfo {
  int expertCount = 0;
  int topK = 0;
  int epRank = 0;
  int epSize = 0;
  int slotCountPerRank = 0;
};

/// Counts and slots of the copies, from which kernels choose where tokens go.
struct MoePlacementInfo {
  int* expertReplicaCount = nullptr;        ///< [experts]
  int* expertReplicaStartOffset = nullptr;  ///< [experts]
  int* globalSlotIds = nullptr;             ///< [slots]: the slots of expert 0, of expert 1, ...
};

}  // namespace tensorrt_llm::kernels

namespace tensorrt_llm::runtime {

struct MoePlacementCpuInfo {
  std::vector<int> expertReplicaCount;             ///< [experts]
  std::vector<std::vector<int>> rankExpertIds;     ///< [ranks][slots of a rank]: the new placement
  std::vector<std::vector<int>> oldRankExpertIds;  ///< the placement in use
  kernels::MoePlacementInfo placementInfoForGPU;
};

void doReplication(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                   MoePlacementCpuInfo* cpuPlacement,
                   std::vector<std::uint8_t> const* deadRankMask = nullptr);

void doPlacement(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                 MoePlacementCpuInfo* cpuPlacement,
                 std::vector<std::uint8_t> const* deadRankMask = nullptr);

}  // namespace tensorrt_llm::runtime

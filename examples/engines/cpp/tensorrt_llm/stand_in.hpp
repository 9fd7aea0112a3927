// SPDX-License-Identifier: Apache-2.0
// The parts of TensorRT-LLM's balancer (cpp/tensorrt_llm/runtime/moeLoadBalancer) that its planner
// sees: public names, the order of calls and the waits, without GPUs. One object has all ranks; an
// expert's id takes the place of its weights. This file takes the place of moeLoadBalancer.h and
// stand_in.cpp that of moeLoadBalancer.cpp, both with the changes of PATCH.md.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "../planner.hpp"
#include "types.hpp"

namespace tensorrt_llm::runtime {

class MoeLoadBalancer;
class PlacementPlanner;

/// Copies the weights of every slot whose expert changes from host memory, and counts the copies.
class HostMemoryMoeWeightUpdater {
 public:
  explicit HostMemoryMoeWeightUpdater(kernels::MoeLoadBalanceMetaInfo const& metaInfo);

  void updateWeights(MoePlacementCpuInfo const& placement);

  [[nodiscard]] std::vector<std::vector<int>> const& weights() const { return mWeights; }
  [[nodiscard]] std::int64_t copies() const { return mCopies; }

 private:
  std::vector<std::vector<int>> mWeights;  ///< expert whose weights each slot holds
  std::int64_t mCopies = 0;
};

class SingleLayerMoeLoadBalancer {
 public:
  SingleLayerMoeLoadBalancer(kernels::MoeLoadBalanceMetaInfo const& metaInfo,
                             MoeLoadBalancer& loadBalancer, int layerId);

  /// @param initialWeightAssignments [ranks * slots of a rank]
  void setInitialWeightAssignments(std::vector<int> const& initialWeightAssignments);

  /// Counts tokens, as a kernel of the engine does; older ones decay.
  void countTokens(std::vector<std::int64_t> const& tokens);

  [[nodiscard]] MoePlacementCpuInfo const& placement() const { return mCpuPlacementInfo; }
  [[nodiscard]] HostMemoryMoeWeightUpdater const& updater() const { return mUpdater; }

 private:
  friend class MoeLoadBalancer;

  void startCpuNewIter();
  void waitLastUpdateDone();
  void updateWeightsRoutine();
  void usePlacement();

  /// Counts the copies on live ranks.
  /// @throws std::runtime_error if an expert has none
  [[nodiscard]] std::vector<int> computeMaskOnlyReplicaCounts(
      std::vector<std::uint8_t> const& deadRankMask) const;
  void applyMaskOnly(std::vector<int> const& replicaCounts,
                     std::vector<std::uint8_t> const& deadRankMask);

  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  MoeLoadBalancer& mMoeLoadBalancer;
  int mLayerId;
  std::vector<float> mExpertLoadFactor;
  MoePlacementCpuInfo mCpuPlacementInfo;
  std::vector<int> mForGPU;  ///< the three arrays of placementInfoForGPU
  HostMemoryMoeWeightUpdater mUpdater;

  std::mutex mUpdateWeightsMutex;
  std::condition_variable mUpdateWeightsCondition;
  bool mUpdateWeightsDone = true;
};

/// Plans `layerUpdatesPerIter` layers in each iteration, in turn, on a thread of its own.
class MoeLoadBalancer {
 public:
  MoeLoadBalancer(int epSize, int layerUpdatesPerIter);
  MoeLoadBalancer(MoeLoadBalancer const&) = delete;
  MoeLoadBalancer& operator=(MoeLoadBalancer const&) = delete;
  ~MoeLoadBalancer();

  std::shared_ptr<SingleLayerMoeLoadBalancer> AddLayer(int expertCount, int topK,
                                                       int slotCountPerRank);

  /// All layers have the same shape here, as in the models that TensorRT-LLM balances.
  void finalizeModel(expert_planner::planner_options const& options);

  /// Waits until the layers that the last iteration began to plan are done.
  void startIter();
  void endIter();

  /// Masks ranks from the next plan on. The functions below, too, are for use between startIter and
  /// endIter, while no layer is planned.
  void setDeadRanks(std::vector<std::uint8_t> const& deadRankMask);

  /// Takes lost ranks out of what kernels read, without moving an expert.
  /// @throws std::runtime_error if an expert of a layer has no copy left; then no layer changes
  void reconfigureMaskOnly(std::vector<std::uint8_t> const& deadRankMask);

  /// Warnings, oldest first.
  [[nodiscard]] std::vector<std::string> const& log() const { return mLog; }

  void shutdown();

 private:
  friend class SingleLayerMoeLoadBalancer;

  void addUpdateTask(std::function<void()> task);
  void computeAndUpdateThread();

  int mEpSize;
  int mLayerUpdatesPerIter;
  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  std::vector<std::shared_ptr<SingleLayerMoeLoadBalancer>> mLayers;
  std::size_t mNextLayer = 0;
  std::vector<std::uint8_t> mDeadRankMask;
  std::vector<std::string> mLog;
  std::unique_ptr<PlacementPlanner> mPlanner;

  std::mutex mUpdateQueueMutex;
  std::condition_variable mUpdateQueueCondition;
  std::queue<std::function<void()>> mUpdateTaskQueue;
  std::thread mComputeAndUpdateThread;
};

}  // namespace tensorrt_llm::runtime

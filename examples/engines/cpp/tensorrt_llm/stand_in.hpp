// SPDX-License-Identifier: Apache-2.0
// The parts of TensorRT-LLM's balancer (cpp/tensorrt_llm/runtime/moeLoadBalancer) that its planner
// sees: public names and the order of calls, without GPUs. One object has all ranks; an expert's id
// takes the place of its weights.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "placement_planner.hpp"
#include "types.hpp"

namespace tensorrt_llm::runtime {

/// Copies the weights of every slot whose expert changes from host memory, and counts the copies.
class HostMemoryMoeWeightUpdater {
 public:
  explicit HostMemoryMoeWeightUpdater(kernels::MoeLoadBalanceMetaInfo const& metaInfo)
      : mWeights(static_cast<std::size_t>(metaInfo.epSize),
                 std::vector<int>(static_cast<std::size_t>(metaInfo.slotCountPerRank), -1)) {}

  void updateWeights(MoePlacementCpuInfo const& placement) {
    for (std::size_t rank = 0; rank < mWeights.size(); ++rank) {
      for (std::size_t slot = 0; slot < mWeights[rank].size(); ++slot) {
        int const expert = placement.rankExpertIds[rank][slot];
        if (expert != -1 && expert != mWeights[rank][slot]) {
          mWeights[rank][slot] = expert;
          ++mCopies;
        }
      }
    }
  }

  [[nodiscard]] std::vector<std::vector<int>> const& weights() const { return mWeights; }
  [[nodiscard]] std::int64_t copies() const { return mCopies; }

 private:
  std::vector<std::vector<int>> mWeights;  ///< expert whose weights each slot holds
  std::int64_t mCopies = 0;
};

class SingleLayerMoeLoadBalancer {
 public:
  SingleLayerMoeLoadBalancer(kernels::MoeLoadBalanceMetaInfo const& metaInfo, int layerId)
      : mMetaInfo(metaInfo),
        mLayerId(layerId),
        mExpertLoadFactor(static_cast<std::size_t>(metaInfo.expertCount)),
        mUpdater(metaInfo) {
    auto const experts = static_cast<std::size_t>(metaInfo.expertCount);
    auto const ranks = static_cast<std::size_t>(metaInfo.epSize);
    auto const width = static_cast<std::size_t>(metaInfo.slotCountPerRank);
    mPlacement.expertReplicaCount.resize(experts);
    mPlacement.rankExpertIds.assign(ranks, std::vector<int>(width, -1));
    mPlacement.oldRankExpertIds = mPlacement.rankExpertIds;
    mForGPU.resize(2 * experts + ranks * width);
    mPlacement.placementInfoForGPU = {mForGPU.data(), mForGPU.data() + experts,
                                      mForGPU.data() + 2 * experts};
  }

  /// @param initialWeightAssignments [ranks * slots of a rank]
  void setInitialWeightAssignments(std::vector<int> const& initialWeightAssignments) {
    for (std::size_t slot = 0; slot < initialWeightAssignments.size(); ++slot) {
      auto const width = static_cast<std::size_t>(mMetaInfo.slotCountPerRank);
      mPlacement.rankExpertIds[slot / width][slot % width] = initialWeightAssignments[slot];
    }
    usePlacement();
  }

  /// Counts tokens, as a kernel of the engine does; older ones decay.
  void countTokens(std::vector<std::int64_t> const& tokens) {
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      mExpertLoadFactor[e] = mExpertLoadFactor[e] * 0.9F + static_cast<float>(tokens[e]);
    }
  }

  /// The task of the compute thread. A plan that is refused leaves the placement as it is.
  void updateWeightsRoutine(PlacementPlanner& planner, std::vector<std::uint8_t> const& deadRanks) {
    expert_planner::answer const planned =
        planner.replan(mLayerId, mExpertLoadFactor.data(),
                       deadRanks.empty() ? nullptr : deadRanks.data(), &mPlacement);
    if (!planned) {
      mError = planned.text;
      return;
    }
    usePlacement();
  }

  /// Takes lost ranks out of what kernels read; no slot changes. Returns false and changes nothing
  /// if an expert would have no copy left.
  bool reconfigureMaskOnly(std::vector<std::uint8_t> const& deadRanks) {
    return computeMaskOnlyReplicaCounts(mMetaInfo, &mPlacement, deadRanks.data());
  }

  [[nodiscard]] MoePlacementCpuInfo const& placement() const { return mPlacement; }
  [[nodiscard]] HostMemoryMoeWeightUpdater const& updater() const { return mUpdater; }
  [[nodiscard]] std::string const& error() const { return mError; }

 private:
  void usePlacement() {
    prepareGpuPlacementInfo(mMetaInfo, &mPlacement);
    mUpdater.updateWeights(mPlacement);
    mPlacement.rankExpertIds.swap(mPlacement.oldRankExpertIds);
    std::fill(mExpertLoadFactor.begin(), mExpertLoadFactor.end(), 0.0F);
  }

  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  int mLayerId;
  std::vector<float> mExpertLoadFactor;
  MoePlacementCpuInfo mPlacement;
  std::vector<int> mForGPU;  ///< the three arrays of placementInfoForGPU
  HostMemoryMoeWeightUpdater mUpdater;
  std::string mError;
};

/// Plans `layerUpdatesPerIter` layers in each iteration, in turn, on a thread of its own.
class MoeLoadBalancer {
 public:
  MoeLoadBalancer(int epSize, int layerUpdatesPerIter)
      : mEpSize(epSize), mLayerUpdatesPerIter(layerUpdatesPerIter) {}
  MoeLoadBalancer(MoeLoadBalancer const&) = delete;
  MoeLoadBalancer& operator=(MoeLoadBalancer const&) = delete;
  ~MoeLoadBalancer() { shutdown(); }

  std::shared_ptr<SingleLayerMoeLoadBalancer> AddLayer(int expertCount, int topK,
                                                       int slotCountPerRank) {
    mMetaInfo = {expertCount, topK, 0, mEpSize, slotCountPerRank};
    mLayers.push_back(
        std::make_shared<SingleLayerMoeLoadBalancer>(mMetaInfo, static_cast<int>(mLayers.size())));
    return mLayers.back();
  }

  /// All layers have the same shape here, as in the models that TensorRT-LLM balances.
  void finalizeModel(expert_planner::planner_options const& options) {
    mPlanner =
        std::make_unique<PlacementPlanner>(mMetaInfo, static_cast<int>(mLayers.size()), options);
    mComputeThread = std::thread([this] { computeAndUpdate(); });
  }

  /// Waits for the layers that the last iteration began to plan.
  void startIter() {
    std::unique_lock<std::mutex> lock(mMutex);
    mChanged.wait(lock, [this] { return mTasks.empty() && !mIsBusy; });
  }

  void endIter() {
    std::lock_guard<std::mutex> const lock(mMutex);
    for (int i = 0; i < mLayerUpdatesPerIter; ++i) {
      mTasks.push_back(mLayers[mNextLayer]);
      mNextLayer = (mNextLayer + 1) % mLayers.size();
    }
    mChanged.notify_all();
  }

  /// From the next plan on; between iterations.
  void setDeadRanks(std::vector<std::uint8_t> deadRanks) { mDeadRanks = std::move(deadRanks); }

  void shutdown() {
    if (mComputeThread.joinable()) {
      {
        std::lock_guard<std::mutex> const lock(mMutex);
        mIsStopped = true;
        mChanged.notify_all();
      }
      mComputeThread.join();
    }
  }

 private:
  void computeAndUpdate() {
    std::unique_lock<std::mutex> lock(mMutex);
    while (true) {
      mChanged.wait(lock, [this] { return mIsStopped || !mTasks.empty(); });
      if (mIsStopped) {
        return;
      }
      std::shared_ptr<SingleLayerMoeLoadBalancer> const layer = mTasks.front();
      mTasks.pop_front();
      mIsBusy = true;
      lock.unlock();
      layer->updateWeightsRoutine(*mPlanner, mDeadRanks);
      lock.lock();
      mIsBusy = false;
      mChanged.notify_all();
    }
  }

  int mEpSize;
  int mLayerUpdatesPerIter;
  kernels::MoeLoadBalanceMetaInfo mMetaInfo;
  std::vector<std::shared_ptr<SingleLayerMoeLoadBalancer>> mLayers;
  std::size_t mNextLayer = 0;
  std::unique_ptr<PlacementPlanner> mPlanner;
  std::vector<std::uint8_t> mDeadRanks;
  std::mutex mMutex;
  std::condition_variable mChanged;
  std::deque<std::shared_ptr<SingleLayerMoeLoadBalancer>> mTasks;
  bool mIsBusy = false;
  bool mIsStopped = false;
  std::thread mComputeThread;
};

}  // namespace tensorrt_llm::runtime

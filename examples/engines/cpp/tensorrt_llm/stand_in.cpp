// SPDX-License-Identifier: Apache-2.0
#include "stand_in.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

// Before the anonymous namespace below, which calls fillGpuPlacementInfo.
#include "placement_planner.hpp"

namespace tensorrt_llm::runtime {
namespace {

void prepareGpuPlacementInfo(kernels::MoeLoadBalanceMetaInfo metaInfo,
                             MoePlacementCpuInfo* cpuPlacement) {
  fillGpuPlacementInfo(metaInfo, cpuPlacement);
}

}  // namespace

HostMemoryMoeWeightUpdater::HostMemoryMoeWeightUpdater(
    kernels::MoeLoadBalanceMetaInfo const& metaInfo)
    : mWeights(static_cast<std::size_t>(metaInfo.epSize),
               std::vector<int>(static_cast<std::size_t>(metaInfo.slotCountPerRank), -1)) {}

void HostMemoryMoeWeightUpdater::updateWeights(MoePlacementCpuInfo const& placement) {
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

SingleLayerMoeLoadBalancer::SingleLayerMoeLoadBalancer(
    kernels::MoeLoadBalanceMetaInfo const& metaInfo, MoeLoadBalancer& loadBalancer, int layerId)
    : mMetaInfo(metaInfo),
      mMoeLoadBalancer(loadBalancer),
      mLayerId(layerId),
      mExpertLoadFactor(static_cast<std::size_t>(metaInfo.expertCount)),
      mUpdater(metaInfo) {
  auto const experts = static_cast<std::size_t>(metaInfo.expertCount);
  auto const ranks = static_cast<std::size_t>(metaInfo.epSize);
  auto const width = static_cast<std::size_t>(metaInfo.slotCountPerRank);
  mCpuPlacementInfo.expertReplicaCount.resize(experts);
  mCpuPlacementInfo.rankExpertIds.assign(ranks, std::vector<int>(width, -1));
  mCpuPlacementInfo.oldRankExpertIds = mCpuPlacementInfo.rankExpertIds;
  mForGPU.resize(2 * experts + ranks * width);
  mCpuPlacementInfo.placementInfoForGPU = {mForGPU.data(), mForGPU.data() + experts,
                                           mForGPU.data() + 2 * experts};
}

void SingleLayerMoeLoadBalancer::setInitialWeightAssignments(
    std::vector<int> const& initialWeightAssignments) {
  for (std::size_t slot = 0; slot < initialWeightAssignments.size(); ++slot) {
    auto const width = static_cast<std::size_t>(mMetaInfo.slotCountPerRank);
    mCpuPlacementInfo.rankExpertIds[slot / width][slot % width] = initialWeightAssignments[slot];
  }
  prepareGpuPlacementInfo(mMetaInfo, &mCpuPlacementInfo);
  mUpdater.updateWeights(mCpuPlacementInfo);
  usePlacement();
}

void SingleLayerMoeLoadBalancer::countTokens(std::vector<std::int64_t> const& tokens) {
  for (std::size_t e = 0; e < tokens.size(); ++e) {
    mExpertLoadFactor[e] = mExpertLoadFactor[e] * 0.9F + static_cast<float>(tokens[e]);
  }
}

void SingleLayerMoeLoadBalancer::startCpuNewIter() {
  std::lock_guard<std::mutex> const lock(mUpdateWeightsMutex);
  mUpdateWeightsDone = false;
}

void SingleLayerMoeLoadBalancer::waitLastUpdateDone() {
  std::unique_lock<std::mutex> lock(mUpdateWeightsMutex);
  mUpdateWeightsCondition.wait(lock, [this] { return mUpdateWeightsDone; });
}

void SingleLayerMoeLoadBalancer::updateWeightsRoutine() {
  if (mMoeLoadBalancer.mPlanner->replan(mLayerId, mExpertLoadFactor.data(),
                                        &mMoeLoadBalancer.mDeadRankMask, &mCpuPlacementInfo)) {
    prepareGpuPlacementInfo(mMetaInfo, &mCpuPlacementInfo);
    mUpdater.updateWeights(mCpuPlacementInfo);
    usePlacement();
  } else {
    std::fill(mExpertLoadFactor.begin(), mExpertLoadFactor.end(), 0.0F);
  }
  // After a refusal, too: waitLastUpdateDone waits for it.
  std::lock_guard<std::mutex> const lock(mUpdateWeightsMutex);
  mUpdateWeightsDone = true;
  mUpdateWeightsCondition.notify_one();
}

/// Does what is left to do after the copy of `placementInfoForGPU` to the GPU.
void SingleLayerMoeLoadBalancer::usePlacement() {
  mCpuPlacementInfo.rankExpertIds.swap(mCpuPlacementInfo.oldRankExpertIds);
  for (std::vector<int>& rank : mCpuPlacementInfo.rankExpertIds) {
    std::fill(rank.begin(), rank.end(), -1);
  }
  std::fill(mExpertLoadFactor.begin(), mExpertLoadFactor.end(), 0.0F);
}

std::vector<int> SingleLayerMoeLoadBalancer::computeMaskOnlyReplicaCounts(
    std::vector<std::uint8_t> const& deadRankMask) const {
  std::vector<int> counts(static_cast<std::size_t>(mMetaInfo.expertCount));
  for (std::size_t rank = 0; rank < deadRankMask.size(); ++rank) {
    for (int const expert : mCpuPlacementInfo.oldRankExpertIds[rank]) {
      if (deadRankMask[rank] == 0 && expert >= 0) {
        ++counts[static_cast<std::size_t>(expert)];
      }
    }
  }
  auto const lost = std::find(counts.begin(), counts.end(), 0);
  if (lost != counts.end()) {
    throw std::runtime_error("expert " + std::to_string(lost - counts.begin()) + " of layer " +
                             std::to_string(mLayerId) + " has no copy on a live rank");
  }
  return counts;
}

void SingleLayerMoeLoadBalancer::applyMaskOnly(std::vector<int> const& replicaCounts,
                                               std::vector<std::uint8_t> const& deadRankMask) {
  mCpuPlacementInfo.expertReplicaCount = replicaCounts;
  mCpuPlacementInfo.rankExpertIds = mCpuPlacementInfo.oldRankExpertIds;
  for (std::size_t rank = 0; rank < deadRankMask.size(); ++rank) {
    if (deadRankMask[rank] != 0) {
      std::vector<int>& lost = mCpuPlacementInfo.rankExpertIds[rank];
      std::fill(lost.begin(), lost.end(), -1);
    }
  }
  prepareGpuPlacementInfo(mMetaInfo, &mCpuPlacementInfo);
  usePlacement();
}

MoeLoadBalancer::MoeLoadBalancer(int epSize, int layerUpdatesPerIter)
    : mEpSize(epSize), mLayerUpdatesPerIter(layerUpdatesPerIter) {}

MoeLoadBalancer::~MoeLoadBalancer() { shutdown(); }

std::shared_ptr<SingleLayerMoeLoadBalancer> MoeLoadBalancer::AddLayer(int expertCount, int topK,
                                                                      int slotCountPerRank) {
  mMetaInfo = {expertCount, topK, 0, mEpSize, slotCountPerRank};
  mLayers.push_back(std::make_shared<SingleLayerMoeLoadBalancer>(mMetaInfo, *this,
                                                                 static_cast<int>(mLayers.size())));
  return mLayers.back();
}

void MoeLoadBalancer::finalizeModel(expert_planner::planner_options const& options) {
  mPlanner =
      std::make_unique<PlacementPlanner>(mMetaInfo, static_cast<int>(mLayers.size()), options,
                                         [this](std::string const& text) { mLog.push_back(text); });
  mComputeAndUpdateThread = std::thread([this] { computeAndUpdateThread(); });
}

void MoeLoadBalancer::startIter() {
  for (auto const& layer : mLayers) {
    layer->waitLastUpdateDone();
  }
}

void MoeLoadBalancer::endIter() {
  for (int i = 0; i < mLayerUpdatesPerIter; ++i) {
    auto const layer = mLayers[mNextLayer];
    layer->waitLastUpdateDone();
    layer->startCpuNewIter();
    addUpdateTask([layer] { layer->updateWeightsRoutine(); });
    mNextLayer = (mNextLayer + 1) % mLayers.size();
  }
}

void MoeLoadBalancer::setDeadRanks(std::vector<std::uint8_t> const& deadRankMask) {
  mDeadRankMask = deadRankMask;
}

void MoeLoadBalancer::reconfigureMaskOnly(std::vector<std::uint8_t> const& deadRankMask) {
  std::vector<std::vector<int>> counts;
  for (auto const& layer : mLayers) {
    counts.push_back(layer->computeMaskOnlyReplicaCounts(deadRankMask));
  }
  for (std::size_t l = 0; l < mLayers.size(); ++l) {
    mLayers[l]->applyMaskOnly(counts[l], deadRankMask);
  }
  setDeadRanks(deadRankMask);
}

void MoeLoadBalancer::shutdown() {
  if (mComputeAndUpdateThread.joinable()) {
    startIter();
    addUpdateTask(nullptr);
    mComputeAndUpdateThread.join();
  }
}

void MoeLoadBalancer::addUpdateTask(std::function<void()> task) {
  std::lock_guard<std::mutex> const lock(mUpdateQueueMutex);
  mUpdateTaskQueue.push(std::move(task));
  mUpdateQueueCondition.notify_one();
}

void MoeLoadBalancer::computeAndUpdateThread() {
  while (true) {
    std::unique_lock<std::mutex> lock(mUpdateQueueMutex);
    mUpdateQueueCondition.wait(lock, [this] { return !mUpdateTaskQueue.empty(); });
    std::function<void()> const task = std::move(mUpdateTaskQueue.front());
    mUpdateTaskQueue.pop();
    lock.unlock();
    if (!task) {
      return;
    }
    task();
  }
}

}  // namespace tensorrt_llm::runtime

// SPDX-License-Identifier: Apache-2.0
#include "placement_planner.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tensorrt_llm::runtime {
namespace {

using rows = std::vector<std::vector<int>>;

expert_planner::layer_sizes sizes_of(kernels::MoeLoadBalanceMetaInfo const& metaInfo) {
  return {metaInfo.expertCount, metaInfo.epSize, metaInfo.slotCountPerRank};
}

/// Throws the text of a refusal, as TLLM_CHECK_WITH_INFO does.
void check(expert_planner::answer const& answer) {
  if (!answer) {
    throw std::runtime_error(answer.text);
  }
}

std::vector<int> flat(rows const& ranks) {
  std::vector<int> all;
  for (std::vector<int> const& rank : ranks) {
    all.insert(all.end(), rank.begin(), rank.end());
  }
  return all;
}

void split(std::vector<int> const& all, rows& ranks) {
  auto next = all.begin();
  for (std::vector<int>& rank : ranks) {
    std::copy_n(next, rank.size(), rank.begin());
    next += static_cast<std::ptrdiff_t>(rank.size());
  }
}

/// Counts and lists of a placement, as `placementInfoForGPU` has them.
struct slot_lists {
  std::vector<int> counts, first, slots;

  slot_lists(kernels::MoeLoadBalanceMetaInfo const& metaInfo, std::vector<int> const& map)
      : counts(static_cast<std::size_t>(metaInfo.expertCount)),
        first(counts.size()),
        slots(map.size()) {
    check(expert_planner::list_slots(sizes_of(metaInfo), map.data(), counts.data(), first.data(),
                                     slots.data()));
    std::replace(slots.begin(), slots.end(), -1, static_cast<int>(slots.size()));
  }

  void store(MoePlacementCpuInfo& placement) const {
    placement.expertReplicaCount = counts;
    std::copy(counts.begin(), counts.end(), placement.placementInfoForGPU.expertReplicaCount);
    std::copy(first.begin(), first.end(), placement.placementInfoForGPU.expertReplicaStartOffset);
    std::copy(slots.begin(), slots.end(), placement.placementInfoForGPU.globalSlotIds);
  }
};

}  // namespace

void doReplication(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                   MoePlacementCpuInfo* cpuPlacement, std::uint8_t const* deadRankMask) {
  cpuPlacement->expertReplicaCount.resize(static_cast<std::size_t>(metaInfo.expertCount));
  check(expert_planner::replicate(sizes_of(metaInfo), expertLoadFactor, deadRankMask,
                                  cpuPlacement->expertReplicaCount.data()));
}

void doPlacement(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                 MoePlacementCpuInfo* cpuPlacement, std::uint8_t const* deadRankMask) {
  std::vector<int> const in_use = flat(cpuPlacement->oldRankExpertIds);
  std::vector<int> map = flat(cpuPlacement->rankExpertIds);
  check(expert_planner::place(sizes_of(metaInfo), expertLoadFactor, deadRankMask,
                              cpuPlacement->expertReplicaCount.data(),
                              in_use.size() == map.size() ? in_use.data() : nullptr, map.data()));
  split(map, cpuPlacement->rankExpertIds);
}

void prepareGpuPlacementInfo(kernels::MoeLoadBalanceMetaInfo metaInfo,
                             MoePlacementCpuInfo* cpuPlacement) {
  slot_lists(metaInfo, flat(cpuPlacement->rankExpertIds)).store(*cpuPlacement);
}

bool computeMaskOnlyReplicaCounts(kernels::MoeLoadBalanceMetaInfo metaInfo,
                                  MoePlacementCpuInfo* cpuPlacement,
                                  std::uint8_t const* deadRankMask) {
  rows live = cpuPlacement->oldRankExpertIds;
  for (std::size_t rank = 0; rank < live.size(); ++rank) {
    if (deadRankMask[rank] != 0) {
      std::fill(live[rank].begin(), live[rank].end(), -1);
    }
  }
  slot_lists const lists(metaInfo, flat(live));
  if (std::count(lists.counts.begin(), lists.counts.end(), 0) > 0) {
    return false;
  }
  lists.store(*cpuPlacement);
  cpuPlacement->oldRankExpertIds = std::move(live);
  return true;
}

PlacementPlanner::PlacementPlanner(kernels::MoeLoadBalanceMetaInfo metaInfo, int layers,
                                   expert_planner::planner_options options)
    : mMetaInfo(metaInfo) {
  check(mPlanner.create(sizes_of(metaInfo), layers, options));
}

expert_planner::answer PlacementPlanner::replan(int layer, float const* expertLoadFactor,
                                                std::uint8_t const* deadRankMask,
                                                MoePlacementCpuInfo* cpuPlacement) {
  expert_planner::answer answer = mPlanner.add_step(layer, expertLoadFactor, mMetaInfo.expertCount);
  if (!answer) {
    return answer;
  }
  std::vector<int> const in_use = flat(cpuPlacement->oldRankExpertIds);
  std::vector<int> map(in_use.size());
  std::vector<int> counts(static_cast<std::size_t>(mMetaInfo.expertCount));
  answer = mPlanner.plan(layer, in_use.data(), deadRankMask, map.data(), counts.data());
  if (answer) {
    split(map, cpuPlacement->rankExpertIds);
    cpuPlacement->expertReplicaCount = std::move(counts);
  }
  return answer;
}

}  // namespace tensorrt_llm::runtime

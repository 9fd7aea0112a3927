// SPDX-License-Identifier: Apache-2.0
#include "placement_planner.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tensorrt_llm::runtime {
namespace {

using expert_planner::answer;
using rows = std::vector<std::vector<int>>;
using rank_mask = std::vector<std::uint8_t>;

expert_planner::layer_sizes sizes_of(kernels::MoeLoadBalanceMetaInfo const& metaInfo) {
  return {metaInfo.expertCount, metaInfo.epSize, metaInfo.slotCountPerRank};
}

/// Throws the text of a refusal, as TLLM_CHECK_WITH_INFO does.
void check(answer const& got) {
  if (!got) {
    throw std::runtime_error(got.text);
  }
}

answer check_mask(kernels::MoeLoadBalanceMetaInfo const& metaInfo, rank_mask const* mask) {
  auto const ranks = static_cast<std::size_t>(metaInfo.epSize);
  if (mask == nullptr || mask->empty() || mask->size() == ranks) {
    return {};
  }
  return {expert_planner::status::refused, "deadRankMask: expected an entry for each of the " +
                                               std::to_string(ranks) + " ranks, or none, got " +
                                               std::to_string(mask->size())};
}

std::uint8_t const* entries(rank_mask const* mask) {
  return mask == nullptr || mask->empty() ? nullptr : mask->data();
}

answer check_shape(kernels::MoeLoadBalanceMetaInfo const& metaInfo, rows const& ranks,
                   char const* argument) {
  auto const width = static_cast<std::size_t>(metaInfo.slotCountPerRank);
  if (ranks.size() == static_cast<std::size_t>(metaInfo.epSize) &&
      std::all_of(ranks.begin(), ranks.end(),
                  [width](std::vector<int> const& rank) { return rank.size() == width; })) {
    return {};
  }
  return {expert_planner::status::refused, std::string(argument) + ": expected " +
                                               std::to_string(metaInfo.epSize) + " ranks with " +
                                               std::to_string(width) + " slots each"};
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

}  // namespace

/// Writes `expertReplicaCount` for these loads.
/// @throws std::runtime_error where the engine's TLLM_CHECK throws
void doReplication(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                   MoePlacementCpuInfo* cpuPlacement,
                   std::vector<std::uint8_t> const* deadRankMask) {
  check(check_mask(metaInfo, deadRankMask));
  cpuPlacement->expertReplicaCount.resize(static_cast<std::size_t>(metaInfo.expertCount));
  check(expert_planner::replicate(sizes_of(metaInfo), expertLoadFactor, entries(deadRankMask),
                                  cpuPlacement->expertReplicaCount.data()));
}

/// Writes `rankExpertIds` for `expertReplicaCount`. Ranks and slots are named so that the fewest
/// experts move from `oldRankExpertIds`.
/// @throws std::runtime_error
void doPlacement(kernels::MoeLoadBalanceMetaInfo metaInfo, float* expertLoadFactor,
                 MoePlacementCpuInfo* cpuPlacement, std::vector<std::uint8_t> const* deadRankMask) {
  check(check_mask(metaInfo, deadRankMask));
  check(check_shape(metaInfo, cpuPlacement->rankExpertIds, "rankExpertIds"));
  std::vector<int> const in_use = flat(cpuPlacement->oldRankExpertIds);
  std::vector<int> map = flat(cpuPlacement->rankExpertIds);
  check(expert_planner::place(sizes_of(metaInfo), expertLoadFactor, entries(deadRankMask),
                              cpuPlacement->expertReplicaCount.data(),
                              in_use.size() == map.size() ? in_use.data() : nullptr, map.data()));
  split(map, cpuPlacement->rankExpertIds);
}

void fillGpuPlacementInfo(kernels::MoeLoadBalanceMetaInfo metaInfo,
                          MoePlacementCpuInfo* cpuPlacement) {
  check(check_shape(metaInfo, cpuPlacement->rankExpertIds, "rankExpertIds"));
  std::vector<int> const map = flat(cpuPlacement->rankExpertIds);
  std::vector<int> counts(static_cast<std::size_t>(metaInfo.expertCount));
  std::vector<int> first(counts.size());
  std::vector<int> slots(map.size());
  check(expert_planner::list_slots(sizes_of(metaInfo), map.data(), counts.data(), first.data(),
                                   slots.data()));
  std::replace(slots.begin(), slots.end(), -1, static_cast<int>(slots.size()));
  kernels::MoePlacementInfo const& listed = cpuPlacement->placementInfoForGPU;
  std::copy(counts.begin(), counts.end(), listed.expertReplicaCount);
  std::copy(first.begin(), first.end(), listed.expertReplicaStartOffset);
  std::copy(slots.begin(), slots.end(), listed.globalSlotIds);
  cpuPlacement->expertReplicaCount = std::move(counts);
}

PlacementPlanner::PlacementPlanner(kernels::MoeLoadBalanceMetaInfo metaInfo, int layers,
                                   expert_planner::planner_options options, Log log)
    : mMetaInfo(metaInfo), mLog(std::move(log)) {
  check(mPlanner.create(sizes_of(metaInfo), layers, options));
}

expert_planner::answer PlacementPlanner::replan(int layer, float const* expertLoadFactor,
                                                std::vector<std::uint8_t> const* deadRankMask,
                                                MoePlacementCpuInfo* cpuPlacement) noexcept {
  try {
    expert_planner::answer planned = plan(layer, expertLoadFactor, deadRankMask, cpuPlacement);
    if (planned) {
      mRefusals.erase(layer);
    } else {
      logRefusal(layer, planned.text);
    }
    return planned;
  } catch (...) {  // no memory, or the log throws; the text is short enough to need none
    return {expert_planner::status::failed, "failed to plan"};
  }
}

expert_planner::answer PlacementPlanner::plan(int layer, float const* expertLoadFactor,
                                              std::vector<std::uint8_t> const* deadRankMask,
                                              MoePlacementCpuInfo* cpuPlacement) {
  for (expert_planner::answer const& checked :
       {check_mask(mMetaInfo, deadRankMask),
        check_shape(mMetaInfo, cpuPlacement->rankExpertIds, "rankExpertIds"),
        check_shape(mMetaInfo, cpuPlacement->oldRankExpertIds, "oldRankExpertIds"),
        mPlanner.add_step(layer, expertLoadFactor, mMetaInfo.expertCount)}) {
    if (!checked) {
      return checked;
    }
  }
  std::vector<int> const in_use = flat(cpuPlacement->oldRankExpertIds);
  std::vector<int> map(in_use.size());
  std::vector<int> counts(static_cast<std::size_t>(mMetaInfo.expertCount));
  expert_planner::answer planned =
      mPlanner.plan(layer, in_use.data(), entries(deadRankMask), map.data(), counts.data());
  if (planned) {
    split(map, cpuPlacement->rankExpertIds);
    cpuPlacement->expertReplicaCount = std::move(counts);
  }
  return planned;
}

void PlacementPlanner::logRefusal(int layer, std::string const& text) {
  bool const is_known = std::any_of(mRefusals.begin(), mRefusals.end(),
                                    [&](auto const& refusal) { return refusal.second == text; });
  mRefusals[layer] = text;
  if (!is_known && mLog) {
    mLog("layer " + std::to_string(layer) + " keeps its placement: " + text);
  }
}

}  // namespace tensorrt_llm::runtime

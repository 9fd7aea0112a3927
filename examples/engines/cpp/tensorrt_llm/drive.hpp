// SPDX-License-Identifier: Apache-2.0
// Runs the balancer over tokens that drift and loses ranks, in the engine's order of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "../drift.hpp"
#include "stand_in.hpp"

namespace tensorrt_llm {

using cpp_engines::expect;

/// The slots hold the weights of the placement in use, and what kernels read lists exactly these.
inline void check_layer(runtime::SingleLayerMoeLoadBalancer const& layer, int experts, int width,
                        std::vector<std::uint8_t> const& dead_ranks) {
  runtime::MoePlacementCpuInfo const& placement = layer.placement();
  kernels::MoePlacementInfo const& listed = placement.placementInfoForGPU;
  int slots = 0;
  for (int e = 0; e < experts; ++e) {
    expect(listed.expertReplicaCount[e] > 0, "an expert has no copy");
    expect(listed.expertReplicaStartOffset[e] == slots, "lists do not follow one another");
    for (int i = 0; i < listed.expertReplicaCount[e]; ++i) {
      int const slot = listed.globalSlotIds[slots++];
      auto const rank = static_cast<std::size_t>(slot / width);
      auto const local = static_cast<std::size_t>(slot % width);
      expect(dead_ranks[rank] == 0, "a copy is on a dead rank");
      expect(layer.updater().weights()[rank][local] == e, "a slot has other weights");
      expect(placement.oldRankExpertIds[rank][local] == e, "a slot is listed for another expert");
    }
  }
  int live = 0;
  for (std::uint8_t const dead : dead_ranks) {
    live += dead == 0 ? width : 0;
  }
  expect(slots == live, "a slot of a live rank is empty");
}

inline void drive() {
  constexpr int layers = 4;
  constexpr int experts = 32;
  constexpr int ranks = 8;
  constexpr int width = 5;
  constexpr int slots = ranks * width;

  runtime::MoeLoadBalancer balancer(ranks, 2);
  std::vector<std::shared_ptr<runtime::SingleLayerMoeLoadBalancer>> model;
  for (int l = 0; l < layers; ++l) {
    model.push_back(balancer.AddLayer(experts, 4, width));
  }
  std::vector<int> first(slots);
  for (int slot = 0; slot < slots; ++slot) {
    first[static_cast<std::size_t>(slot)] = slot % experts;
  }
  for (auto const& layer : model) {
    layer->setInitialWeightAssignments(first);
  }
  balancer.finalizeModel({});

  cpp_engines::drifting_loads source(experts, 600);
  std::vector<std::uint8_t> dead(ranks);
  auto const copies_so_far = [&] {
    balancer.startIter();
    std::int64_t copies = 0;
    for (auto const& layer : model) {
      copies += layer->updater().copies();
    }
    return copies;
  };
  auto const run = [&](char const* what, int begin, int end) {
    std::int64_t const before = copies_so_far();
    double balance = 0;
    for (int step = begin; step < end; ++step) {
      balancer.startIter();
      expect(balancer.log().empty(), "a plan was refused");
      for (int l = 0; l < layers; ++l) {
        auto& layer = *model[static_cast<std::size_t>(l)];
        check_layer(layer, experts, width, dead);
        std::vector<std::int64_t> const tokens = source.draw(step, l);
        std::vector<int> map;
        for (std::vector<int> const& rank : layer.placement().oldRankExpertIds) {
          map.insert(map.end(), rank.begin(), rank.end());
        }
        balance += cpp_engines::balancedness(tokens, map.data(), ranks, width);
        layer.countTokens(tokens);
      }
      if (step % 10 == 9) {
        balancer.endIter();  // plans two layers
      }
    }
    std::int64_t const copied = copies_so_far() - before;
    int const plans = 2 * ((end - begin) / 10);
    std::printf("  %-22s balancedness %.4f, %3d plans, %4.1f %% of the slots copied by each\n",
                what, balance / (layers * (end - begin)), plans,
                100.0 * static_cast<double>(copied) / (plans * slots));
  };
  std::printf("TensorRT-LLM: %d layers, %d experts, %d ranks x %d slots\n", layers, experts, ranks,
              width);
  run("first placement", 0, 10);
  run("planned", 10, 400);

  // Leaving out the slots of a lost rank is refused where an expert has its only copy there: all
  // layers need plans.
  dead[2] = 1;
  try {
    balancer.reconfigureMaskOnly(dead);
    expect(false, "a mask that takes the last copy of an expert was taken");
  } catch (std::runtime_error const& error) {
    std::printf("  rank 2 is lost, and a mask is not enough: %s\n", error.what());
  }
  std::int64_t const before = copies_so_far();
  balancer.setDeadRanks(dead);
  balancer.endIter();
  balancer.startIter();
  balancer.endIter();
  std::printf("  all layers are planned, which copies %d slots\n",
              static_cast<int>(copies_so_far() - before));
  run("planned without rank 2", 400, 600);

  // Rank 5 is lost, too, and 30 slots do not hold 32 experts. The plans of two layers are refused
  // for that, which is logged once.
  std::vector<std::uint8_t> too_many = dead;
  too_many[5] = 1;
  balancer.setDeadRanks(too_many);
  balancer.endIter();
  balancer.startIter();
  expect(balancer.log().size() == 1, "a refusal was not logged once");
  std::printf("  rank 5 is lost, too: %s\n", balancer.log().front().c_str());
  for (auto const& layer : model) {
    check_layer(*layer, experts, width, dead);  // as before
  }

  runtime::MoePlacementCpuInfo placement;
  cpp_engines::print_refusal([&] {
    runtime::doReplication({experts, 4, 0, ranks, 3}, std::vector<float>(experts, 1).data(),
                           &placement);
  });
}

}  // namespace tensorrt_llm

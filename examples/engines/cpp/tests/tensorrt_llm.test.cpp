// SPDX-License-Identifier: Apache-2.0
// Values of TensorRT-LLM's test (github.com/NVIDIA/TensorRT-LLM, Apache-2.0):
// - cpp/tests/unit_tests/runtime/moeLoadBalancerTest.cpp (at 8cec0a5).
// Only numbers and properties are theirs. tests/outside has them, and calls Plimsoll with them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../tensorrt_llm/stand_in.hpp"
#include "outside/tensorrt_llm.hpp"

namespace plimsoll_outside_tensorrt_llm_planner {

namespace outside = plimsoll_outside_tensorrt_llm;
using namespace tensorrt_llm::runtime;
using meta_info = tensorrt_llm::kernels::MoeLoadBalanceMetaInfo;
using ints = std::vector<int>;
using floats = std::vector<float>;
using rows = std::vector<ints>;

/// A placement of four experts, and the arrays that kernels read of it.
struct placement_of_layer {
  meta_info of;
  ints counts, first, slots;
  MoePlacementCpuInfo info;

  explicit placement_of_layer(meta_info const& meta)
      : of(meta),
        counts(static_cast<std::size_t>(meta.expertCount), -5),
        first(counts),
        slots(static_cast<std::size_t>(meta.epSize * meta.slotCountPerRank), -5) {
    ints const empty(static_cast<std::size_t>(meta.slotCountPerRank), -1);
    info.rankExpertIds.assign(static_cast<std::size_t>(meta.epSize), empty);
    info.oldRankExpertIds = info.rankExpertIds;
    info.placementInfoForGPU = {counts.data(), first.data(), slots.data()};
  }
};

TEST_CASE("outside: TensorRT-LLM's planner: replica counts") {
  for (outside::count_case const& c : outside::count_cases()) {
    CAPTURE(c.name);
    floats loads = c.loads;
    MoePlacementCpuInfo placement;
    doReplication({static_cast<int>(loads.size()), 2, 0, c.ranks, c.slots / c.ranks}, loads.data(),
                  &placement);
    CHECK(placement.expertReplicaCount == c.theirs);
  }
}

TEST_CASE("outside: TensorRT-LLM's planner: the spread of rank loads") {
  for (outside::spread_case const& c : outside::spread_cases()) {
    CAPTURE(c.name);
    floats loads = c.loads;
    meta_info const of{static_cast<int>(loads.size()), 2, 0, c.ranks, c.slots / c.ranks};
    placement_of_layer layer(of);
    layer.info.expertReplicaCount = c.copies;
    doPlacement(of, loads.data(), &layer.info);
    std::vector<double> of_ranks;
    ints placed(loads.size());
    for (ints const& rank : layer.info.rankExpertIds) {
      of_ranks.push_back(0);
      for (int const expert : rank) {
        REQUIRE(expert >= 0);
        auto const e = static_cast<std::size_t>(expert);
        of_ranks.back() += static_cast<double>(loads[e]) / c.copies[e];
        ++placed[e];
      }
    }
    CHECK(placed == c.copies);
    auto const [least, most] = std::minmax_element(of_ranks.begin(), of_ranks.end());
    CHECK(*most - *least <= c.most);
  }
}

TEST_CASE("outside: TensorRT-LLM's planner: what kernels read") {
  placement_of_layer layer({4, 2, 0, 4, 2});
  layer.info.rankExpertIds = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  prepareGpuPlacementInfo(layer.of, &layer.info);
  CHECK(layer.counts == ints{2, 2, 2, 2});
  CHECK(layer.info.expertReplicaCount == layer.counts);
  CHECK(layer.first == ints{0, 2, 4, 6});
  CHECK(layer.slots == ints{0, 2, 1, 4, 3, 6, 5, 7});
  layer.info.rankExpertIds[3][1] = 4;
  CHECK_THROWS_WITH_AS(prepareGpuPlacementInfo(layer.of, &layer.info),
                       "rank_experts: expected -1 or an expert in slot 7, got 4",
                       std::runtime_error);
}

TEST_CASE("outside: TensorRT-LLM's planner: dead ranks") {
  std::uint8_t const rank_2[] = {0, 0, 1, 0};
  placement_of_layer layer({4, 2, 0, 4, 2});

  SUBCASE("masking a rank keeps all other slots") {
    layer.info.oldRankExpertIds = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
    REQUIRE(computeMaskOnlyReplicaCounts(layer.of, &layer.info, rank_2));
    CHECK(layer.counts == ints{2, 1, 2, 1});
    CHECK(layer.first == ints{0, 2, 3, 5});
    CHECK(layer.slots == ints{0, 2, 1, 3, 6, 7, 8, 8});
    CHECK(layer.info.oldRankExpertIds == rows{{0, 1}, {0, 2}, {-1, -1}, {2, 3}});
  }
  SUBCASE("a mask that takes the last copy of an expert changes nothing") {
    rows const before{{0, 1}, {0, 2}, {3, 1}, {2, 0}};
    layer.info.oldRankExpertIds = before;
    CHECK_FALSE(computeMaskOnlyReplicaCounts(layer.of, &layer.info, rank_2));
    CHECK(layer.counts == ints(4, -5));
    CHECK(layer.slots == ints(8, -5));
    CHECK(layer.info.oldRankExpertIds == before);
  }
  SUBCASE("a dead rank gets nothing") {
    floats loads(4, 1);
    doReplication(layer.of, loads.data(), &layer.info, rank_2);
    CHECK(layer.info.expertReplicaCount == ints{2, 2, 1, 1});
    doPlacement(layer.of, loads.data(), &layer.info, rank_2);
    CHECK(layer.info.rankExpertIds[2] == ints{-1, -1});
    for (int const rank : {0, 1, 3}) {
      ints const& held = layer.info.rankExpertIds[static_cast<std::size_t>(rank)];
      CHECK(std::count(held.begin(), held.end(), -1) == 0);
    }
  }
  SUBCASE("too few live slots are refused") {
    placement_of_layer narrow({4, 2, 0, 4, 1});
    floats loads(4, 1);
    CHECK_THROWS_WITH_AS(doReplication(narrow.of, loads.data(), &narrow.info, rank_2),
                         doctest::Contains("replicate: slots: expected at least 4 on live ranks"),
                         std::runtime_error);
  }
}

TEST_CASE("outside: TensorRT-LLM's planner: the models of several layers") {
  struct model_case {
    int layers, experts, ranks, width;
  };
  // They assert which slots get new weights; here, that these are those of the new placement.
  for (model_case const& c :
       {model_case{2, 8, 2, 4}, {3, 16, 4, 4}, {5, 32, 8, 4}, {6, 256, 36, 8}}) {
    CAPTURE(c.experts);
    MoeLoadBalancer balancer(c.ranks, c.layers);
    std::vector<std::shared_ptr<SingleLayerMoeLoadBalancer>> model;
    ints first(static_cast<std::size_t>(c.ranks * c.width));
    for (std::size_t slot = 0; slot < first.size(); ++slot) {
      first[slot] = static_cast<int>(slot) % c.experts;
    }
    for (int l = 0; l < c.layers; ++l) {
      model.push_back(balancer.AddLayer(c.experts, 2, c.width));
      model.back()->setInitialWeightAssignments(first);
    }
    balancer.finalizeModel({1.0, 1, false});
    for (int l = 0; l < c.layers; ++l) {
      // Loads rise with the id in even layers and fall in odd ones.
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(c.experts));
      std::iota(tokens.begin(), tokens.end(), 1);
      if (l % 2 == 1) {
        std::reverse(tokens.begin(), tokens.end());
      }
      model[static_cast<std::size_t>(l)]->countTokens(tokens);
    }
    balancer.endIter();
    balancer.startIter();
    for (auto const& layer : model) {
      CHECK(layer->error() == "");
      CHECK(layer->updater().weights() == layer->placement().oldRankExpertIds);
      CHECK(layer->updater().copies() > static_cast<std::int64_t>(first.size()));
    }
  }
}

}  // namespace plimsoll_outside_tensorrt_llm_planner

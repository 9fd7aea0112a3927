// SPDX-License-Identifier: Apache-2.0
// Values of TensorRT-LLM's test (github.com/NVIDIA/TensorRT-LLM, Apache-2.0):
// - cpp/tests/unit_tests/runtime/moeLoadBalancerTest.cpp (at 8cec0a5).
// Only numbers and properties are theirs. tests/outside has them, and calls Plimsoll with them.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../tensorrt_llm/placement_planner.hpp"
#include "../tensorrt_llm/stand_in.hpp"
#include "outside/tensorrt_llm.hpp"

namespace plimsoll_outside_tensorrt_llm_planner {

namespace outside = plimsoll_outside_tensorrt_llm;
using namespace tensorrt_llm::runtime;
using meta_info = tensorrt_llm::kernels::MoeLoadBalanceMetaInfo;
using ints = std::vector<int>;
using floats = std::vector<float>;
using rows = std::vector<ints>;
using bytes = std::vector<std::uint8_t>;

/// Ends the program if it lives for ten seconds: a wait for a flag that no thread sets cannot be
/// interrupted.
class watchdog {
 public:
  explicit watchdog(char const* what)
      : thread_([this, what] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (!changed_.wait_for(lock, std::chrono::seconds(10), [this] { return is_over_; })) {
            std::fprintf(stderr, "watchdog: %s\n", what);
            std::_Exit(1);
          }
        }) {}
  watchdog(watchdog const&) = delete;
  watchdog& operator=(watchdog const&) = delete;
  ~watchdog() {
    {
      std::lock_guard<std::mutex> const lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;  ///< the last member, as it uses the others
};

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
  fillGpuPlacementInfo(layer.of, &layer.info);
  CHECK(layer.counts == ints{2, 2, 2, 2});
  CHECK(layer.info.expertReplicaCount == layer.counts);
  CHECK(layer.first == ints{0, 2, 4, 6});
  CHECK(layer.slots == ints{0, 2, 1, 4, 3, 6, 5, 7});
  layer.info.rankExpertIds[3][1] = 4;
  CHECK_THROWS_WITH_AS(fillGpuPlacementInfo(layer.of, &layer.info),
                       "rank_experts: expected -1 or an expert in slot 7, got 4",
                       std::runtime_error);
}

TEST_CASE("outside: TensorRT-LLM's planner: dead ranks") {
  bytes const rank_2{0, 0, 1, 0};
  placement_of_layer layer({4, 2, 0, 4, 2});

  SUBCASE("lists end with the number of slots") {
    layer.info.rankExpertIds = {{0, 1}, {0, 2}, {-1, -1}, {2, 3}};
    fillGpuPlacementInfo(layer.of, &layer.info);
    CHECK(layer.counts == ints{2, 1, 2, 1});
    CHECK(layer.first == ints{0, 2, 3, 5});
    CHECK(layer.slots == ints{0, 2, 1, 3, 6, 7, 8, 8});
  }
  SUBCASE("a dead rank gets nothing") {
    floats loads(4, 1);
    doReplication(layer.of, loads.data(), &layer.info, &rank_2);
    CHECK(layer.info.expertReplicaCount == ints{2, 2, 1, 1});
    doPlacement(layer.of, loads.data(), &layer.info, &rank_2);
    CHECK(layer.info.rankExpertIds[2] == ints{-1, -1});
    for (int const rank : {0, 1, 3}) {
      ints const& held = layer.info.rankExpertIds[static_cast<std::size_t>(rank)];
      CHECK(std::count(held.begin(), held.end(), -1) == 0);
    }
  }
  SUBCASE("too few live slots are refused") {
    placement_of_layer narrow({4, 2, 0, 4, 1});
    floats loads(4, 1);
    CHECK_THROWS_WITH_AS(doReplication(narrow.of, loads.data(), &narrow.info, &rank_2),
                         doctest::Contains("replicate: slots: expected at least 4 on live ranks"),
                         std::runtime_error);
  }
  SUBCASE("an empty mask is none, and a short one is refused") {
    bytes const none;
    bytes const three{0, 0, 1};
    floats loads(4, 1);
    doReplication(layer.of, loads.data(), &layer.info, &none);
    doPlacement(layer.of, loads.data(), &layer.info, &none);
    CHECK(layer.info.expertReplicaCount == ints{2, 2, 2, 2});
    char const* const text =
        "deadRankMask: expected an entry for each of the 4 ranks, or none, got 3";
    CHECK_THROWS_WITH_AS(doReplication(layer.of, loads.data(), &layer.info, &three), text,
                         std::runtime_error);
    CHECK_THROWS_WITH_AS(doPlacement(layer.of, loads.data(), &layer.info, &three), text,
                         std::runtime_error);
  }
}

TEST_CASE("outside: TensorRT-LLM's planner: a refused plan changes nothing and is logged once") {
  meta_info const of{4, 2, 0, 4, 2};
  std::vector<std::string> log;
  PlacementPlanner planner(of, 2, {1.0, 1},
                           [&log](std::string const& text) { log.push_back(text); });
  static_assert(noexcept(planner.replan(0, nullptr, nullptr, nullptr)));
  placement_of_layer layer(of);
  rows const in_use{{0, 1}, {0, 2}, {3, 1}, {2, 0}};
  layer.info.oldRankExpertIds = in_use;
  rows const planned_before = layer.info.rankExpertIds;
  floats const loads{9, 1, 1, 1};
  auto const replan = [&](int l, bytes const* mask = nullptr, floats const* other = nullptr) {
    return planner.replan(l, (other == nullptr ? loads : *other).data(), mask, &layer.info);
  };
  auto const is_refused = [&](expert_planner::answer const& got, std::string const& text) {
    CHECK(got.code == expert_planner::status::refused);
    CHECK(got.text == text);
    CHECK(layer.info.rankExpertIds == planned_before);
    CHECK(layer.info.expertReplicaCount.empty());
  };

  SUBCASE("every kind of wrong input") {
    bytes const short_mask{0, 1};
    floats const negative{1, 1, -1, 1};
    is_refused(replan(0, &short_mask),
               "deadRankMask: expected an entry for each of the 4 ranks, or none, got 2");
    is_refused(replan(2), "layer: expected a layer of the planner, from 0, got 2");
    is_refused(replan(0, nullptr, &negative),
               "loads: expected numbers from 0 to below 2^47, got -1.000000");
    layer.info.oldRankExpertIds[1][0] = 4;
    is_refused(replan(0), "in_use: expected -1 or an expert in the slots of layer 0, got 4");
    layer.info.oldRankExpertIds.pop_back();
    is_refused(replan(0), "oldRankExpertIds: expected 4 ranks with 2 slots each");
    CHECK(log.size() == 5);
    CHECK(log.back() ==
          "layer 0 keeps its placement: oldRankExpertIds: expected 4 ranks with 2 slots each");
    layer.info.oldRankExpertIds = in_use;
    CHECK(replan(0));
    CHECK(log.size() == 5);
  }
  SUBCASE("layers that are refused for the same reason share a line until all are planned") {
    bytes const three_dead{0, 1, 1, 1};
    std::string const text =
        "dead_ranks: expected at least 4 slots of live ranks, one per expert, got 2";
    for (int const l : {0, 1, 0, 1}) {
      is_refused(replan(l, &three_dead), text);
    }
    CHECK(log == std::vector<std::string>{"layer 0 keeps its placement: " + text});
    CHECK(replan(0));
    CHECK(replan(1));
    CHECK(replan(0, &three_dead).code == expert_planner::status::refused);
    CHECK(log.size() == 2);
  }
  SUBCASE("a log that throws") {
    PlacementPlanner loud(of, 1, {1.0, 1},
                          [](std::string const& text) -> void { throw std::runtime_error(text); });
    CHECK(loud.replan(1, loads.data(), nullptr, &layer.info).code ==
          expert_planner::status::failed);
    CHECK(loud.replan(0, loads.data(), nullptr, &layer.info));
  }
}

TEST_CASE("outside: TensorRT-LLM's planner: no wait hangs after a refused plan") {
  watchdog const limit("a layer waits for a plan that was refused");
  MoeLoadBalancer balancer(4, 2);
  std::vector<std::shared_ptr<SingleLayerMoeLoadBalancer>> model;
  for (int l = 0; l < 2; ++l) {
    model.push_back(balancer.AddLayer(4, 2, 2));
    model.back()->setInitialWeightAssignments({0, 1, 0, 2, 3, 1, 2, 0});
  }
  balancer.finalizeModel({1.0, 1});
  auto const plan_after = [&](std::vector<std::int64_t> const& tokens) {
    for (auto const& layer : model) {
      layer->countTokens(tokens);
    }
    balancer.endIter();
    balancer.startIter();
    for (auto const& layer : model) {
      CHECK(layer->updater().weights() == layer->placement().oldRankExpertIds);
    }
  };
  rows const before = model[0]->placement().oldRankExpertIds;
  plan_after({1, -1, 1, 1});
  plan_after({1, -1, 1, 1});
  for (auto const& layer : model) {
    CHECK(layer->placement().oldRankExpertIds == before);
  }
  CHECK(balancer.log() ==
        std::vector<std::string>{"layer 0 keeps its placement: loads: expected numbers from 0 to "
                                 "below 2^47, got -1.000000"});
  plan_after({1, 1, 1, 90});  // the wrong loads are forgotten
  for (auto const& layer : model) {
    CHECK(layer->placement().oldRankExpertIds != before);
    CHECK(layer->placement().expertReplicaCount[3] == 4);
  }
  CHECK(balancer.log().size() == 1);
  balancer.setDeadRanks({0, 1, 1, 1});
  for (auto const& layer : model) {
    layer->countTokens({1, 1, 1, 1});
  }
  balancer.endIter();
  balancer.shutdown();  // waits, too
  CHECK(balancer.log().size() == 2);
}

TEST_CASE("outside: TensorRT-LLM's planner: a mask without a plan") {
  MoeLoadBalancer balancer(4, 1);
  std::vector<std::shared_ptr<SingleLayerMoeLoadBalancer>> model;
  for (int l = 0; l < 2; ++l) {
    model.push_back(balancer.AddLayer(4, 2, 2));
  }
  model[0]->setInitialWeightAssignments({0, 1, 0, 2, 1, 3, 2, 3});
  bytes const rank_2{0, 0, 1, 0};
  auto const listed = [](SingleLayerMoeLoadBalancer const& layer) {
    int const* const slots = layer.placement().placementInfoForGPU.globalSlotIds;
    return ints(slots, slots + 8);
  };

  SUBCASE("all other slots stay") {
    model[1]->setInitialWeightAssignments({3, 2, 1, 0, 3, 2, 1, 0});
    balancer.finalizeModel({1.0, 1});
    balancer.reconfigureMaskOnly(rank_2);
    CHECK(listed(*model[0]) == ints{0, 2, 1, 3, 6, 7, 8, 8});
    CHECK(model[0]->placement().oldRankExpertIds == rows{{0, 1}, {0, 2}, {-1, -1}, {2, 3}});
    CHECK(listed(*model[1]) == ints{3, 7, 2, 6, 1, 0, 8, 8});
    model[0]->countTokens({1, 1, 1, 90});
    balancer.endIter();
    balancer.startIter();
    CHECK(balancer.log().empty());
    CHECK(model[0]->placement().oldRankExpertIds[2] == ints{-1, -1});
    CHECK(model[0]->placement().expertReplicaCount[3] == 3);
  }
  SUBCASE("a mask that takes the last copy of one layer changes no layer") {
    model[1]->setInitialWeightAssignments({0, 1, 0, 2, 3, 1, 2, 0});
    balancer.finalizeModel({1.0, 1});
    CHECK_THROWS_WITH_AS(balancer.reconfigureMaskOnly(rank_2),
                         "expert 3 of layer 1 has no copy on a live rank", std::runtime_error);
    CHECK(listed(*model[0]) == ints{0, 2, 1, 4, 3, 6, 5, 7});
    CHECK(model[0]->placement().oldRankExpertIds == rows{{0, 1}, {0, 2}, {1, 3}, {2, 3}});
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
    CHECK(balancer.log().empty());
    for (auto const& layer : model) {
      CHECK(layer->updater().weights() == layer->placement().oldRankExpertIds);
      CHECK(layer->updater().copies() > static_cast<std::int64_t>(first.size()));
    }
  }
}

}  // namespace plimsoll_outside_tensorrt_llm_planner

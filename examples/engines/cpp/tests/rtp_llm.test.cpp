// SPDX-License-Identifier: Apache-2.0
// Shapes of RTP-LLM's test (github.com/alibaba/rtp-llm, Apache-2.0):
// - rtp_llm/cpp/models/eplb/test/eplb_py_wrapper_test.py (at 4b8d39cd): 61 layers, 256 experts, 288
//   slots, 144 ranks. Their test passes random numbers of these shapes through the wrapper; here a
//   plan of these shapes must also be one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../rtp_llm/balance_plan.hpp"

namespace plimsoll_outside_rtp_llm {

using rtp_llm::ints;

constexpr std::size_t layers = 61, experts = 256, slots = 288, ranks = 144;
constexpr std::size_t most_copies = slots - experts + 1;

/// The engine's map where the redundant experts do not divide by the ranks.
inline std::vector<ints> first_map() {
  ints row(slots);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    row[slot] = static_cast<std::int32_t>(slot % experts);
  }
  return std::vector<ints>(layers, row);
}

inline std::vector<std::size_t> all_layers() {
  std::vector<std::size_t> all(layers);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Loads of which few experts have most, [layers, experts].
inline ints skewed_loads() {
  ints loads(layers * experts);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    std::size_t const place = (i % experts * 7 + i / experts * 5) % experts;
    loads[i] = static_cast<std::int32_t>(9600 / (place + 1));
  }
  return loads;
}

/// Checks the shapes of a plan, and that its maps are the same map.
inline void check_plan(rtp_llm::EplbPlanTensors const& plan) {
  REQUIRE(plan.layer_id_buf.size() == 1);
  REQUIRE(plan.logic_expert_cnt.size() == experts);
  REQUIRE(plan.log2phy.size() == experts * most_copies);
  REQUIRE(plan.phy2log.size() == slots);
  for (std::size_t expert = 0; expert < experts; ++expert) {
    CAPTURE(expert);
    ints slots_of;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (plan.phy2log[slot] == static_cast<std::int32_t>(expert)) {
        slots_of.push_back(static_cast<std::int32_t>(slot));
      }
    }
    CHECK(!slots_of.empty());
    CHECK(plan.logic_expert_cnt[expert] == static_cast<std::int32_t>(slots_of.size()));
    slots_of.resize(most_copies, -1);
    auto const row = plan.log2phy.begin() + static_cast<std::ptrdiff_t>(expert * most_copies);
    CHECK(std::equal(slots_of.begin(), slots_of.end(), row));
  }
}

inline double peak(ints const& map, std::int32_t const* loads) {
  std::vector<double> of_ranks(ranks, 0.0);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    auto const copies = static_cast<double>(std::count(map.begin(), map.end(), map[slot]));
    of_ranks[slot / (slots / ranks)] += static_cast<double>(loads[map[slot]]) / copies;
  }
  return *std::max_element(of_ranks.begin(), of_ranks.end());
}

TEST_CASE("outside: RTP-LLM: a plan with the shapes of their test") {
  rtp_llm::EPLBConfig config;
  config.balance_method = "most_unbalanced_layer";
  rtp_llm::BalancePlanner planner(experts, ranks, all_layers(), first_map(), config);
  ints const loads = skewed_loads();
  ints gpu_loads(layers * ranks, 1);
  gpu_loads[17 * ranks + 5] = 9;
  rtp_llm::EplbPlanTensors plan;
  planner.create_balance_plan(loads, gpu_loads, plan);
  check_plan(plan);
  CHECK(plan.layer_id_buf[0] == 17);
  std::int32_t const* const of_layer = loads.data() + 17 * experts;
  CHECK(peak(plan.phy2log, of_layer) < peak(first_map()[17], of_layer));
}

TEST_CASE("outside: RTP-LLM: layers that each method selects") {
  struct method_case {
    char const* method;
    ints selected;
  };
  method_case const cases[] = {{"round", {3, 4, 60, 3}},
                               {"most_unbalanced_layer", {60, 60, 60, 60}},
                               {"mix", {60, 3, 60, 4}}};
  for (method_case const& c : cases) {
    CAPTURE(c.method);
    rtp_llm::EPLBConfig config;
    config.balance_method = c.method;
    rtp_llm::BalancePlanner planner(experts, ranks, {3, 4, 60}, first_map(), config);
    ints gpu_loads(layers * ranks, 1);
    gpu_loads[0] = 99;  // layer 0 has no experts
    gpu_loads[60 * ranks] = 2;
    ints selected;
    for (std::size_t i = 0; i < c.selected.size(); ++i) {
      rtp_llm::EplbPlanTensors plan;
      planner.create_balance_plan(skewed_loads(), gpu_loads, plan);
      selected.push_back(plan.layer_id_buf[0]);
    }
    CHECK(selected == c.selected);
  }
  rtp_llm::EPLBConfig config;
  config.balance_method = "random";
  CHECK_THROWS_AS(rtp_llm::BalancePlanner(experts, ranks, {3}, first_map(), config),
                  std::runtime_error);
}

TEST_CASE("outside: RTP-LLM: the loads of their test are refused for shapes of a model") {
  rtp_llm::BalancePlanner planner(experts, ranks, all_layers(), first_map(), {});
  rtp_llm::EplbPlanTensors plan;
  CHECK_THROWS_AS(planner.create_balance_plan({1, 2, 3, 4}, {1, 0, -3, 4}, plan),
                  std::runtime_error);
  CHECK(plan.phy2log.empty());
}

TEST_CASE("outside: RTP-LLM: a rank that is lost gets no expert") {
  rtp_llm::BalancePlanner planner(experts, ranks, {0}, first_map(), {});
  std::vector<std::uint8_t> active_ranks(ranks, 1);
  active_ranks[100] = 0;
  rtp_llm::EplbPlanTensors plan;
  planner.create_balance_plan(skewed_loads(), ints(layers * ranks, 1), plan, active_ranks.data());
  check_plan(plan);
  CHECK(plan.phy2log[200] == -1);
  CHECK(plan.phy2log[201] == -1);
  CHECK(std::count(plan.phy2log.begin(), plan.phy2log.end(), -1) == 2);
}

}  // namespace plimsoll_outside_rtp_llm

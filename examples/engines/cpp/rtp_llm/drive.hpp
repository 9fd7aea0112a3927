// SPDX-License-Identifier: Apache-2.0
// Runs the balancer's cycle after forward passes whose loads drift.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <vector>

#include "../drift.hpp"
#include "balance_plan.hpp"
#include "stand_in.hpp"

namespace rtp_llm {

constexpr std::size_t layers = 3, experts = 32, ranks = 8, slots_per_rank = 5,
                      slots = ranks * slots_per_rank;

/// Experts 0 to 31, then copies of the first eight.
inline std::vector<ints> first_map() {
  ints row;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    row.push_back(static_cast<std::int32_t>(slot % experts));
  }
  return std::vector<ints>(layers, row);
}

/// Routes the tokens of an expert evenly to its copies, and adds those of each rank to `gpu_loads`.
inline void forward(LayerWeights const& of_layer, std::vector<std::int64_t> const& loads,
                    std::int32_t* gpu_loads) {
  std::size_t const width = of_layer.log2phy.size() / experts;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    auto const copies = static_cast<std::size_t>(of_layer.logic_expert_cnt[expert]);
    cpp_engines::expect(copies > 0, "an expert has no slot");
    for (std::size_t copy = 0; copy < copies; ++copy) {
      auto const slot = static_cast<std::size_t>(of_layer.log2phy[expert * width + copy]);
      cpp_engines::expect(of_layer.moe_weight[slot] == static_cast<std::int32_t>(expert),
                          "a slot does not hold the weights of its expert");
      gpu_loads[slot / slots_per_rank] +=
          static_cast<std::int32_t>(loads[expert] / of_layer.logic_expert_cnt[expert]);
    }
  }
}

/// Checks the layer that a cycle has ended with, and prints a line.
inline void report(EplbPlanTensors const& plan, ints const& before, LayerWeights const& after,
                   std::vector<std::int64_t> const& loads) {
  cpp_engines::expect(plan.phy2log == after.moe_weight, "weights do not follow the plan");
  std::printf("  layer %d: slots that move %d, balancedness %.4f -> %.4f\n", plan.layer_id_buf[0],
              cpp_engines::count_moves(before.data(), plan.phy2log.data(), ranks, slots_per_rank),
              cpp_engines::balancedness(loads, before.data(), ranks, slots_per_rank),
              cpp_engines::balancedness(loads, plan.phy2log.data(), ranks, slots_per_rank));
}

inline void drive() {
  std::printf("RTP-LLM: %zu layers, %zu experts, %zu ranks x %zu slots\n", layers, experts, ranks,
              slots_per_rank);
  EPLBConfig const config;
  BalancePlanner planner(experts, ranks, {0, 1, 2}, first_map(), config);
  ExpertBalancer<BalancePlanner> balancer(experts, ranks, first_map(), planner, config);
  std::vector<LayerWeights> model;
  for (ints const& map : first_map()) {
    LayerWeights of_layer{map, ints(experts * (slots - experts + 1)), ints(experts)};
    expert_planner::pad_slots({experts, ranks, slots_per_rank}, map.data(), slots - experts + 1,
                              of_layer.logic_expert_cnt.data(), of_layer.log2phy.data());
    model.push_back(of_layer);
  }
  cpp_engines::drifting_loads source(experts, 400);
  for (int step = 0; step < 110; ++step) {
    ints log_stats, gpu_loads(layers * ranks, 0);
    std::vector<std::vector<std::int64_t>> loads;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      loads.push_back(source.draw(step, static_cast<int>(layer)));
      forward(model[layer], loads[layer], gpu_loads.data() + layer * ranks);
      std::transform(loads[layer].begin(), loads[layer].end(), std::back_inserter(log_stats),
                     [](std::int64_t load) { return static_cast<std::int32_t>(load); });
    }
    EplbPlanStatus const status = balancer.getPlanStatus();
    std::vector<LayerWeights> const before = model;
    balancer.stepForward(log_stats, gpu_loads, model);
    bool const has_ended =
        status != EplbPlanStatus::INIT && balancer.getPlanStatus() == EplbPlanStatus::INIT;
    if (has_ended) {
      auto const layer = static_cast<std::size_t>(balancer.plan().layer_id_buf[0]);
      report(balancer.plan(), before[layer].moe_weight, model[layer], loads[layer]);
    }
  }

  // A lost rank: its slots are empty, and every expert has one elsewhere.
  EplbPlanTensors plan;
  std::uint8_t const without_rank_2[ranks] = {1, 1, 0, 1, 1, 1, 1, 1};
  planner.create_balance_plan(ints(layers * experts, 9), ints(layers * ranks, 36), plan,
                              without_rank_2);
  auto const lost = plan.phy2log.begin() + 2 * slots_per_rank;
  cpp_engines::expect(std::count(lost, lost + slots_per_rank, -1) == slots_per_rank &&
                          cpp_engines::has_all_experts(plan.phy2log.data(), slots, experts),
                      "a plan without rank 2 is wrong");
  // Wrong inputs leave the plan as it is.
  ints const kept = plan.phy2log;
  cpp_engines::print_refusal([&] {
    planner.create_balance_plan(ints(layers * experts, -1), ints(layers * ranks, 0), plan);
  });
  cpp_engines::print_refusal([&] {
    planner.create_balance_plan({1, 2, 3, 4}, ints(layers * ranks, 0), plan);
  });
  cpp_engines::expect(plan.phy2log == kept, "a wrong input has changed the plan");
}

}  // namespace rtp_llm

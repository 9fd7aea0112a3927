// SPDX-License-Identifier: Apache-2.0
#include "eplb_policy.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>

namespace xllm {
namespace {

/// LOG(FATAL) in the engine.
void check(expert_planner::answer const& answer) {
  if (!answer) {
    throw std::runtime_error("EPLB: " + answer.text);
  }
}

}  // namespace

EplbPolicy::EplbPolicy(std::int32_t device_experts_num, std::int32_t device_num,
                       std::int32_t layer_num) {
  EPLBConfig const& config = EPLBConfig::get_instance();
  std::int32_t const experts = (device_experts_num - config.redundant_experts_num) * device_num;
  expert_planner::planner_options options;
  options.max_moves_share = config.eplb_max_moves_share;
  options.steps = config.eplb_history;
  check(planner_.create({experts, device_num, device_experts_num}, layer_num, options));
  auto const layers = static_cast<std::size_t>(layer_num);
  halved_load_ = Tensor<std::int64_t>({layers, static_cast<std::size_t>(experts)});
  expert_distribution_ = initial_distribution(layers, static_cast<std::size_t>(device_num),
                                              static_cast<std::size_t>(device_experts_num));
}

std::pair<Tensor<std::int32_t>, std::vector<bool>> EplbPolicy::rebalance_experts(
    Tensor<std::int64_t> const& expert_load) {
  if (expert_load.sizes != halved_load_.sizes) {
    throw std::runtime_error("EPLB: expert_load: expected [layers, experts] of the policy");
  }
  std::size_t const layers = halved_load_.sizes[0];
  std::size_t const experts = halved_load_.sizes[1];
  // The manager only adds to what it has halved: a negative step is an error, which the planner
  // refuses.
  std::vector<std::int64_t> step(experts);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t expert = 0; expert < experts; ++expert) {
      step[expert] = expert_load.row(layer)[expert] - halved_load_.row(layer)[expert];
    }
    check(planner_.add_step(static_cast<int>(layer), step.data(), static_cast<int>(experts)));
  }
  Tensor<std::int32_t> planned(expert_distribution_.sizes);
  std::vector<std::uint8_t> changed(layers);
  check(planner_.plan_all(expert_distribution_.values.data(), nullptr, planned.values.data(),
                          changed.data()));
  for (std::size_t i = 0; i < expert_load.values.size(); ++i) {
    halved_load_.values[i] = expert_load.values[i] / 2;
  }
  expert_distribution_ = planned;
  return {std::move(planned), std::vector<bool>(changed.begin(), changed.end())};
}

}  // namespace xllm

// SPDX-License-Identifier: Apache-2.0
// Runs the manager and its devices over batches whose loads drift, in the engine's order of calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "../drift.hpp"
#include "eplb_policy.hpp"
#include "stand_in.hpp"

namespace xllm {

constexpr std::int32_t layers = 4, devices = 8, experts = 32;

/// The workers: an expert's id in a slot takes the place of its weights.
class Workers {
 public:
  explicit Workers(Tensor<std::int32_t> held) : held_(std::move(held)) {}

  /// Switches one layer to what was prepared, and prepares another one.
  void eplb_execute(EplbInfo const& info) {
    if (info.update_layer_id != -1) {
      cpp_engines::expect(info.update_layer_id == prepared_layer_, "the layer was not prepared");
      std::copy(prepared_.begin(), prepared_.end(),
                held_.row(static_cast<std::size_t>(info.update_layer_id)));
    }
    if (info.prepare_layer_id != -1) {
      prepared_layer_ = ready_layer_ = info.prepare_layer_id;
      prepared_ = info.expert_ids;
    }
  }

  /// The layer that each device has prepared, told once.
  std::vector<std::int32_t> prepared_layer_ids() {
    return std::vector<std::int32_t>(devices, std::exchange(ready_layer_, -1));
  }

  /// Adds the load of a layer to the running sums of the devices; copies share it in whole tokens.
  void forward(std::size_t layer, std::vector<std::int64_t> const& loads,
               std::vector<Tensor<std::int64_t>>& sums) const {
    std::size_t const slots = held_.sizes[2];
    std::vector<int> left = cpp_engines::count_copies(held_.row(layer), slots * devices, experts);
    std::vector<std::int64_t> rest = loads;
    for (std::size_t slot = 0; slot < slots * devices; ++slot) {
      auto const expert = static_cast<std::size_t>(held_.row(layer)[slot]);
      std::int64_t const part = rest[expert] / left[expert]--;
      rest[expert] -= part;
      std::int64_t* const sum = sums[slot / slots].row(layer) + slot % slots;
      *sum = part + (slot % slots == 0 ? 0 : sum[-1]);
    }
  }

  [[nodiscard]] Tensor<std::int32_t> const& held() const { return held_; }

 private:
  Tensor<std::int32_t> held_;
  std::vector<std::int32_t> prepared_;
  std::int32_t prepared_layer_ = -1, ready_layer_ = -1;
};

/// Checks a plan against the map before, and prints a line.
inline void report(int plan, Tensor<std::int32_t> const& before, Tensor<std::int32_t> const& after,
                   std::vector<bool> const& changed,
                   std::vector<std::vector<std::int64_t>> const& loads) {
  std::size_t const slots = before.sizes[2];
  int moves = 0;
  double old_mean = 0, new_mean = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    int const* const from = before.row(layer);
    int const* const to = after.row(layer);
    cpp_engines::expect(cpp_engines::has_all_experts(to, slots * devices, experts),
                        "an expert has no slot");
    cpp_engines::expect(changed[layer] != std::equal(from, from + slots * devices, to),
                        "`changed` does not tell which maps differ");
    moves += cpp_engines::count_moves(from, to, devices, slots);
    old_mean += cpp_engines::balancedness(loads[layer], from, devices, slots) / layers;
    new_mean += cpp_engines::balancedness(loads[layer], to, devices, slots) / layers;
  }
  std::printf("  plan %d: layers changed %d, slots that move %d, balancedness %.4f -> %.4f\n", plan,
              static_cast<int>(std::count(changed.begin(), changed.end(), true)), moves, old_mean,
              new_mean);
}

inline void drive() {
  std::printf("xLLM: %d layers, %d experts, %d devices x 5 slots\n", layers, experts, devices);
  EplbManager<EplbPolicy> manager(layers, devices, experts);
  Workers workers(manager.expert_distribution());
  cpp_engines::drifting_loads source(experts, 288);
  auto const interval = static_cast<int>(EPLBConfig::get_instance().eplb_update_interval);
  for (int batch = 1; batch <= 4 * interval; ++batch) {
    workers.eplb_execute(manager.get_eplb_info());
    std::vector<std::vector<std::int64_t>> loads;
    std::vector<Tensor<std::int64_t>> sums(devices,
                                           Tensor<std::int64_t>({layers, workers.held().sizes[2]}));
    for (std::size_t layer = 0; layer < layers; ++layer) {
      loads.push_back(source.draw(batch, static_cast<int>(layer)));
      workers.forward(layer, loads.back(), sums);
    }
    manager.set_prepared_layer_ids(workers.prepared_layer_ids());
    Tensor<std::int32_t> const before = manager.expert_distribution();
    manager.update_expert_load(sums);
    if (batch % interval == 0) {
      cpp_engines::expect(workers.held().values == before.values, "weights do not follow the plan");
      report(batch / interval, before, manager.expert_distribution(), manager.enable_update_vec(),
             loads);
    }
  }

  // A wrong input is refused with a text and leaves the map as it is.
  cpp_engines::print_refusal(
      [] { EplbPolicy(1, devices, layers); });  // no slot but the redundant one
  EplbPolicy policy(5, devices, layers);
  Tensor<std::int64_t> const load({layers, experts}, 3);
  auto const map = policy.rebalance_experts(load).first;
  cpp_engines::print_refusal([&] {
    policy.rebalance_experts(Tensor<std::int64_t>({layers, experts}, -1));
  });
  cpp_engines::expect(policy.rebalance_experts(load).first.values == map.values,
                      "a wrong load has changed the map");
}

}  // namespace xllm

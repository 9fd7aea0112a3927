// SPDX-License-Identifier: Apache-2.0
// The parts of xLLM's EPLB that its planner sees: option values, tensors, and the manager with its
// order of calls. In the engine the manager has two threads and a queue; here each call does at
// once what they do for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace xllm {

/// Takes the place of torch::Tensor: on the host, row by row.
template <class Value>
struct Tensor {
  std::vector<std::size_t> sizes;
  std::vector<Value> values;

  Tensor() = default;
  explicit Tensor(std::vector<std::size_t> shape, Value fill = Value())
      : sizes(std::move(shape)),
        values(std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies<>()),
               fill) {}

  [[nodiscard]] std::size_t row_size() const { return values.size() / sizes[0]; }
  Value* row(std::size_t index) { return values.data() + index * row_size(); }
  [[nodiscard]] Value const* row(std::size_t index) const {
    return values.data() + index * row_size();
  }
};

/// Option values. The last two are new.
struct EPLBConfig {
  std::int32_t redundant_experts_num = 1;  ///< of each device
  std::int64_t eplb_update_interval = 24;  ///< seconds in the engine, batches here
  double eplb_max_moves_share = 0.1;       ///< largest share of slots that get another expert
  std::int32_t eplb_history = 2;           ///< plans whose loads are kept

  static EPLBConfig& get_instance() {
    static EPLBConfig config;
    return config;
  }
};

/// The layout before the first plan, [layers, devices, slots]: each device holds its block of
/// experts, and its redundant slots hold copies of the block's last one.
inline Tensor<std::int32_t> initial_distribution(std::size_t layers, std::size_t devices,
                                                 std::size_t slots) {
  auto const redundant = static_cast<std::size_t>(EPLBConfig::get_instance().redundant_experts_num);
  Tensor<std::int32_t> experts({layers, devices, slots});
  for (std::size_t i = 0; i < experts.values.size(); ++i) {
    std::size_t const block = slots - redundant;
    std::size_t const place = std::min(i % slots, block - 1);
    experts.values[i] = static_cast<std::int32_t>(i / slots % devices * block + place);
  }
  return experts;
}

/// Layers to prepare and to switch, sent to the devices with a batch; -1 is no layer.
struct EplbInfo {
  std::int32_t prepare_layer_id = -1;
  std::vector<std::int32_t> expert_ids;  ///< [devices * slots] of the layer to prepare
  std::int32_t update_layer_id = -1;
};

/// @tparam EplbPolicy the planner of the engine, or the one in eplb_policy.hpp
template <class EplbPolicy>
class EplbManager {
 public:
  EplbManager(std::int32_t layer_num, std::int32_t device_num, std::int32_t experts_num)
      : slots_(experts_num / device_num + EPLBConfig::get_instance().redundant_experts_num),
        policy_(slots_, device_num, layer_num),
        prepared_layer_id_(static_cast<std::size_t>(device_num), -1) {
    auto const layers = static_cast<std::size_t>(layer_num);
    expert_load_ = Tensor<std::int64_t>({layers, static_cast<std::size_t>(experts_num)});
    expert_distribution_ = initial_distribution(layers, static_cast<std::size_t>(device_num),
                                                static_cast<std::size_t>(slots_));
    enable_update_vec_.assign(layers, false);
  }

  /// Adds the loads of a batch, and plans when the interval is over.
  /// @param expert_load one tensor a device, [layers, slots]: running sums over its slots
  void update_expert_load(std::vector<Tensor<std::int64_t>> const& expert_load) {
    auto const slots = static_cast<std::size_t>(slots_);
    for (std::size_t layer = 0; layer < expert_load_.sizes[0]; ++layer) {
      for (std::size_t device = 0; device < expert_load.size(); ++device) {
        std::int64_t const* const sums = expert_load[device].row(layer);
        std::int32_t const* const ids = expert_distribution_.row(layer) + device * slots;
        for (std::size_t slot = 0; slot < slots; ++slot) {
          expert_load_.row(layer)[ids[slot]] += sums[slot] - (slot == 0 ? 0 : sums[slot - 1]);
        }
      }
    }
    if (++batches_ % EPLBConfig::get_instance().eplb_update_interval == 0) {
      std::tie(expert_distribution_, enable_update_vec_) = policy_.rebalance_experts(expert_load_);
      for (std::int64_t& load : expert_load_.values) {
        load /= 2;
      }
      to_be_prepared_ = find_next_true(enable_update_vec_, 0);
      eplb_manager_loop();
    }
  }

  EplbInfo get_eplb_info() {
    EplbInfo info;
    info.update_layer_id = std::exchange(ready_layer_id_, -1);
    if (to_be_prepared_ != -1 && preparing_layer_id_ != to_be_prepared_) {
      std::int32_t const* const ids =
          expert_distribution_.row(static_cast<std::size_t>(to_be_prepared_));
      info.prepare_layer_id = preparing_layer_id_ = to_be_prepared_;
      info.expert_ids.assign(ids, ids + expert_distribution_.row_size());
    }
    return info;
  }

  /// Notes which layer each device has prepared. (All report -1 after the last layer of a plan,
  /// which clears the notes.)
  void set_prepared_layer_ids(std::vector<std::int32_t> const& expert_layer_ids) {
    for (std::size_t device = 0; device < expert_layer_ids.size(); ++device) {
      if (expert_layer_ids[device] == to_be_prepared_) {
        prepared_layer_id_[device] = to_be_prepared_;
      }
    }
    eplb_manager_loop();
  }

  [[nodiscard]] Tensor<std::int32_t> const& expert_distribution() const {
    return expert_distribution_;
  }
  [[nodiscard]] std::vector<bool> const& enable_update_vec() const { return enable_update_vec_; }

 private:
  /// Passes to the next layer as soon as all devices have prepared one.
  void eplb_manager_loop() {
    auto const is_prepared = [&](std::int32_t layer) { return layer == to_be_prepared_; };
    while (to_be_prepared_ != -1 &&
           std::all_of(prepared_layer_id_.begin(), prepared_layer_id_.end(), is_prepared)) {
      ready_layer_id_ = to_be_prepared_;
      to_be_prepared_ =
          find_next_true(enable_update_vec_, static_cast<std::size_t>(to_be_prepared_) + 1);
      preparing_layer_id_ = to_be_prepared_ == -1 ? -1 : preparing_layer_id_;
    }
  }

  static std::int32_t find_next_true(std::vector<bool> const& vec, std::size_t start) {
    auto const from = vec.begin() + static_cast<std::ptrdiff_t>(start);
    auto const found = std::find(from, vec.end(), true);
    return found == vec.end() ? -1 : static_cast<std::int32_t>(found - vec.begin());
  }

  std::int32_t slots_;
  EplbPolicy policy_;
  Tensor<std::int64_t> expert_load_;          ///< [layers, experts]
  Tensor<std::int32_t> expert_distribution_;  ///< [layers, devices, slots]
  std::vector<bool> enable_update_vec_;       ///< [layers]
  std::vector<std::int32_t> prepared_layer_id_;
  std::int32_t to_be_prepared_ = -1;
  std::int32_t preparing_layer_id_ = -1;
  std::int32_t ready_layer_id_ = -1;
  std::int64_t batches_ = 0;
};

}  // namespace xllm

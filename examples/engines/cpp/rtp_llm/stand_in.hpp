// SPDX-License-Identifier: Apache-2.0
// The parts of RTP-LLM's EPLB that its planner sees: option values, the buffers of a plan, and the
// cycle of ExpertBalancer. In the engine every rank has a balancer, and collectives connect them;
// here one object plays all ranks in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rtp_llm {

using ints = std::vector<std::int32_t>;

/// Option values. The last one is new.
struct EPLBConfig {
  std::int64_t eplb_update_time = 20;  ///< forward passes that a plan's loads are summed over
  std::string balance_method = "mix";
  std::int64_t eplb_stats_window_size = 10;
  double eplb_max_moves_share = 0.1;  ///< largest share of a layer's slots that get another expert
};

/// A plan of one layer, E experts and P slots, and what a rank loads for it.
struct EplbPlanTensors {
  std::int32_t layer_id = -1;  ///< the layer whose weights are loaded
  ints layer_id_buf;           ///< [1]
  ints logic_expert_cnt;       ///< [E]: copies of each expert
  ints log2phy;                ///< [E, P - E + 1]: their slots, then -1
  ints phy2log;                ///< [P]
  ints moe_weight;             ///< [P / ranks]: an expert's id takes the place of its weights

  void init(std::size_t experts, std::size_t slots) {
    layer_id_buf.assign(1, 0);
    logic_expert_cnt.assign(experts, 0);
    log2phy.assign(experts * (slots - experts + 1), 0);
    phy2log.assign(slots, 0);
  }
};

enum class EplbPlanStatus { INIT, PREPARING, LOADING, LOADED };

/// Weights and maps of a layer that the model reads.
struct LayerWeights {
  ints moe_weight;  ///< [P]: the weights of all ranks
  ints log2phy, logic_expert_cnt;
};

/// @tparam Planner has create_balance_plan, as the Python object of the engine
template <class Planner>
class ExpertBalancer {
 public:
  /// @param phy2log [layers, P]: the map in use
  ExpertBalancer(std::size_t experts, std::size_t ranks, std::vector<ints> phy2log,
                 Planner& planner, EPLBConfig config)
      : planner_(planner),
        config_(std::move(config)),
        phy2log_(std::move(phy2log)),
        log_stats_(phy2log_.size() * experts, 0),
        gpu_loads_(phy2log_.size() * ranks, 0),
        plan_(ranks) {
    for (EplbPlanTensors& of_rank : plan_) {
      of_rank.init(experts, phy2log_[0].size());
    }
  }

  /// Does one step of the cycle after a forward pass.
  /// @param log_stats [layers, E]: tokens of each expert
  /// @param gpu_loads [layers, ranks]: tokens of each rank
  void stepForward(ints const& log_stats, ints const& gpu_loads, std::vector<LayerWeights>& model) {
    switch (status_) {
      case EplbPlanStatus::INIT:
        add(log_stats, log_stats_);
        add(gpu_loads, gpu_loads_);
        if (++update_cnt_ >= config_.eplb_update_time) {
          status_ = EplbPlanStatus::PREPARING;
        }
        break;
      case EplbPlanStatus::PREPARING:
        planner_.create_balance_plan(log_stats_, gpu_loads_, plan_[0]);  // rank 0
        std::fill(plan_.begin() + 1, plan_.end(), plan_[0]);             // broadcast
        status_ = EplbPlanStatus::LOADING;
        // Not in the engine, see PATCH.md: a map that stays needs no weights.
        if (phy2log_[layer()] == plan_[0].phy2log) {
          reset();
        }
        break;
      case EplbPlanStatus::LOADING:  // a thread of each rank, in the engine
        for (std::size_t rank = 0; rank < plan_.size(); ++rank) {
          EplbPlanTensors& plan = plan_[rank];
          auto const width = static_cast<std::ptrdiff_t>(plan.phy2log.size() / plan_.size());
          auto const first = plan.phy2log.begin() + static_cast<std::ptrdiff_t>(rank) * width;
          plan.layer_id = plan.layer_id_buf[0];
          plan.moe_weight.assign(first, first + width);
        }
        status_ = EplbPlanStatus::LOADED;
        break;
      case EplbPlanStatus::LOADED:
        LayerWeights& of_layer = model[layer()];
        of_layer.moe_weight.clear();
        for (EplbPlanTensors const& plan : plan_) {
          of_layer.moe_weight.insert(of_layer.moe_weight.end(), plan.moe_weight.begin(),
                                     plan.moe_weight.end());
        }
        of_layer.log2phy = plan_[0].log2phy;
        of_layer.logic_expert_cnt = plan_[0].logic_expert_cnt;
        phy2log_[layer()] = plan_[0].phy2log;
        reset();
        break;
    }
  }

  [[nodiscard]] EplbPlanStatus getPlanStatus() const { return status_; }
  [[nodiscard]] EplbPlanTensors const& plan() const { return plan_[0]; }

 private:
  static void add(ints const& from, ints& to) {
    std::transform(from.begin(), from.end(), to.begin(), to.begin(), std::plus<>());
  }

  [[nodiscard]] std::size_t layer() const {
    return static_cast<std::size_t>(plan_[0].layer_id_buf[0]);
  }

  void reset() {
    std::fill(log_stats_.begin(), log_stats_.end(), 0);
    std::fill(gpu_loads_.begin(), gpu_loads_.end(), 0);
    update_cnt_ = 0;
    status_ = EplbPlanStatus::INIT;
  }

  Planner& planner_;
  EPLBConfig config_;
  std::vector<ints> phy2log_;
  ints log_stats_, gpu_loads_;
  std::vector<EplbPlanTensors> plan_;  ///< [ranks]
  EplbPlanStatus status_ = EplbPlanStatus::INIT;
  std::int64_t update_cnt_ = 0;
};

}  // namespace rtp_llm

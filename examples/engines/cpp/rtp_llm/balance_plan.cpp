// SPDX-License-Identifier: Apache-2.0
#include "balance_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace rtp_llm {
namespace {

void check(expert_planner::answer const& answer) {
  if (!answer) {
    throw std::runtime_error("EPLB: " + answer.text);
  }
}

void check(bool holds, char const* text) {
  if (!holds) {
    throw std::runtime_error(std::string("EPLB: ") + text);
  }
}

}  // namespace

BalancePlanner::BalancePlanner(int experts, int ranks, std::vector<std::size_t> moe_layer_index,
                               std::vector<ints> phy2log, EPLBConfig const& config)
    : moe_layer_index_(std::move(moe_layer_index)),
      phy2log_(std::move(phy2log)),
      balance_method_(config.balance_method) {
  check(balance_method_ == "round" || balance_method_ == "most_unbalanced_layer" ||
            balance_method_ == "mix",
        "balance_method: expected round, most_unbalanced_layer or mix");
  sizes_.experts = experts;
  sizes_.ranks = ranks;
  sizes_.slots_per_rank = static_cast<int>(phy2log_.at(0).size()) / ranks;
  expert_planner::planner_options options;
  options.max_moves_share = config.eplb_max_moves_share;
  options.steps = static_cast<int>(config.eplb_stats_window_size);
  check(planner_.create(sizes_, static_cast<int>(phy2log_.size()), options));
}

void BalancePlanner::create_balance_plan(ints const& log_stats, ints const& gpu_loads,
                                         EplbPlanTensors& plan, std::uint8_t const* active_ranks) {
  auto const experts = static_cast<std::size_t>(sizes_.experts);
  auto const ranks = static_cast<std::size_t>(sizes_.ranks);
  check(log_stats.size() == phy2log_.size() * experts, "log_stats: expected [layers, experts]");
  check(gpu_loads.size() == phy2log_.size() * ranks, "gpu_loads: expected [layers, ranks]");
  for (std::size_t const layer : moe_layer_index_) {
    check(planner_.add_step(static_cast<int>(layer), log_stats.data() + layer * experts,
                            sizes_.experts));
  }
  std::vector<std::uint8_t> dead_ranks(ranks, 0);
  for (std::size_t rank = 0; active_ranks != nullptr && rank < ranks; ++rank) {
    dead_ranks[rank] = active_ranks[rank] == 0 ? 1 : 0;
  }
  std::size_t const layer = get_balanced_layer(gpu_loads);
  ints& in_use = phy2log_[layer];
  EplbPlanTensors made;
  made.init(experts, in_use.size());
  made.layer_id_buf[0] = static_cast<std::int32_t>(layer);
  check(planner_.plan(static_cast<int>(layer), in_use.data(), dead_ranks.data(),
                      made.phy2log.data(), made.logic_expert_cnt.data()));
  check(expert_planner::pad_slots(sizes_, made.phy2log.data(),
                                  static_cast<int>(made.log2phy.size() / experts),
                                  made.logic_expert_cnt.data(), made.log2phy.data()));
  in_use = made.phy2log;
  plan.layer_id_buf = std::move(made.layer_id_buf);
  plan.logic_expert_cnt = std::move(made.logic_expert_cnt);
  plan.log2phy = std::move(made.log2phy);
  plan.phy2log = std::move(made.phy2log);
}

/// Takes the layers in turn, or the one whose most loaded rank has the most tokens; "mix"
/// alternates.
std::size_t BalancePlanner::get_balanced_layer(ints const& gpu_loads) {
  ++update_cnt_;
  if (balance_method_ == "round" || (balance_method_ == "mix" && update_cnt_ % 2 == 0)) {
    return moe_layer_index_[next_++ % moe_layer_index_.size()];
  }
  auto const peak = [&](std::size_t layer) {
    auto const first = gpu_loads.begin() + static_cast<std::ptrdiff_t>(layer) * sizes_.ranks;
    return *std::max_element(first, first + sizes_.ranks);
  };
  return *std::max_element(
      moe_layer_index_.begin(), moe_layer_index_.end(),
      [&](std::size_t one, std::size_t other) { return peak(one) < peak(other); });
}

}  // namespace rtp_llm

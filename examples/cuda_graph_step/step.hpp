// SPDX-License-Identifier: Apache-2.0
// One layer's step: count the tokens of every expert, split them over the replicas, round the split
// to quotas, and dispatch every token copy to a slot. All arrays keep their addresses, and no call
// allocates or waits, so that main_gpu.cu can capture the step. Twice the layer migrates to another
// placement, which the step that was captured before then uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/views.hpp>
#include <utility>
#include <vector>

namespace cuda_graph_step_example {

using plimsoll::index_t;

constexpr index_t tokens = 1024, top_k = 4, experts = 32, ranks = 8, slots = 48, steps = 6;

/// The router's choices in step `step`: few experts are popular, and they change from step to step.
inline std::vector<std::int32_t> route(index_t step) {
  std::vector<std::int32_t> ids;
  for (index_t i = 0; i < tokens * top_k; ++i) {
    double const u = plimsoll::random::uniform(0, static_cast<std::uint64_t>(step),
                                               static_cast<std::uint64_t>(i / top_k));
    // The experts of a token are neighbors, so that they differ.
    auto const first = static_cast<index_t>(experts * u * u);
    ids.push_back(static_cast<std::int32_t>((first + i % top_k + step / 2) % experts));
  }
  return ids;
}

/// Returns the token copies of every expert.
inline std::vector<std::int32_t> loads_of(std::vector<std::int32_t> const& ids) {
  std::vector<std::int32_t> loads(static_cast<std::size_t>(experts));
  for (std::int32_t const id : ids) {
    ++loads[static_cast<std::size_t>(id)];
  }
  return loads;
}

/// Arrays and prepared object of a layer, in the policy's memory.
template <class Policy>
class layer {
 public:
  plimsoll::array<std::int32_t, Policy, 2> topk_ids;  ///< `[tokens, top_k]`: the router's output
  plimsoll::array<std::int32_t, Policy, 2> chosen;    ///< `[tokens, top_k]`: slot of every copy

  explicit layer(Policy const& policy)
      : topk_ids(policy, tokens, top_k),
        chosen(policy, tokens, top_k),
        policy_(policy),
        // In an engine, from recorded loads.
        plan_(plan_for(policy, route(0))),
        splitter_(policy, plan_.ref(), {.max_token_copies = tokens * top_k}),
        counts_(policy, 1, experts),
        routing_(policy, 1),
        dispatched_(policy, 1) {}

  /// Enqueues the step for the tokens in `topk_ids`. With several ranks, an all-reduce of the
  /// counts comes between counting and planning, and is captured with them.
  void enqueue() {
    auto const counts = plimsoll::array_ref(counts_.data_handle(), experts);
    plimsoll::count_tokens(policy_, topk_ids, {}, counts, routing_);
    splitter_.plan(counts_);  // split and quotas
    splitter_.dispatch(0, topk_ids, chosen, dispatched_);
  }

  /// Plans a placement for the tokens of a step, and takes it. An engine moves the experts' weights
  /// before.
  void migrate(std::vector<std::int32_t> const& ids) {
    plan_ = plan_for(policy_, ids);
    splitter_.update(0, plan_.ref());
  }

  /// Prints the loads of a step; returns whether its slots are right.
  [[nodiscard]] bool report(index_t step, std::vector<std::int32_t> const& ids) const {
    splitter_.check();
    auto const map = plan_.physical_to_logical.to_host();
    auto const slot = chosen.to_host();
    std::vector<std::int32_t> home(static_cast<std::size_t>(ranks));
    std::vector<std::int32_t> balanced(home);
    bool right = true;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      right = right && slot[i] >= 0 && map[static_cast<std::size_t>(slot[i])] == ids[i];
      ++home[static_cast<std::size_t>(ids[i] / (experts / ranks))];
      balanced[static_cast<std::size_t>(std::max(slot[i], 0) / (slots / ranks))] += right ? 1 : 0;
    }
    auto const peak = *std::max_element(balanced.begin(), balanced.end());
    auto const promised = plimsoll::read(policy_, splitter_.reports())[0].peak;
    std::printf("step %d: mean of %d ranks %d copies, peak %d without replicas, %d with%s\n",
                static_cast<int>(step), static_cast<int>(ranks),
                static_cast<int>(tokens * top_k / ranks),
                static_cast<int>(*std::max_element(home.begin(), home.end())),
                static_cast<int>(peak), right ? "" : "; a slot is wrong");
    return right && peak == promised;
  }

 private:
  static plimsoll::placement<Policy> plan_for(Policy const& policy,
                                              std::vector<std::int32_t> const& ids) {
    return plimsoll::eplb(policy, plimsoll::array(policy, loads_of(ids), 1, experts), slots,
                          {.on = {.ranks = ranks}});
  }

  Policy policy_;
  plimsoll::placement<Policy> plan_;
  plimsoll::lplb<Policy> splitter_;
  plimsoll::array<std::int32_t, Policy, 2> counts_;
  plimsoll::array<plimsoll::routing_counters, Policy> routing_;
  plimsoll::array<plimsoll::dispatch_counters, Policy> dispatched_;
};

/// Runs all steps by `run_step`, which runs or replays what `layer::enqueue` enqueues.
template <class Policy, class RunStep>
bool run_steps(layer<Policy>& of, RunStep run_step) {
  bool right = true;
  for (index_t step = 0; step < steps; ++step) {
    auto const ids = route(step);
    if (step == 3 || step == 5) {
      of.migrate(ids);
      std::printf("migrated\n");
    }
    of.topk_ids.assign(ids);  // in an engine, the router's kernel
    run_step();
    right = of.report(step, ids) && right;
  }
  std::printf("%s\n", right ? "all steps are right" : "a step is wrong");
  return right;
}

}  // namespace cuda_graph_step_example

// SPDX-License-Identifier: Apache-2.0
// The loop in which a serving engine balances its experts. The serving thread counts, splits and
// dispatches every step. A worker thread plans on the last steps, and asks whether the new plan is
// worth the move. Only then weights are transferred, layer by layer, and the prepared objects take
// the new placement in place.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/views.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "exchange.hpp"
#include "figures.hpp"
#include "layer.hpp"
#include "metrics.hpp"
#include "stand_ins.hpp"

namespace online_balancer {

constexpr index_t planning_steps = 8;  ///< steps after which the worker's answer is taken
constexpr std::int64_t expert_bytes = 44'000'000;

/// Plans for steps to come, close to the placement in use.
inline host_placement plan_near(plimsoll::placement_ref const& in_use, auto const& history,
                                double keep_bonus, liveness const& active) {
  return plimsoll::place_by_flow(
      seq, history, slots,
      {.on = ranks_of(active), .in_use = in_use.physical_to_logical, .keep_bonus = keep_bonus});
}

/// Lists the transfers that lead from one placement to another.
inline plimsoll::transfer_plan list_transfers(plimsoll::placement_ref const& from,
                                              plimsoll::placement_ref const& to,
                                              liveness const& active) {
  return plimsoll::plan_transfers(seq, from, to,
                                  {.on = ranks_of(active), .expert_bytes = expert_bytes});
}

// [worker]
/// Input of the worker: copies, since the serving thread changes its own meanwhile.
struct request {
  host_steps steps;
  host_placement in_use;
  liveness active;
};
struct answer {
  plimsoll::gated_plan<plimsoll::seq_policy> plan;
  plimsoll::transfer_plan transfers;
  double seconds = 0;
};

/// Plans in the worker thread, under `seq`, which starts no threads beside those of the engine.
inline answer plan_and_judge(request const& of) {
  auto const start = std::chrono::steady_clock::now();
  // A rank takes 20 us for a layer and 0.5 us for each token. Steps wait for transfers.
  plimsoll::replan_options<> const when{.on = ranks_of(of.active),
                                        .cost = {.launch = 20e-6, .per_token = 0.5e-6},
                                        .horizon = interval,
                                        .expert_bytes = expert_bytes};
  auto const planner = [&](auto const& /*policy*/, auto const& history) {
    return plan_near(of.in_use.ref(), history, 0.4, of.active);
  };
  answer result;
  result.plan = plimsoll::replan(seq, of.steps, of.in_use, planner, when);
  result.transfers = list_transfers(of.in_use.ref(), result.plan.ref(), of.active);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}
// [end]

/// The serving thread: state and loop. With several processes, each has an engine, which acts for
/// the ranks of its exchange; all have the same placement.
template <class Policy, class Exchange = one_process>
class engine {
 public:
  explicit engine(Policy const& policy, Exchange const& exchange = {})
      : policy_(policy),
        exchange_(exchange),
        active_(static_cast<std::size_t>(ranks), 1),
        in_use_(plimsoll::place_by_flow(seq, record(), slots, {.on = ranks_of(active_)})),
        weights_(in_use_.physical_to_logical.to_host()),
        topk_ids_(policy, layers, tokens, top_k),
        scores_(policy, layers, tokens, top_k),
        counts_(policy, layers, experts),
        routed_(policy, layers),
        window_(policy, layers, experts, {.window = window}),
        recent_(policy, window, layers, experts),
        used_{.physical_to_logical = {policy, in_use_.physical_to_logical.to_host(), layers, slots},
              .replica_count = {policy, in_use_.replica_count.to_host(), layers, experts},
              .rank_offsets = {},
              .ranks = ranks,
              .certificates = {}},
        live_(policy, active_),
        figures_(record(), in_use_.ref()) {
    exchange_.expect_same("placement", hash_of(in_use_.ref()));
    for (index_t l = 0; l < layers; ++l) {
      layers_.emplace_back(policy, exchange, used_.ref().of_layer(l));
    }
  }

  /// Enqueues a step: counts the router's choices, keeps them in the ring of steps, and dispatches
  /// them in every layer. One process neither allocates nor waits, so that it can capture this.
  void enqueue() {
    // The ids of other processes' tokens are -1 until each layer gathers them.
    plimsoll::count_tokens(policy_, topk_ids_, {}, counts_, routed_);
    exchange_.sum(counts_.data_handle(), counts_.size());
    window_.push(counts_);
    for (index_t l = 0; l < layers; ++l) {
      index_t const first = l * tokens * top_k;
      layers_[at(l)].enqueue(plimsoll::array_ref(topk_ids_.data_handle() + first, tokens, top_k),
                             plimsoll::array_ref(scores_.data_handle() + first, tokens, top_k));
    }
  }

  // [loop]
  /// Runs step `now`. `run` runs or replays what `enqueue` enqueues.
  template <class Run>
  void step(index_t now, Run const& run) {
    if (now == failing_at) {
      weights_.fail_next();
    }
    if (now == lost_at) {
      lose(now, lost_rank);
    } else if (now == back_at) {
      join(now, lost_rank);
    }
    // All processes must take the answer before the same step.
    if (asked_.valid() && exchange_.all_of(is_ready(now))) {
      take(now, asked_.get());
    }
    if (moving_) {
      move_next_layer();
    }
    routed_batch const batch = route(now, own_active());
    topk_ids_.assign(batch.topk_ids);  // in an engine, the router's kernel writes both
    scores_.assign(batch.scores);
    run();
    check(batch);
    if (now >= ask_at_ && !asked_.valid() && !moving_) {
      ask(now);
    }
    if (now % interval == interval - 1) {
      figures_.plan_again(recent_steps(), active_);
    }
  }
  // [end]

  [[nodiscard]] figures& results() { return figures_; }

 private:
  static std::size_t at(index_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] plimsoll::rank_set live() const { return {.ranks = ranks, .active = live_.view()}; }
  /// The live ranks that this process acts for.
  [[nodiscard]] liveness own_active() const {
    liveness own(active_.size(), 0);
    for (index_t rank = exchange_.first_rank(); rank < exchange_.end_rank(); ++rank) {
      own[at(rank)] = active_[at(rank)];
    }
    return own;
  }
  host_steps recent_steps() {
    window_.steps(recent_);
    return {seq, recent_.to_host(), window, layers, experts};
  }

  /// Hands the last steps to the worker. An engine keeps one thread for all questions.
  void ask(index_t now) {
    asked_ = std::async(std::launch::async,
                        [of = request{recent_steps(),
                                      plimsoll::copy_placement(seq, in_use_.physical_to_logical,
                                                               in_use_.replica_count, ranks),
                                      active_}] { return plan_and_judge(of); });
    asked_at_ = now;
    asked_with_ = ranks_version_;
    ask_at_ = now + interval;
  }
  /// Returns whether the worker is ready. An engine asks it in every step (`wait_for` 0 seconds).
  /// This program waits for the worker a fixed number of steps after the question: otherwise the
  /// step of a migration, and all that is printed, would depend on the machine.
  [[nodiscard]] bool is_ready(index_t now) const {
    if (now < asked_at_ + planning_steps) {
      return false;
    }
    asked_.wait();
    return true;
  }
  /// Takes the worker's answer, unless ranks have changed since the question. The placement in use
  /// has not: nothing is asked during a migration.
  void take(index_t now, answer got) {
    exchange_.expect_same("placement", hash_of(got.plan.ref()));
    exchange_.expect_same("decision", hash_of(got.plan.decision));
    exchange_.expect_same("transfers", hash_of(got.transfers));
    figures_.totals.planning_seconds += got.seconds;
    bool const outdated = asked_with_ != ranks_version_;
    auto const& decision = got.plan.decision;
    auto const kind = outdated ? at(3) : static_cast<std::size_t>(decision.answer);
    ++figures_.totals.decisions[kind];
    std::printf("step %4d: %s", static_cast<int>(now), answers[kind]);
    if (outdated) {
      ask_at_ = now;
    } else {
      auto const& judged = decision.candidates[0];
      std::printf(", balancedness %.3f, on unseen steps %+.3f for %d moves", decision.balancedness,
                  judged.gain, static_cast<int>(judged.changes.moves));
      if (decision.answer == plimsoll::replan_answer::move) {
        moving_ = std::move(got);
        next_layer_ = 0;
      }
    }
    std::printf("\n");
  }

  // [migrate]
  /// Moves one layer a step, so that a step waits for the transfers of one layer at most.
  void move_next_layer() {
    migrate(next_layer_, moving_->plan.ref(), moving_->transfers);
    if (++next_layer_ == layers) {
      moving_.reset();
    }
  }
  /// Moves a layer's weights, then lets its objects take the new placement. If a transfer fails,
  /// the map in use becomes what slots really hold, and the way from there is listed anew.
  void migrate(index_t l, plimsoll::placement_ref const& to, plimsoll::transfer_plan how) {
    auto& map = in_use_.physical_to_logical;
    figures_.totals.moves += how.layers[at(l)].changes.moves;
    for (bool done = false; !done;) {
      done = weights_.run(l, how);
      for (index_t slot = 0; slot < slots; ++slot) {
        map.view()(l, slot) = weights_.at(l, slot);
      }
      plimsoll::count_replicas(seq, map, in_use_.replica_count);
      if (!done) {
        how = list_transfers(in_use_.ref(), to, active_);
        exchange_.expect_same("transfers", hash_of(how));
        std::printf("           a transfer of layer %d fails\n", static_cast<int>(l));
      }
    }
    for (index_t slot = 0; slot < slots; ++slot) {
      expect(map.view()(l, slot) == to.physical_to_logical(l, slot), "weights differ from the map");
    }
    used_.physical_to_logical.assign(map.to_host());
    used_.replica_count.assign(in_use_.replica_count.to_host());
    layers_[at(l)].update(used_.ref().of_layer(l), live());
    layers_[at(l)].expect_current(used_.ref().of_layer(l));
  }
  // [end]

  // [ranks]
  /// A rank is gone with its weights. No step can run before every expert has a slot again, so this
  /// thread plans; a high bonus leaves all else where it is. A migration ends where it is: layers
  /// that have moved stay moved.
  void lose(index_t now, index_t rank) {
    bool const migrates = moving_.has_value();
    set_active(rank, 0);
    weights_.lose(rank);
    moving_.reset();
    auto const next = plan_near(in_use_.ref(), recent_steps(), 4, active_);
    auto const how = list_transfers(in_use_.ref(), next.ref(), active_);
    exchange_.expect_same("placement", hash_of(next.ref()));
    exchange_.expect_same("transfers", hash_of(how));
    for (index_t l = 0; l < layers; ++l) {
      migrate(l, next.ref(), how);
    }
    auto const from_host = std::count_if(how.list.begin(), how.list.end(), [](auto const& t) {
      return t.kind == plimsoll::transfer_kind::from_host;
    });
    std::printf("step %4d: rank %d is lost%s; %d experts come from the host\n",
                static_cast<int>(now), static_cast<int>(rank),
                migrates ? ", in the middle of a migration" : "", static_cast<int>(from_host));
    figures_.change_ranks(recent_steps(), active_);
  }
  /// A rank begins with empty slots, which the next plan fills. Until then it only computes rows of
  /// the shared expert.
  void join(index_t now, index_t rank) {
    set_active(rank, 1);
    for (index_t l = 0; l < layers; ++l) {
      layers_[at(l)].update(used_.ref().of_layer(l), live());
    }
    ask_at_ = now;
    std::printf("step %4d: rank %d is back\n", static_cast<int>(now), static_cast<int>(rank));
    figures_.change_ranks(recent_steps(), active_);
  }
  void set_active(index_t rank, std::uint8_t is_live) {
    active_[at(rank)] = is_live;
    live_.assign(active_);
    ++ranks_version_;
  }
  // [end]

  /// Checks a step, and measures its balance.
  void check(routed_batch const& batch) {
    for (index_t l = 0; l < layers; ++l) {
      layer<Policy, Exchange> const& of = layers_[at(l)];
      layer_balance const balance = check_layer(l, batch.topk_ids.data() + l * tokens * top_k, of,
                                                weights_, active_, exchange_);
      figures_.add(at(l), balance, of.counts.to_host());
    }
  }

  Policy policy_;
  Exchange exchange_;
  // In host memory: what is true of the engine's ranks.
  liveness active_;
  host_placement in_use_;
  weight_store weights_;
  // In the policy's memory: what steps read and write.
  plimsoll::array<std::int32_t, Policy, 3> topk_ids_;  // [layers, tokens, top_k]
  plimsoll::array<float, Policy, 3> scores_;           // [layers, tokens, top_k]
  plimsoll::array<std::int32_t, Policy, 2> counts_;    // [layers, experts]
  plimsoll::array<plimsoll::routing_counters, Policy> routed_;
  plimsoll::load_window<std::int32_t, Policy> window_;
  plimsoll::array<std::int32_t, Policy, 3> recent_;  // [window, layers, experts]
  plimsoll::placement<Policy> used_;                 // a copy of in_use_
  plimsoll::array<std::uint8_t, Policy> live_;       // [ranks]
  std::vector<layer<Policy, Exchange>> layers_;
  // The question to the worker, and the migration that follows from its answer.
  std::future<answer> asked_;
  index_t asked_at_ = 0, ask_at_ = interval - 1;
  int ranks_version_ = 0, asked_with_ = 0;
  std::optional<answer> moving_;
  index_t next_layer_ = 0;
  figures figures_;
};

/// Runs all steps by `run_step`, and writes metrics to `path` unless that is null.
template <class Policy, class Exchange, class RunStep>
void run_steps(engine<Policy, Exchange>& of, RunStep const& run_step, char const* path) {
  for (index_t step = 0; step < steps; ++step) {
    try {
      of.step(step, run_step);
    } catch (std::exception const& e) {
      throw std::runtime_error("step " + std::to_string(step) + ": " + e.what());
    }
    if (path != nullptr && (step + 1) % interval == 0) {
      write_metrics(of.results().report(), path);
    }
  }
  of.results().print();
}

}  // namespace online_balancer

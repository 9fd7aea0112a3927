// SPDX-License-Identifier: Apache-2.0
// Figures of the run, beside those of two other ways to plan on the same steps: never again, and
// EPLB at fixed intervals. These split tokens as the loop does; they plan and move in no time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/views.hpp>
#include <utility>
#include <vector>

#include "check.hpp"
#include "metrics.hpp"
#include "stand_ins.hpp"

namespace online_balancer {

/// A placement that changes, and the balance of the steps under it.
class rival {
 public:
  std::int64_t moves = 0;
  double balancedness = 0;  ///< sum over steps and layers

  explicit rival(plimsoll::placement_ref const& initial)
      : plan_(plimsoll::copy_placement(seq, initial.physical_to_logical, initial.replica_count,
                                       ranks)) {
    for (index_t l = 0; l < layers; ++l) {
      splitters_.emplace_back(seq, plan_.ref().of_layer(l), plimsoll::lplb_options{});
    }
  }

  void take(host_placement const& fresh, liveness const& active) {
    plimsoll::rank_set const on = ranks_of(active);
    auto next = plimsoll::align(seq, plan_.ref(), fresh.ref(), {.on = on});
    for (plimsoll::slot_changes const& changes : next.alignment.layers) {
      moves += changes.moves;
    }
    plan_ = std::move(next);
    for (index_t l = 0; l < layers; ++l) {
      splitters_[static_cast<std::size_t>(l)].update(0, plan_.ref().of_layer(l), on);
    }
  }
  void split(std::size_t l, ints const& counts, double mean) {
    auto& splitter = splitters_[l];
    splitter.plan(plimsoll::array_ref(counts, 1, experts));
    splitter.check();
    balancedness += mean / static_cast<double>(splitter.reports()[0].peak);
  }

 private:
  host_placement plan_;
  std::vector<plimsoll::lplb<plimsoll::seq_policy>> splitters_;
};

/// Figures of the run.
class figures {
 public:
  metrics totals;

  figures(host_steps recorded, plimsoll::placement_ref const& initial)
      : recorded_(std::move(recorded)), never_(initial), eplb_(initial), since_report_(layers) {}

  /// Adds a layer's step, in which experts had `counts` token copies.
  void add(std::size_t l, layer_balance const& of, ints const& counts) {
    never_.split(l, counts, of.mean);
    eplb_.split(l, counts, of.mean);
    balancedness_ += of.balancedness;
    with_shared_ += of.with_shared;
    copies_ += of.copies;
    totals.dropped += of.dropped;
    layer_use& use = since_report_[l];
    use.balancedness += of.balancedness;
    ++use.busiest[of.busiest];
    ++use.steps;
  }
  /// Lets the rival plan by EPLB for the sum of the last steps.
  void plan_again(host_steps const& recent, liveness const& active) {
    auto loads = plimsoll::zeros<std::int64_t>(seq, layers, experts);
    plimsoll::sum_steps(seq, recent, loads);
    eplb_.take(plimsoll::eplb(seq, loads, slots, {.on = ranks_of(active)}), active);
  }
  /// Lets both rivals plan for other ranks.
  void change_ranks(host_steps const& recent, liveness const& active) {
    never_.take(plimsoll::place_by_flow(seq, recorded_, slots, {.on = ranks_of(active)}), active);
    plan_again(recent, active);
  }

  /// Returns the metrics, whose gauges then begin anew.
  metrics report() {
    metrics result = totals;
    for (layer_use& use : since_report_) {
      auto const busiest = std::max_element(use.busiest.begin(), use.busiest.end());
      result.layers.push_back({.balancedness = use.balancedness / use.steps,
                               .busiest_rank = static_cast<int>(busiest - use.busiest.begin())});
      use = {};
    }
    return result;
  }
  void print() const {
    auto const mean = [](double sum) { return sum / (steps * layers); };
    std::printf("balancedness, mean of %d steps\n", static_cast<int>(steps));
    std::printf("  never planned again    %.4f\n", mean(never_.balancedness));
    std::printf("  EPLB every %3d steps   %.4f, %4lld moves\n", static_cast<int>(interval),
                mean(eplb_.balancedness), static_cast<long long>(eplb_.moves));
    std::printf("  this loop              %.4f, %4lld moves\n", mean(balancedness_),
                static_cast<long long>(totals.moves));
    std::printf("  with the shared expert %.4f\n", mean(with_shared_));
    std::printf("the mask dropped %.1f %% of the token copies; all others were computed\n",
                100.0 * static_cast<double>(totals.dropped) / static_cast<double>(copies_));
    std::printf("answers:");
    for (std::size_t i = 0; i < answers.size(); ++i) {
      std::printf(" %lld %s%s", static_cast<long long>(totals.decisions[i]), answers[i],
                  i + 1 < answers.size() ? "," : "\n");
    }
  }

 private:
  struct layer_use {
    double balancedness = 0;
    std::array<int, ranks> busiest{};
    int steps = 0;
  };

  host_steps recorded_;
  rival never_;
  rival eplb_;
  std::vector<layer_use> since_report_;
  double balancedness_ = 0;
  double with_shared_ = 0;
  std::int64_t copies_ = 0;
};

}  // namespace online_balancer

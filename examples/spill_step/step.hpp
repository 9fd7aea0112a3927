// SPDX-License-Identifier: Apache-2.0
// A layer's step on one rank: counts tokens, exchanges the counts and plans; then sends rows and
// weights, computes experts, and returns the rows.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <plimsoll/execution.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/views.hpp>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "exchange.hpp"
#include "expert.hpp"
#include "rows.hpp"
#include "tokens.hpp"
#include "weights.hpp"

namespace spill_step {

/// Seconds that a rank spent on a step.
struct seconds {
  double compute = 0;
  double exchange = 0;  ///< of rows and weights, including waiting for other ranks
};

class layer {
 public:
  /// @param lambda the least imbalance at which tokens are spilled
  layer(options const& o, process const& self, double lambda)
      : o_(o),
        planner_(plimsoll::seq, {.rank = self.rank, .assignment = rules(o, self, lambda)}),
        expert_(o.hidden, o.width),
        weights_(o, self),
        rows_(o) {}

  /// Assigns the tokens of the step to ranks.
  /// @param ids `[tokens, top_k]`
  void plan(ints const& ids) {
    auto const top_k = static_cast<std::size_t>(o_.top_k);
    plimsoll::array_ref const topk_ids(ids, ids.size() / top_k, top_k);
    // Ranks exchange how many of their tokens go to each expert.
    planner_.count(topk_ids);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, planner_.counts().data, o_.experts,
                  MPI_INT32_T, MPI_COMM_WORLD);
    // Every rank plans by itself and makes the same plan.
    planner_.plan();
    // An engine on a GPU leaves this out: it waits for the device.
    planner_.check();

    groups_ = rows_.plan(planner_, topk_ids);
    weights_.plan(planner_);
    ones_.assign(ids.size(), 1.0f);
    took_ = {};
  }

  /// Returns `[tokens, hidden]`: the sum of the experts' outputs times their shares.
  floats forward(batch const& b) {
    stopwatch watch;
    weights_.send();
    inputs_ = rows_.to_experts(b.inputs, ones_);
    took_.exchange += watch.lap();
    floats outputs(inputs_.size());
    for_each_group([&](int e, std::size_t rows, std::size_t at) {
      expert_.forward(weights_.of(e), rows, &inputs_[at], &outputs[at]);
    });
    took_.compute += watch.lap();
    floats result = rows_.to_tokens(outputs, b.shares);
    took_.exchange += watch.lap();
    return result;
  }

  /// Returns `[tokens, hidden]`: the gradients of the inputs of the last `forward`. The gradients
  /// of weights are then in `weights()`.
  floats backward(batch const& b) {
    stopwatch watch;
    floats const gradients = rows_.to_experts(b.gradients, b.shares);
    took_.exchange += watch.lap();
    floats input_gradients(inputs_.size());
    weights_.clear_gradients();
    for_each_group([&](int e, std::size_t rows, std::size_t at) {
      expert_.backward(weights_.of(e), rows, &inputs_[at], &gradients[at], &input_gradients[at],
                       weights_.gradients_of(e));
    });
    took_.compute += watch.lap();
    floats result = rows_.to_tokens(input_gradients, ones_);
    weights_.send_gradients_back();
    took_.exchange += watch.lap();
    return result;
  }

  [[nodiscard]] plimsoll::least_loaded<plimsoll::seq_policy> const& assignment() const {
    return planner_.assignment();
  }
  [[nodiscard]] expert_weights const& weights() const { return weights_; }
  [[nodiscard]] seconds const& took() const { return took_; }
  /// Returns the number of token copies that this rank computed.
  [[nodiscard]] std::int64_t computed() const {
    return static_cast<std::int64_t>(rows_.computed());
  }
  /// Returns the number of computed token copies whose experts are at home on other ranks.
  [[nodiscard]] std::int64_t taken_in() const {
    std::int64_t copies = 0;
    for (plimsoll::spill_segment const& group : groups_) {
      copies += weights_.is_home(group.expert) ? 0 : group.end - group.begin;
    }
    return copies;
  }

 private:
  class stopwatch {
   public:
    double lap() {
      double const now = MPI_Wtime();
      return now - std::exchange(last_, now);
    }

   private:
    double last_ = MPI_Wtime();
  };

  static plimsoll::least_loaded_options rules(options const& o, process const& self,
                                              double lambda) {
    return {.on = {.ranks = self.ranks, .nodes = o.nodes},
            .experts = o.experts,
            .alpha = o.alpha,
            .min_chunk = o.min_chunk,
            .lambda = lambda,
            .max_imports = o.max_imports,
            .max_exports = o.max_exports,
            .expert_bytes = std::int64_t{o.expert_size()} * std::int64_t{sizeof(float)},
            .max_token_copies = std::int64_t{o.tokens} * o.top_k};
  }

  /// Calls f(expert, number of rows, first element of the rows) for all groups.
  template <class F>
  void for_each_group(F f) const {
    for (plimsoll::spill_segment const& group : groups_) {
      f(group.expert, static_cast<std::size_t>(group.end - group.begin),
        static_cast<std::size_t>(group.begin) * static_cast<std::size_t>(o_.hidden));
    }
  }

  options o_;
  planner planner_;
  expert expert_;
  expert_weights weights_;
  token_rows rows_;
  std::vector<plimsoll::spill_segment> groups_;  ///< rows that this rank computes, by expert
  floats inputs_;                                ///< kept for `backward`
  floats ones_;                                  ///< [tokens, top_k]
  seconds took_;
};

}  // namespace spill_step

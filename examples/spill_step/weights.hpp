// SPDX-License-Identifier: Apache-2.0
// Sends experts' weights to the ranks that help, and gradients back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "exchange.hpp"
#include "tokens.hpp"

namespace spill_step {

/// The weights of the experts at home on this rank, followed during a step by those that it
/// receives.
class expert_weights {
 public:
  expert_weights(options const& o, process const& self)
      : o_(o), self_(self), size_(static_cast<std::size_t>(o.expert_size())) {
    for (int e = first_expert(self.rank); e < first_expert(self.rank + 1); ++e) {
      floats const weights = weights_of(o, e);
      weights_.insert(weights_.end(), weights.begin(), weights.end());
    }
    home_size_ = weights_.size();
  }

  /// Lists the weights to send and to receive in a step. Both sides sort them by rank, then by
  /// expert.
  void plan(planner const& plan) {
    ints sent(static_cast<std::size_t>(self_.ranks), 0);
    ints received(sent.size(), 0);
    std::vector<std::pair<int, int>> taken_in;
    given_.clear();
    auto const transfers = fetch(plan.assignment().transfers());
    auto const end = transfers.begin() + fetch(plan.assignment().transfer_offsets()).back();
    for (auto t = transfers.begin(); t != end; ++t) {
      if (t->from == self_.rank) {
        ++sent[static_cast<std::size_t>(t->to)];
        given_.emplace_back(t->to, t->expert);
      }
      if (t->to == self_.rank) {
        ++received[static_cast<std::size_t>(t->from)];
        taken_in.emplace_back(t->from, t->expert);
      }
    }
    travel_ = all_to_all(std::move(sent), std::move(received));
    std::sort(given_.begin(), given_.end());
    std::sort(taken_in.begin(), taken_in.end());

    place_.assign(static_cast<std::size_t>(o_.experts), -1);
    int places = 0;
    for (int e = first_expert(self_.rank); e < first_expert(self_.rank + 1); ++e) {
      place_[static_cast<std::size_t>(e)] = places++;
    }
    for (auto const& [from, e] : taken_in) {
      place_[static_cast<std::size_t>(e)] = places++;
    }
  }

  /// Sends the planned weights, and receives those of other ranks.
  void send() {
    floats given;
    for (auto const& [to, e] : given_) {
      given.insert(given.end(), of(e), of(e) + size_);
    }
    floats const taken_in = travel_.send(given, o_.expert_size());
    weights_.resize(home_size_);
    weights_.insert(weights_.end(), taken_in.begin(), taken_in.end());
  }
  /// Sends gradients of received weights back to their homes, which add them up in a fixed order:
  /// the home's own part, then those of the other ranks by rank.
  void send_gradients_back() {
    floats const taken_in(gradients_.begin() + static_cast<std::ptrdiff_t>(home_size_),
                          gradients_.end());
    gradients_.resize(home_size_);
    floats const parts = travel_.send_back(taken_in, o_.expert_size());
    float const* part = parts.data();
    for (auto const& [from, e] : given_) {
      std::transform(part, part + size_, gradients_of(e), gradients_of(e), std::plus());
      part += size_;
    }
  }

  /// Returns the weights of an expert that is at home here or was received.
  [[nodiscard]] float const* of(int e) const { return weights_.data() + offset(e); }
  [[nodiscard]] bool is_home(int e) const { return offset(e) < home_size_; }
  [[nodiscard]] float* gradients_of(int e) { return gradients_.data() + offset(e); }
  void clear_gradients() { gradients_.assign(weights_.size(), 0.0f); }
  /// Returns the gradients of all experts at home here, after `send_gradients_back`.
  [[nodiscard]] floats const& gradients() const { return gradients_; }

 private:
  [[nodiscard]] int first_expert(int rank) const {
    return static_cast<int>(std::int64_t{rank} * o_.experts / self_.ranks);
  }
  [[nodiscard]] std::size_t offset(int e) const {
    return static_cast<std::size_t>(place_[static_cast<std::size_t>(e)]) * size_;
  }

  options o_;
  process self_;
  std::size_t size_;
  std::size_t home_size_ = 0;
  floats weights_;
  floats gradients_;
  ints place_;                              ///< [experts]: position in `weights_`; -1: not here
  std::vector<std::pair<int, int>> given_;  ///< (rank, expert)
  all_to_all travel_;
};

}  // namespace spill_step

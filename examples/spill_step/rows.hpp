// SPDX-License-Identifier: Apache-2.0
// Sends token rows to the ranks that compute them, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/views.hpp>
#include <stdexcept>
#include <vector>

#include "command_line.hpp"
#include "exchange.hpp"
#include "tokens.hpp"

namespace spill_step {

class token_rows {
 public:
  explicit token_rows(options const& o)
      : top_k_(static_cast<std::size_t>(o.top_k)), hidden_(static_cast<std::size_t>(o.hidden)) {}

  /// Routes every token copy by the plan of the step. Returns the rows that this rank computes, by
  /// expert.
  std::vector<plimsoll::spill_segment> plan(planner& plan,
                                            plimsoll::matrix_ref<std::int32_t const> topk_ids) {
    auto const copies = static_cast<std::size_t>(topk_ids.extent(0)) * top_k_;
    ints destinations(copies);  // not needed: rows are sorted by destination
    sent_row_.resize(copies);
    plimsoll::spill_counters counters[1];
    auto const of_copies = [&](ints& values) {
      return plimsoll::array_ref(values, topk_ids.extent(0), topk_ids.extent(1));
    };
    plan.route(topk_ids, of_copies(destinations), of_copies(sent_row_), counters);
    if (counters[0].unplanned != 0 || counters[0].out_of_range != 0) {
      throw std::runtime_error("ids are not experts, or were not counted");
    }
    travel_ = all_to_all(fetch(plan.send_counts()), fetch(plan.receive_counts()));
    computed_row_.resize(travel_.received());
    std::vector<plimsoll::spill_segment> groups(
        static_cast<std::size_t>(plan.assignment().options().experts));
    plan.arrange(computed_row_, groups);
    std::erase_if(groups, [](plimsoll::spill_segment const& of) { return of.expert < 0; });
    return groups;
  }

  /// Returns the number of rows that this rank computes.
  [[nodiscard]] std::size_t computed() const { return computed_row_.size(); }

  /// Sends the rows of all token copies to the ranks that compute them.
  /// @param tokens `[tokens, hidden]`: the row of a copy is its token times its factor
  /// @param factors `[tokens, top_k]`
  /// @return `[computed, hidden]`: the rows that this rank computes, by expert
  [[nodiscard]] floats to_experts(floats const& tokens, floats const& factors) const {
    floats sent(travel_.sent() * hidden_);
    for_each_copy([&](std::size_t copy, std::size_t of_token, std::size_t of_row) {
      sent[of_row] = factors[copy] * tokens[of_token];
    });
    floats const received = travel_.send(sent, static_cast<int>(hidden_));
    floats rows(received.size());
    for_each_received([&](std::size_t in, std::size_t computed) { rows[computed] = received[in]; });
    return rows;
  }

  /// Sends computed rows back to their tokens.
  /// @param rows in the order of `to_experts`
  /// @return `[tokens, hidden]`: for every token the sum of its copies' rows times their factors
  [[nodiscard]] floats to_tokens(floats const& rows, floats const& factors) const {
    floats received(rows.size());
    for_each_received([&](std::size_t in, std::size_t computed) { received[in] = rows[computed]; });
    floats const back = travel_.send_back(received, static_cast<int>(hidden_));
    floats tokens(sent_row_.size() / top_k_ * hidden_, 0.0f);
    for_each_copy([&](std::size_t copy, std::size_t of_token, std::size_t of_row) {
      tokens[of_token] += factors[copy] * back[of_row];
    });
    return tokens;
  }

 private:
  /// Calls f(copy, element of its token, element of its sent row) for all copies except padding.
  template <class F>
  void for_each_copy(F f) const {
    for (std::size_t copy = 0; copy < sent_row_.size(); ++copy) {
      auto const row = static_cast<std::size_t>(sent_row_[copy]);
      for (std::size_t i = 0; i < hidden_ && sent_row_[copy] >= 0; ++i) {
        f(copy, copy / top_k_ * hidden_ + i, row * hidden_ + i);
      }
    }
  }
  /// Calls f(element of a received row, element of its computed row) for all received rows.
  template <class F>
  void for_each_received(F f) const {
    for (std::size_t row = 0; row < computed_row_.size(); ++row) {
      auto const computed = static_cast<std::size_t>(computed_row_[row]);
      for (std::size_t i = 0; i < hidden_; ++i) {
        f(row * hidden_ + i, computed * hidden_ + i);
      }
    }
  }

  std::size_t top_k_;
  std::size_t hidden_;
  ints sent_row_;      ///< [tokens, top_k]: the sent row of a copy; -1: padding
  ints computed_row_;  ///< [received]: the computed row of each received row
  all_to_all travel_;
};

}  // namespace spill_step

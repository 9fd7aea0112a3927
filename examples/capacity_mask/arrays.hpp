// SPDX-License-Identifier: Apache-2.0
// The arrays of a step, and inputs in place of a model's, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <vector>

#include "command_line.hpp"
#include "layer.hpp"

namespace capacity_mask_example {

/// Returns `[ranks, most experts]`: each rank's experts, then -1. Experts are spread over ranks
/// evenly and in order.
inline std::vector<std::int32_t> experts_of_ranks(options const& o) {
  std::vector<std::int32_t> result;
  for (int rank = 0; rank < o.ranks; ++rank) {
    int const begin = rank * o.experts / o.ranks;
    int const end = (rank + 1) * o.experts / o.ranks;
    for (int i = 0; i < most_experts(o); ++i) {
      result.push_back(begin + i < end ? begin + i : -1);
    }
  }
  return result;
}

/// Returns the rank of every token.
inline std::vector<std::int32_t> ranks_of_tokens(options const& o) {
  std::vector<std::int32_t> result;
  for (int token = 0; token < o.tokens; ++token) {
    result.push_back(static_cast<std::int32_t>(token * std::int64_t{o.ranks} / o.tokens));
  }
  return result;
}

/// Returns the priority of every token: 0 for images, 1 for text.
inline std::vector<std::int32_t> priorities_of_tokens(options const& o) {
  std::vector<std::int32_t> result;
  for (int token = 0; token < o.tokens; ++token) {
    result.push_back(token % 2);
  }
  return result;
}

/// Arrays of a step in the policy's memory.
template <class Policy>
class step_arrays {
 public:
  step_arrays(Policy const& policy, options const& o)
      : o_(o),
        local_experts_(policy, experts_of_ranks(o), o.ranks, most_experts(o)),
        ranks_(policy, ranks_of_tokens(o)),
        priorities_(policy, priorities_of_tokens(o)),
        logits_(policy, o.tokens, o.experts),
        x_(policy, o.tokens, hidden),
        ids_(policy, o.tokens, width(o)),
        weights_(policy, o.tokens, width(o)),
        positions_(policy, o.tokens, width(o)),
        counts_(policy, o.experts),
        offsets_(policy, o.experts + 1),
        report_(policy, 1),
        rows_(policy, o.tokens * width(o), hidden),
        y_(policy, o.tokens, hidden) {}

  /// Returns `[ranks, most experts]`.
  [[nodiscard]] auto local_experts() const { return local_experts_.view(); }

  /// Makes the inputs of a step on the host and copies them.
  void fill(int step) {
    auto const draw = [&](int stream, std::size_t index) {
      return plimsoll::random::uniform(static_cast<std::uint64_t>(o_.seed),
                                       static_cast<std::uint64_t>(stream), index);
    };
    std::vector<float> logits(static_cast<std::size_t>(logits_.size()));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      // Some experts are popular with all tokens, some only in this step.
      std::size_t const expert = i % static_cast<std::size_t>(o_.experts);
      double const popularity = draw(0, expert) + draw(3 * step, expert) / 2;
      logits[i] = static_cast<float>(popularity + 2 * draw(3 * step + 1, i));
    }
    std::vector<float> x(static_cast<std::size_t>(x_.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(draw(3 * step + 2, i) - 0.5);
    }
    logits_.assign(logits);
    x_.assign(x);
  }

  /// Returns views of the arrays.
  [[nodiscard]] step_ref view() {
    step_ref result{.logits = logits_.view(),
                    .x = x_.view(),
                    .batch = {},
                    .kept = {.ids = ids_.view(),
                             .weights = weights_.view(),
                             .positions = positions_.view(),
                             .counts = counts_.view(),
                             .offsets = offsets_.view(),
                             .report = report_.view()},
                    .rows = rows_.view(),
                    .y = y_.view()};
    if (o_.expanded) {
      result.batch.homes = ranks_.view();
    }
    if (o_.priority) {
      result.batch.priorities = priorities_.view();
    }
    return result;
  }

  /// Waits for a step in any memory and copies what the host prints of it.
  template <class Other>
  void copy(step_arrays<Other> const& step) {
    x_.assign(step.x_.to_host());
    ids_.assign(step.ids_.to_host());
    weights_.assign(step.weights_.to_host());
    report_.assign(step.report_.to_host());
    y_.assign(step.y_.to_host());
  }

 private:
  template <class>
  friend class step_arrays;
  template <class T>
  using vector = plimsoll::array<T, Policy>;
  template <class T>
  using matrix = plimsoll::array<T, Policy, 2>;

  options o_;
  matrix<std::int32_t> local_experts_;
  vector<std::int32_t> ranks_, priorities_;
  matrix<float> logits_, x_;
  matrix<std::int32_t> ids_;
  matrix<float> weights_;
  matrix<std::int32_t> positions_;
  vector<std::int32_t> counts_, offsets_;
  vector<plimsoll::capacity_report> report_;
  matrix<float> rows_, y_;
};

}  // namespace capacity_mask_example

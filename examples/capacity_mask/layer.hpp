// SPDX-License-Identifier: Apache-2.0
// A layer around the mask: what it tells Plimsoll, and what it does itself, for one token or expert
// and one feature. main.cpp calls it in loops, main_gpu.cu in kernels.
#pragma once

#include <cstdint>
#include <plimsoll/systems/token_drop.hpp>

#include "command_line.hpp"

namespace capacity_mask_example {

using plimsoll::index_t;

constexpr int hidden = 8;  ///< features of a token

/// What a step reads and writes.
struct step_ref {
  plimsoll::matrix_ref<float const> logits;  ///< [tokens, experts], of the router
  plimsoll::matrix_ref<float const> x;       ///< [tokens, hidden]
  plimsoll::token_drop_batch besides;        ///< ranks and priorities of tokens, where they count
  plimsoll::kept_pairs kept;                 ///< what Plimsoll tells
  plimsoll::matrix_ref<float> rows;          ///< [pairs, hidden]: kept pairs, expert by expert
  plimsoll::matrix_ref<float> y;             ///< [tokens, hidden]

  /// Where a token's j-th expert finds it, -1 where that one was dropped.
  PLIMSOLL_HD index_t row_of(index_t token, index_t j) const {
    std::int32_t const expert = kept.ids(token, j);
    return expert < 0 ? -1 : kept.offsets[expert] + kept.positions(token, j);
  }
};

/// The most experts of a rank.
inline int most_experts(options const& o) { return (o.experts + o.ranks - 1) / o.ranks; }
/// What may be kept of a token.
inline int width(options const& o) { return o.top_k + (o.expanded ? most_experts(o) : 0); }

/// `local_experts`: [ranks, most experts], those of every rank and -1 behind them.
inline plimsoll::token_drop_options drop_options(options const& o,
                                                 std::int32_t const* local_experts) {
  plimsoll::token_drop_options result;
  result.route.k = o.top_k;
  if (o.expanded) {
    result.route.local_experts = {local_experts, o.ranks, most_experts(o)};
  }
  result.limit.experts = o.experts;
  result.limit.max_tokens = o.tokens;
  result.limit.factor = o.gamma;
  result.limit.ranks = o.level == "rank" ? o.ranks : 0;
  result.limit.classes = 2;
  return result;
}

/// Before the experts: every kept pair's token to its row.
PLIMSOLL_HD inline void permute(step_ref const& step, index_t token, index_t h) {
  for (index_t j = 0; j < step.kept.ids.extent(1); ++j) {
    if (index_t const row = step.row_of(token, j); row >= 0) {
      step.rows(row, h) = step.x(token, h);
    }
  }
}

/// What an expert makes of a feature; yours multiplies by matrices.
PLIMSOLL_HD inline float expert_function(index_t expert, float x) {
  return static_cast<float>(expert + 1) * x * x;
}

/// An expert works on its rows, which lie one behind the other.
PLIMSOLL_HD inline void run_expert(step_ref const& step, index_t expert, index_t h) {
  for (index_t row = step.kept.offsets[expert]; row < step.kept.offsets[expert + 1]; ++row) {
    step.rows(row, h) = expert_function(expert, step.rows(row, h));
  }
}

/// Behind the experts: what a token gets. One that nobody kept goes on as it came.
PLIMSOLL_HD inline void combine(step_ref const& step, index_t token, index_t h) {
  float sum = step.x(token, h);
  for (index_t j = 0; j < step.kept.ids.extent(1); ++j) {
    if (index_t const row = step.row_of(token, j); row >= 0) {
      sum += step.kept.weights(token, j) * step.rows(row, h);
    }
  }
  step.y(token, h) = sum;
}

}  // namespace capacity_mask_example

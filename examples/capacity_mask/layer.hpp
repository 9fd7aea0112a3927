// SPDX-License-Identifier: Apache-2.0
// A layer around the mask: its options for Plimsoll, and its own work for one token or expert and
// one feature. main.cpp calls it in loops, main_gpu.cu in kernels.
#pragma once

#include <cstdint>
#include <plimsoll/systems/token_drop.hpp>

#include "command_line.hpp"

namespace capacity_mask_example {

using plimsoll::index_t;

constexpr int hidden = 8;  ///< features of a token

/// Inputs and outputs of a step.
struct step_ref {
  plimsoll::matrix_ref<float const> logits;  ///< [tokens, experts]: the router's output
  plimsoll::matrix_ref<float const> x;       ///< [tokens, hidden]: input
  plimsoll::token_drop_batch batch;          ///< optional ranks and priorities of tokens
  plimsoll::kept_pairs kept;                 ///< outputs of Plimsoll
  plimsoll::matrix_ref<float> rows;          ///< [pairs, hidden]: kept pairs, expert by expert
  plimsoll::matrix_ref<float> y;             ///< [tokens, hidden]: output

  /// Returns the row of a token for its j-th expert, -1 if the pair was dropped.
  PLIMSOLL_HD index_t row_of(index_t token, index_t j) const {
    std::int32_t const expert = kept.ids(token, j);
    return expert < 0 ? -1 : kept.offsets[expert] + kept.positions(token, j);
  }
};

/// Returns the largest number of experts of a rank.
inline int most_experts(options const& o) { return (o.experts + o.ranks - 1) / o.ranks; }
/// Returns the candidates per token.
inline int width(options const& o) { return o.top_k + (o.expanded ? most_experts(o) : 0); }

/// Returns the options of `token_drop`. `local_experts`: [ranks, most experts], each rank's experts
/// and then -1.
inline plimsoll::token_drop_options drop_options(
    options const& o, plimsoll::matrix_ref<std::int32_t const> local_experts) {
  plimsoll::token_drop_options result;
  result.route.k = o.top_k;
  if (o.expanded) {
    result.route.local_experts = local_experts;
  }
  result.limit.experts = o.experts;
  result.limit.max_tokens = o.tokens;
  result.limit.factor = o.gamma;
  result.limit.ranks = o.level == "rank" ? o.ranks : 0;
  result.limit.classes = 2;
  return result;
}

/// Before the experts: copies every kept pair's token to its row.
PLIMSOLL_HD inline void permute(step_ref const& step, index_t token, index_t h) {
  for (index_t j = 0; j < step.kept.ids.extent(1); ++j) {
    if (index_t const row = step.row_of(token, j); row >= 0) {
      step.rows(row, h) = step.x(token, h);
    }
  }
}

/// An expert's function of a feature; a real one multiplies by matrices.
PLIMSOLL_HD inline float expert_function(index_t expert, float x) {
  return static_cast<float>(expert + 1) * x * x;
}

/// Applies an expert to its rows, which are contiguous.
PLIMSOLL_HD inline void run_expert(step_ref const& step, index_t expert, index_t h) {
  for (index_t row = step.kept.offsets[expert]; row < step.kept.offsets[expert + 1]; ++row) {
    step.rows(row, h) = expert_function(expert, step.rows(row, h));
  }
}

/// After the experts: adds a token's outputs. A token that no expert kept stays unchanged.
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

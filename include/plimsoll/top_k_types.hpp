// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `top_k`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `top_k`.
struct top_k_options {
  /// Experts per token: 1 to the number of experts.
  index_t k = 0;
  score_function function = score_function::none;
  /// `[experts]`: added to scores for the selection, but not in the weights (DeepSeek-V3's
  /// balancing without auxiliary loss); in the policy's memory, or null.
  vector_ref<float const> bias = {};
  /// Group-limited routing: experts form `groups` groups of equal size, and a token selects only
  /// from the best `kept_groups`. A group's score is the sum of its `best_of_group` highest scores
  /// (2 in DeepSeek-V3, 1 in DeepSeek-V2). `groups` must divide the number of experts.
  index_t groups = 1;
  index_t kept_groups = 1;
  index_t best_of_group = 2;
  /// Normalisation of a token's weights: none or to_one.
  normalization normalize = normalization::none;
  /// Factor on the weights, 2^-64 to 2^64.
  double scale = 1;
  /// `[homes, m]`: experts appended to a token's choices as expanded candidates (Expanded Drop), -1
  /// for none; in the policy's memory, or null.
  matrix_ref<std::int32_t const> local_experts = {};
  /// `[tokens]`: row of local_experts for each token; null: row 0 for all.
  vector_ref<std::int32_t const> homes = {};
};

}}  // namespace plimsoll

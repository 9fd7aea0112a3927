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
  /// Experts per token, 1 to the number of experts.
  index_t k = 0;
  /// Function that turns the router's outputs into scores.
  score_function function = score_function::none;
  /// `[experts]`: added to scores for the selection, but not in the weights (DeepSeek-V3's
  /// balancing without auxiliary loss); in the policy's memory. Empty: no bias.
  vector_ref<float const> bias = {};
  /// Number of equal groups of experts, a divisor of the number of experts (group-limited routing).
  index_t groups = 1;
  /// Number of best groups from which a token selects.
  index_t kept_groups = 1;
  /// A group's score is the sum of this many of its highest scores: 2 in DeepSeek-V3, 1 in
  /// DeepSeek-V2.
  index_t best_of_group = 2;
  /// Normalization of a token's weights; `none` or `to_one`.
  normalization normalize = normalization::none;
  /// Factor on the weights after normalization, 2^-64 to 2^64.
  double scale = 1;
  /// `[homes, m]`: experts appended to a token's choices as expanded candidates (Expanded Drop), -1
  /// for none; in the policy's memory. Empty: none.
  matrix_ref<std::int32_t const> local_experts = {};
  /// `[tokens]`: row of local_experts for each token. Empty: row 0 for all.
  vector_ref<std::int32_t const> homes = {};
};

}}  // namespace plimsoll

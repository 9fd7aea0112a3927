// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the experts of every token from router scores.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/top_k.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Selects the k best experts of every token, best first, and computes their weights.
///
/// Experts are ranked by score plus bias, in float. Without a bias, and unless groups sum scores,
/// they are ranked by the router's outputs themselves, whose order softmax and sigmoid preserve. Of
/// equal experts the lower id comes first. NaN ranks below every number: an expert with NaN is
/// selected only if there are fewer than k others. Weights are scores without bias, in double,
/// rounded once to float; the weight of a NaN is NaN. `to_one` expects scores of at least 0: it
/// divides by their sum, or by 1e-20 if the sum is less.
///
/// @param scores `[tokens, experts]` float, float16 or bfloat16, with CUDA also `__half` and
///   `__nv_bfloat16`; 1 to 65535 experts; in the policy's memory
/// @param options number of choices, function, groups, weights, and local experts
/// @param[out] topk_ids `[tokens, k + m]` int32 or int64: the choices, then the token's m local
///   experts (if any), with -1 in place of a local expert that is among the choices or listed
///   twice. A local id that is not an expert's is copied; a home without a list gives -2.
///   `capacity_mask` counts both
/// @param[out] topk_weights `[tokens, k + m]` float, 0 where the id is not an expert's
/// @throws invalid_input for shapes and options
/// @complexity per token, on the host O(experts + k (experts / 16 + 16)), on a device O(experts) to
///   build a warp's queue and k steps of O(experts / 32); with softmax one exponential per expert
/// @workspace for each token in flight 12.25 bytes per expert, 4 per group and 8 per choice, in
///   shared memory if a block has that much
/// @stream enqueues one kernel, does not synchronize
/// @determinism the same bits under every policy
///
/// Group-limited routing is that of DeepSeek-V2 and V3: experts outside the kept groups are never
/// selected, whatever the sign of their scores.
template <execution_policy P, class Scores, class Ids, class Weights>
void top_k(P const& policy, Scores const& scores, top_k_options const& options, Ids&& topk_ids,
           Weights&& topk_weights) {
  detail::checked_call call("top_k");
  auto const inputs =
      detail::normalize_scores(PLIMSOLL_SCORES(call, "top_k", scores, "[tokens, experts]"));
  detail::expect_top_k_scores(call, inputs, options);
  auto const ids = PLIMSOLL_OUTPUT_IDS(call, "top_k", topk_ids, "[tokens, k + m]");
  matrix_ref<float> const weights =
      PLIMSOLL_OUTPUT(float, call, "top_k", topk_weights, "[tokens, k + m]");
  detail::enqueue_top_k(detail::resolve(policy), inputs, options, ids, weights);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

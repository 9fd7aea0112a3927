// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the experts of every token from router scores.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/top_k.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

// CUDA's types: a declaration is enough, since only pointers to them are used.
struct __half;
struct __nv_bfloat16;

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

namespace detail {

/// Storage type of scores of type `T`: Plimsoll's type for CUDA's.
template <class T>
using score_storage =
    std::conditional_t<std::same_as<T, __half>, float16,
                       std::conditional_t<std::same_as<T, __nv_bfloat16>, bfloat16, T>>;

template <class T>
concept score_value =
    std::same_as<score_storage<T>, float> || std::same_as<score_storage<T>, float16> ||
    std::same_as<score_storage<T>, bfloat16>;

template <class M>
auto normalize_scores(M const& scores) {
  auto const view = normalize<2>(scores);
  using storage = score_storage<normalized_value_t<M const, 2>>;
  matrix_ref<storage const> result;
  result.data = reinterpret_cast<storage const*>(view.data);
  for (int d = 0; d < 2; ++d) {
    result.extents[d] = view.extents[d];
    result.strides[d] = view.strides[d];
  }
  return result;
}

/// Checks the options; `enqueue_top_k` checks the shapes of a batch.
inline void expect_top_k(std::string_view name, top_k_options const& options, index_t experts) {
  expect_between(name, "scores", 1, expert_limit, experts, "experts");
  expect_between(name, "options.k", 1, experts, options.k, "experts");
  expect_between(name, "options.groups", 1, experts, options.groups, "groups");
  if (experts % options.groups != 0) {
    fail(name, "options.groups", text("a divisor of ", experts, " experts"), text(options.groups));
  }
  index_t const size = experts / options.groups;
  expect_between(name, "options.kept_groups", (options.k + size - 1) / size, options.groups,
                 options.kept_groups, "groups");
  if (options.groups > 1) {
    expect_between(name, "options.best_of_group", 1, size, options.best_of_group, "experts");
  }
  if (options.normalize == normalization::to_sum) {
    fail(name, "options.normalize", "none or to_one", "to_sum");
  }
  if (!(options.scale >= 0x1p-64 && options.scale <= 0x1p64)) {
    fail(name, "options.scale", "a number from 2^-64 to 2^64", text(options.scale));
  }
  if (options.bias.data != nullptr) {
    expect_extent(name, "options.bias", experts, options.bias.extent(0), "experts");
  }
}

template <class Context, class Score, class Listener = no_listener>
auto make_top_k_body(Context const&, matrix_ref<Score const> scores, top_k_options const& options,
                     matrix_ref<std::int32_t> ids, matrix_ref<float> weights,
                     Listener const& listener = {}) {
  return top_k_body<Score, top_k_options, Listener>{
      scores, options, ids, weights, runs_on_device<Context> ? 1 : 64, listener};
}

template <class Context, class Score, class Listener = no_listener>
void enqueue_top_k(std::string_view name, Context const& context, matrix_ref<Score const> scores,
                   top_k_options const& options, matrix_ref<std::int32_t> ids,
                   matrix_ref<float> weights, Listener const& listener = {}) {
  expect_top_k(name, options, scores.extent(1));
  expect_elements(name, "scores", scores);
  index_t const tokens = scores.extent(0);
  index_t const width =
      options.k + (options.local_experts.data != nullptr ? options.local_experts.extent(1) : 0);
  expect_between(name, "scores", 0, 0x7fffffff / width, tokens, "tokens (below 2^31 candidates)");
  if (options.homes.data != nullptr) {
    expect_extent(name, "options.homes", tokens, options.homes.extent(0), "tokens");
  }
  expect_extent(name, "topk_ids", tokens, ids.extent(0), "tokens");
  expect_extent(name, "topk_ids", width, ids.extent(1), "candidates");
  expect_extent(name, "topk_weights", tokens, weights.extent(0), "tokens");
  expect_extent(name, "topk_weights", width, weights.extent(1), "candidates");
  auto const body = make_top_k_body(context, scores, options, ids, weights, listener);
  launch(context, body.problems(), body);
}

}  // namespace detail

/// View of a router's scores or logits: float, float16 or bfloat16, with a CUDA compiler also
/// `__half` and `__nv_bfloat16`.
template <class M>
concept score_matrix_view =
    detail::stored<M, 2> && detail::score_value<detail::normalized_value_t<M const, 2>>;

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Selects the k best experts of every token, best first, and computes their weights.
///
/// Experts are ranked by score plus bias, in float. Without a bias, and unless groups sum scores,
/// they are ranked by the router's outputs themselves, whose order softmax and sigmoid preserve. Of
/// equal experts the lower id comes first. NaN ranks below every number: an expert with NaN is
/// selected only if there are fewer than k others. Weights are scores without bias, in double,
/// rounded once to float; the weight of a NaN is NaN. `to_one` expects scores of at least 0: it
/// divides by their sum, or by 1e-20 if the sum is less.
///
/// @param scores `[tokens, experts]` of `score_matrix_view`, 1 to 65535 experts, in the policy's
///   memory
/// @param options number of choices, function, groups, weights, and local experts
/// @param[out] topk_ids `[tokens, k + m]` int32: the choices, then the token's m local experts (if
///   any), with -1 in place of a local expert that is among the choices or listed twice. A local id
///   that is not an expert's is copied; a home without a list gives -2. `capacity_mask` counts both
/// @param[out] topk_weights `[tokens, k + m]` float, 0 where the id is not an expert's
/// @throws invalid_input for shapes and options
/// @complexity per token, on the host O(experts + k (experts / 16 + 16)), on a device O(experts) to
///   build a warp's queue and k steps of O(experts / 32); with softmax one exponential per expert
/// @workspace for each token in flight 12.25 bytes per expert, 4 per group and 8 per choice, in
///   shared memory if a block has that much
/// @stream enqueues one kernel, does not synchronise
/// @determinism the same bits under every policy
///
/// Group-limited routing is that of DeepSeek-V2 and V3: experts outside the kept groups are never
/// selected, whatever the sign of their scores.
template <execution_policy P, score_matrix_view Scores, output_of<std::int32_t, 2> Ids,
          output_of<float, 2> Weights>
void top_k(P const& policy, Scores const& scores, top_k_options const& options, Ids&& topk_ids,
           Weights&& topk_weights) {
  detail::enqueue_top_k("top_k", detail::resolve(policy), detail::normalize_scores(scores), options,
                        detail::argument<2>("top_k", "topk_ids", topk_ids),
                        detail::argument<2>("top_k", "topk_weights", topk_weights));
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

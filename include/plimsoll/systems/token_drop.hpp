// SPDX-License-Identifier: Apache-2.0
/// @file
/// Token Drop and Expanded Drop: routes tokens by router logits and limits the tokens of experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/top_k.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `token_drop`.
struct token_drop_options {
  /// Function that turns logits into scores.
  score_function function = score_function::softmax;
  /// Options of `top_k`, except for the function and for homes, which belong to a batch. Setting
  /// local_experts selects Expanded Drop instead of Token Drop.
  top_k_options route = {};
  /// Options of `capacity_mask`: set experts, max_tokens and the factor; top_k and candidates
  /// follow from `route`.
  capacity_options limit = {};
};

/// @brief Returns options with which `token_drop` follows the paper's pseudo-code: capacities are
/// rounded down and may be 0, and top-k pairs compete with expanded candidates by score alone.
///
/// In the paper's text, expanded candidates change nothing at experts that overflow from top-k
/// pairs alone; the default, `topk_first`, ensures that.
inline capacity_options literal_token_drop(capacity_options limit) {
  limit.round = rounding_mode::down;
  limit.min_capacity = 0;
  limit.topk_first = false;
  return limit;
}

/// Optional inputs of one batch.
struct token_drop_batch {
  /// `[tokens]`: row of route.local_experts for each token; null: row 0 for all.
  vector_ref<std::int32_t const> homes = {};
  /// Priorities, subsequence and number of the first token, as in `capacity_batch`.
  vector_ref<std::int32_t const> priorities = {};
  std::uint64_t subsequence = 0;
  std::uint64_t first_token = 0;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Runs capacity-aware inference (He et al. 2025): `top_k`, then `capacity_mask`.
///
/// Token Drop limits the tokens of each expert (with limit.ranks those of a rank's experts
/// together) to factor times the mean and keeps the pairs with the highest scores. Expanded Drop
/// also offers every token the experts of its own rank, which costs no traffic, so that experts
/// with little load take tokens that others drop.
///
/// The constructor takes all memory, so that `apply` can be captured in a CUDA graph. An object
/// works on one batch at a time.
template <execution_policy P>
class token_drop {
 public:
  /// @throws invalid_input where `top_k` and `capacity_mask` do, and for local ids that are neither
  ///   -1 nor an expert's
  /// @workspace from the policy: that of `capacity_mask`, 8 bytes per pair, and that of `top_k`
  ///   where it does not fit shared memory
  /// @stream synchronises
  token_drop(P const& policy, token_drop_options const& options)
      : context_(detail::resolve(policy)),
        route_(route_of(options)),
        mask_(policy, limit_of(policy, options)) {
    index_t const tokens = options.limit.max_tokens;
    ids_ = {context_, tokens * width()};
    weights_ = {context_, tokens * width()};
    auto const body = detail::make_top_k_body(
        context_, matrix_ref<float const>(nullptr, tokens, options.limit.experts), route_, {}, {});
    scratch_ = {context_, detail::launch_bytes(context_, body.problems(), body)};
    detail::synchronize(context_);
  }

  /// @brief Routes and masks one batch.
  /// @param logits `[tokens, experts]` float, float16 or bfloat16, in the policy's memory
  /// @param batch optional inputs
  /// @param[out] kept pairs that stay, `[tokens, k + local experts]`
  /// @throws invalid_input for shapes; the report counts invalid values
  /// @complexity that of `top_k` and `capacity_mask::apply`
  /// @stream enqueues as many kernels as `capacity_mask::apply`: four, one more each for
  ///   limit.expert_drop, for limit.max_selected and for batches of more than 524288 pairs; neither
  ///   allocates nor synchronises. After a `cuda_error` the object cannot be used again
  /// @determinism the same bits under every policy
  template <score_matrix_view Logits>
  void apply(Logits const& logits, token_drop_batch const& batch, kept_pairs const& kept) const {
    auto const scores = detail::normalize_scores(logits);
    constexpr char const* call = "token_drop::apply";
    index_t const tokens = scores.extent(0);
    detail::expect_between(call, "logits", 0, max_tokens(), tokens, "tokens (limit.max_tokens)");
    detail::expect_extent(call, "logits", mask_.options().experts, scores.extent(1), "experts");
    if (batch.homes.data != nullptr) {
      detail::expect_extent(call, "batch.homes", tokens, batch.homes.extent(0), "tokens");
    }
    capacity_batch const masked{.priorities = batch.priorities,
                                .subsequence = batch.subsequence,
                                .first_token = batch.first_token};
    // Checks first, since routing overwrites the ids of the last batch.
    mask_.expect_shapes(call, tokens, width(), tokens, width(), masked, kept);
    top_k_options route = route_;
    route.homes = batch.homes;
    matrix_ref<std::int32_t> const ids(ids_.data(), tokens, width());
    matrix_ref<float> const weights(weights_.data(), tokens, width());
    detail::prepared_context<context> const prepared{context_, scratch_.data()};
    if constexpr (detail::runs_on_device<context>) {
      // Counting in the kernel that selects ids saves a launch; a host would need atomic additions.
      auto const lists = mask_.lists_for(tokens);
      detail::enqueue_top_k(call, prepared, scores, route, ids, weights,
                            detail::count_chosen{lists});
      mask_.enqueue_counted(lists, matrix_ref<std::int32_t const>(ids),
                            matrix_ref<float const>(weights), masked, kept);
    } else {
      detail::enqueue_top_k(call, prepared, scores, route, ids, weights);
      mask_.apply(ids, weights, masked, kept);
    }
  }
  template <score_matrix_view Logits>
  void apply(Logits const& logits, kept_pairs const& kept) const {
    apply(logits, token_drop_batch{}, kept);
  }

  /// Columns of a row: choices, then expanded candidates.
  [[nodiscard]] index_t width() const { return mask_.options().candidates; }
  /// Capacity of an expert, as `capacity_mask::capacity`.
  [[nodiscard]] index_t capacity(index_t tokens) const { return mask_.capacity(tokens); }
  /// Ids of the last batch before the mask, `[tokens, width()]`, in the policy's memory.
  [[nodiscard]] matrix_ref<std::int32_t const> routed_ids(index_t tokens) const {
    return {ids_.data(), tokens, width()};
  }

 private:
  static constexpr char const* name = "token_drop";
  using context = detail::context_of<P>;

  [[nodiscard]] index_t max_tokens() const { return mask_.options().max_tokens; }

  static top_k_options route_of(token_drop_options const& options) {
    top_k_options route = options.route;
    if (route.function != score_function::none && route.function != options.function) {
      constexpr char const* names[] = {"none", "softmax", "sigmoid"};
      detail::fail(name, "options.route.function", "none, as options.function applies",
                   names[static_cast<int>(route.function)]);
    }
    if (route.homes.data != nullptr) {
      detail::fail(name, "options.route.homes", "none, as batch.homes applies",
                   detail::text(route.homes.extent(0), " tokens"));
    }
    route.function = options.function;
    return route;
  }

  static capacity_options limit_of(P const& policy, token_drop_options const& options) {
    capacity_options limit = options.limit;
    detail::expect_top_k(name, options.route, limit.experts);
    limit.top_k = options.route.k;
    limit.candidates = limit.top_k;
    matrix_ref<std::int32_t const> const& local = options.route.local_experts;
    if (local.data != nullptr) {
      limit.candidates += local.extent(1);
      for (index_t home = 0; home < local.extent(0); ++home) {
        for (std::int32_t const e : read(policy, detail::row_of(local, home))) {
          if (e < -1 || e >= limit.experts) {
            detail::fail(name, "options.route.local_experts", "-1 or an expert",
                         detail::text(e, " for home ", home));
          }
        }
      }
    }
    return limit;
  }

  context context_;
  top_k_options route_;
  capacity_mask<P> mask_;
  detail::buffer<std::int32_t, context> ids_;
  detail::buffer<float, context> weights_;
  detail::buffer<std::byte, context> scratch_;
};

template <execution_policy P>
token_drop(P const&, token_drop_options const&) -> token_drop<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

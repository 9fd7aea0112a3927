// SPDX-License-Identifier: Apache-2.0
/// @file
/// Token Drop and Expanded Drop: routes tokens by router logits and limits the tokens of experts.
#pragma once

#include <cstdint>

#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/token_drop.hpp>
#include <plimsoll/detail/call/top_k.hpp>
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
  limit.order = candidate_order::together;
  return limit;
}

/// Optional inputs of one batch.
struct token_drop_batch {
  /// `[tokens]`: row of `route.local_experts` for each token. Empty: row 0 for all.
  vector_ref<std::int32_t const> homes = {};
  /// `[tokens]`: priority of each token, as in `capacity_batch`: the lowest is dropped first.
  vector_ref<std::int32_t const> priorities = {};
  /// Subsequence of the random numbers of `drop_policy::random`, as in `capacity_batch`.
  std::uint64_t subsequence = 0;
  /// Index of the batch's first token in the random sequence, as in `capacity_batch`.
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
template <unqualified_policy P>
class token_drop {
 public:
  /// @throws invalid_input where `top_k` and `capacity_mask` do, and for local ids that are neither
  ///   -1 nor an expert's
  /// @workspace from the policy: that of `capacity_mask`, 8 bytes per pair, and that of `top_k`
  ///   where it does not fit shared memory
  /// @stream synchronizes
  token_drop(P const& policy, token_drop_options const& options)
      : pipeline_(detail::resolve(policy), options.function, options.route, options.limit) {
    detail::synchronize(pipeline_.context());
  }

  /// @brief Routes and masks one batch.
  /// @param logits `[tokens, experts]` float, float16 or bfloat16, in the policy's memory
  /// @param batch optional inputs
  /// @param[out] kept pairs that stay, `[tokens, k + local experts]`, with ids of int32 or int64
  /// @throws invalid_input for shapes; the report counts invalid values
  /// @complexity that of `top_k` and `capacity_mask::apply`
  /// @stream enqueues as many kernels as `capacity_mask::apply`: four, one more each for
  ///   limit.expert_drop, for limit.max_selected and for batches of more than 524288 pairs; neither
  ///   allocates nor synchronizes. After a `cuda_error` the object cannot be used again
  /// @determinism the same bits under every policy
  template <class Logits, class Id = std::int32_t>
  void apply(Logits const& logits, token_drop_batch const& batch, kept_pairs_of<Id> const& kept) {
    auto const& mask = pipeline_.mask();
    detail::checked_call call("token_drop::apply", {{"experts", mask.options().experts},
                                                    {"candidates", mask.options().candidates}});
    auto const scores = detail::normalize_scores(
        PLIMSOLL_SCORES(call, "token_drop::apply", logits, "[tokens, experts]"));
    index_t const tokens = scores.extent(0);
    detail::expect_between(call, "logits", 0, mask.options().max_tokens, tokens,
                           "tokens (limit.max_tokens)");
    call.expect_given("batch.homes", batch.homes, "[tokens]");
    capacity_batch const masked{.priorities = batch.priorities,
                                .subsequence = batch.subsequence,
                                .first_token = batch.first_token};
    top_k_options const route = pipeline_.route(batch.homes);
    // Checks first, since routing overwrites the ids of the last batch.
    mask.expect_batch(call, tokens, masked, kept);
    detail::expect_top_k_scores(call, scores, route);
    pipeline_.enqueue(scores, route, masked, kept);
  }
  template <class Logits, class Id = std::int32_t>
  void apply(Logits const& logits, kept_pairs_of<Id> const& kept) {
    apply(logits, token_drop_batch{}, kept);
  }

  /// Columns of a row: choices, then expanded candidates.
  [[nodiscard]] index_t width() const { return pipeline_.width(); }
  /// Capacity of an expert, as `capacity_mask::capacity`.
  [[nodiscard]] index_t capacity(index_t tokens) const { return pipeline_.mask().capacity(tokens); }
  /// Ids of the last batch before the mask, `[tokens, width()]`, in the policy's memory.
  [[nodiscard]] matrix_ref<std::int32_t const> routed_ids(index_t tokens) const {
    return pipeline_.ids(tokens);
  }

 private:
  detail::token_drop_pipeline<kept_context<P>> pipeline_;
};

template <execution_policy P>
token_drop(P const&, token_drop_options const&) -> token_drop<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Limits the token copies that each expert gets to its capacity and drops the rest.
#pragma once

#include <cstdint>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/capacity_mask.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Limits the tokens of every expert to its capacity: keeps the best pairs, drops the others
/// and counts them.
///
/// In capacity-aware inference (He et al. 2025), an expert takes at most factor * tokens * top_k /
/// experts tokens of a batch, so that no rank waits for a straggler. The capacity holds per expert,
/// or for all experts of a rank together. Pairs are kept by score, by token order, by reverse order
/// or at random; tokens may have priorities, and expanded candidates in addition to their choices.
/// Other options give the capacities of Megatron-LM, DeepSpeed and Tutel (docs/capacity_mask.md).
///
/// The constructor takes all memory, so that `apply` can be captured in a CUDA graph. An object
/// works on one batch at a time.
template <unqualified_policy P>
class capacity_mask {
 public:
  /// @throws invalid_input for options; for a factor or rank out of range, naming its expert
  /// @workspace from the policy: 21 bytes per pair, up to 41 per expert, 4.25 per expert for each
  ///   512 pairs (8.5 with more candidates than top_k), and scratch where it does not fit shared
  ///   memory
  /// @stream synchronizes
  capacity_mask(P const& policy, capacity_options const& options)
      : pipeline_(detail::resolve(policy), options) {
    detail::synchronize(pipeline_.context());
  }

  /// Options of the constructor, with `candidates` set where it was 0.
  [[nodiscard]] capacity_options const& options() const { return pipeline_.options(); }

  /// @brief Capacity of an expert in a batch of `tokens` tokens; the largest one if experts have
  /// factors of their own.
  [[nodiscard]] index_t capacity(index_t tokens) const { return pipeline_.capacity(tokens); }

  /// @brief The most rows that `offsets` count in a batch of `tokens` tokens, padding included: the
  /// size of a buffer that holds the kept pairs of every such batch.
  [[nodiscard]] index_t max_rows(index_t tokens) const { return pipeline_.max_rows(tokens); }

  /// @brief Masks one batch.
  /// @param topk_ids `[tokens, candidates]` int32 or int64: experts, or -1; in the policy's memory
  /// @param topk_scores `[tokens, candidates]` float, float16 or bfloat16, of any sign:
  ///   `drop_policy::score` and max_selected rank pairs by them; NaN ranks last
  /// @param batch optional inputs
  /// @param[out] kept pairs that stay, with ids of int32 or int64. Of equal keys the lower token
  ///   ranks first, in one row the earlier column
  /// @throws invalid_input for shapes; the report counts invalid values
  /// @complexity O(pairs (candidates + digits)), for up to six 8-bit digits of a key, which are
  ///   read only where a capacity is exceeded; with expert_drop also O(experts^2)
  /// @stream enqueues four kernels, one more each for expert_drop, for max_selected and for batches
  ///   of more than 524288 pairs; neither allocates nor synchronizes. After a `cuda_error` the
  ///   object cannot be used again
  /// @determinism the same bits under every policy
  template <class Ids, class Scores, class Id = std::int32_t>
  void apply(Ids const& topk_ids, Scores const& topk_scores, capacity_batch const& batch,
             kept_pairs_of<Id> const& kept) {
    detail::checked_call call("capacity_mask::apply", {{"candidates", options().candidates},
                                                       {"experts", options().experts}});
    auto const ids = detail::read_only(
        PLIMSOLL_IDS(call, "capacity_mask::apply", topk_ids, "[tokens, candidates]"));
    detail::expect_between(call, "topk_ids", 0, options().max_tokens, ids.extent(0),
                           "tokens (options.max_tokens)");
    auto const scores = detail::normalize_scores(
        PLIMSOLL_SCORES(call, "capacity_mask::apply", topk_scores, "[tokens, candidates]"));
    pipeline_.expect_batch(call, ids.extent(0), batch, kept);
    pipeline_.enqueue(ids, scores, batch, kept);
  }
  template <class Ids, class Scores, class Id = std::int32_t>
  void apply(Ids const& topk_ids, Scores const& topk_scores, kept_pairs_of<Id> const& kept) {
    apply(topk_ids, topk_scores, capacity_batch{}, kept);
  }

 private:
  detail::capacity_mask_pipeline<kept_context<P>> pipeline_;
};

template <execution_policy P>
capacity_mask(P const&, capacity_options const&) -> capacity_mask<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

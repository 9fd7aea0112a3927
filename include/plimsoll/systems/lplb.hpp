// SPDX-License-Identifier: Apache-2.0
/// @file
/// LPLB: chooses in each step the replica of every token, from counts that all ranks share.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/lplb.hpp>
#include <plimsoll/detail/call/quota.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/systems/lplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Splits every step's tokens over the replicas of a placement. Ranks with the same counts
/// compute the same plan, to the bit, so that ranks exchange only counts.
///
/// `plan` solves the linear program and rounds the split to whole tokens; `dispatch` then maps
/// tokens to slots. DeepSeek's LPLB and SGLang's solver take five steps of an interior-point
/// method, and SGLang draws each token's replica at random; here the peak is the smallest possible
/// in whole tokens, and `method` chooses whether `dispatch` meets the quotas exactly or by draws.
///
/// The constructor copies the placement and allocates all memory: a CUDA graph can capture the
/// other calls. Before the first plan all quotas are 0.
template <unqualified_policy P>
class lplb {
 public:
  /// @param placement slots and ranks of every layer, in the policy's memory
  /// @param options options of the split and of `dispatch`
  /// @throws invalid_input as `minmax_lp`, and for options
  /// @workspace from the policy: that of `minmax_lp` and `round_split`, which share their scratch;
  ///   20 bytes more per slot and 12 per expert; and for each 512 of options.max_token_copies 4
  ///   bytes per expert, and, unless it fits in shared memory, up to 17 KiB and 8 bytes per expert
  /// @stream synchronizes
  lplb(P const& policy, placement_ref const& placement, lplb_options const& options)
      : options_(options),
        pipeline_(detail::resolve(policy), placement, options.lp, options.max_token_copies) {
    detail::expect_enumerator("lplb", "options.method", dispatch_method::sampled, options.method);
    detail::synchronize(pipeline_.context);
  }
  PLIMSOLL_EXPECT_BRACES_OF_OBJECT(rank_set, "{.lp = {.on = {.ranks = ...}}}", lplb,
                                   (P const& policy, placement_ref const& of), (policy, of))

  /// @brief Takes a new placement for layers from `first_layer` on, as `minmax_lp::update` does.
  /// Until the next `plan` the quotas are those of the placement before.
  /// @param first_layer the layer that gets row 0 of the placement
  /// @param placement `[layers, slots]`, in the policy's memory: the enqueued kernel copies it
  /// @param on liveness and speeds of the ranks of these layers; without it they stay
  /// @throws invalid_input for shapes; `check` throws for a layer whose values are refused
  /// @stream enqueues one kernel; neither allocates nor synchronizes, so that it can be captured
  void update(index_t first_layer, placement_ref const& placement,
              std::optional<rank_set> const& on = {}) {
    auto const ranks = detail::expect_placement_update(
        "lplb::update", pipeline_.lp.graph, pipeline_.layers(), first_layer, placement, on);
    pipeline_.enqueue_update(first_layer, placement, ranks ? &*ranks : nullptr);
  }

  /// @brief Throws unless a placement is in use: the last for each layer that was not refused.
  /// @param placement all layers, in the policy's memory
  /// @throws invalid_input for shapes; naming the first layer and slot, or rank, that differ
  /// @stream synchronizes
  void expect_current(placement_ref const& placement) const {
    pipeline_.lp.expect_current("lplb::expect_current", placement);
  }

  /// @brief Plans a step.
  /// @param first_layer the layer of row 0, if not all are planned: others keep their quotas
  /// @param counts `[layers, experts]`, or `[experts]` for one, int32, uint32 or int64: tokens of
  ///   all ranks together, in the policy's memory; at most 2^31 - 1 in all per layer
  /// @throws invalid_input for shapes; `check` throws for values
  /// @complexity that of `minmax_lp::solve` and `round_split`
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Counts>
  void plan(index_t first_layer, Counts const& counts) {
    detail::checked_call call("lplb::plan", {{"experts", pipeline_.experts()}});
    auto const loads = PLIMSOLL_COUNTS(call, "lplb::plan", counts, "[layers, experts]");
    pipeline_.plan(call, first_layer, loads);
  }
  template <view_of_rank<1> Counts>
  void plan(index_t layer, Counts const& counts) {
    plan(layer, detail::as_matrix(PLIMSOLL_COUNTS(unchecked, "lplb::plan", counts, "[experts]")));
  }
  template <class Counts>
  void plan(Counts const& counts) {
    detail::checked_call call("lplb::plan",
                              {{"layers", pipeline_.layers()}, {"experts", pipeline_.experts()}});
    pipeline_.plan(call, 0, PLIMSOLL_COUNTS(call, "lplb::plan", counts, "[layers, experts]"));
  }
  template <view_of_rank<1> Counts>
  void plan(Counts const& counts) {
    plan(detail::as_matrix(PLIMSOLL_COUNTS(unchecked, "lplb::plan", counts, "[experts]")));
  }

  /// @brief Plans a step for a rank that sees its own tokens only: adds up the counts of all ranks,
  /// plans, and divides the quotas as `divide_quotas` does, on the nodes of `options.lp.on`.
  /// `dispatch` then takes the tokens of `source`, until the next `plan` of a layer by sums.
  /// @param counts `[layers, ranks, experts]`, or `[ranks, experts]` for one layer
  /// @param source the rank; one that is none is refused
  /// @complexity that of the call with sums, and O(ranks experts + slots) per layer
  template <view_of_rank<3> Counts>
  void plan(Counts const& counts, index_t source) {
    detail::checked_call call("lplb::plan", {{"layers", pipeline_.layers()},
                                             {"ranks", pipeline_.lp.graph.ranks},
                                             {"experts", pipeline_.experts()}});
    auto const own = PLIMSOLL_COUNTS(call, "lplb::plan", counts, "[layers, ranks, experts]");
    pipeline_.plan_own(call, 0, own, source);
  }
  template <view_of_rank<2> Counts>
  void plan(index_t layer, Counts const& counts, index_t source) {
    detail::checked_call call(
        "lplb::plan", {{"ranks", pipeline_.lp.graph.ranks}, {"experts", pipeline_.experts()}});
    auto const own = PLIMSOLL_COUNTS(call, "lplb::plan", counts, "[ranks, experts]");
    pipeline_.plan_own(call, layer, detail::as_tensor(own), source);
  }

  /// @brief Chooses the slot of every token copy of a layer, as `plimsoll::dispatch` does.
  /// @param layer row of the placement
  /// @param topk_ids `[tokens, k]` int32 or int64: all tokens; if sampled, any part of them
  /// @param batch for sampled tokens: their random numbers
  /// @param[out] slots `[tokens, k]` int32 or int64
  /// @param[out] counters one element, in the policy's memory
  /// @throws invalid_input for shapes and more than options.max_token_copies
  /// @complexity that of `plimsoll::dispatch`
  /// @stream enqueues as many kernels as `plimsoll::dispatch`; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class Slots>
  void dispatch(index_t layer, Ids const& topk_ids, lplb_batch const& batch, Slots&& slots,
                scalar_ref<dispatch_counters> const& counters) {
    detail::checked_call call("lplb::dispatch");
    detail::expect_between(call, "layer", 0, pipeline_.layers() - 1, layer, "as layer");
    auto const ids = PLIMSOLL_IDS(call, "lplb::dispatch", topk_ids, "[tokens, k]");
    detail::expect_between(call, "topk_ids", 0, options_.max_token_copies,
                           ids.extent(0) * ids.extent(1), "ids (options.max_token_copies)");
    auto const chosen = PLIMSOLL_OUTPUT_IDS(call, "lplb::dispatch", slots, "[tokens, k]");
    using id = typename decltype(ids)::value_type;
    pipeline_.enqueue_dispatch(layer, matrix_ref<id const>(ids),
                               {.experts = pipeline_.experts(),
                                .method = options_.method,
                                .seed = options_.seed,
                                .subsequence = batch.subsequence,
                                .first_token = batch.first_token},
                               chosen, detail::one_element(call, "counters", counters));
  }
  /// @brief Chooses the slot of every token copy of a layer; sampled tokens use subsequence 0.
  template <class Ids, class Slots>
  void dispatch(index_t layer, Ids const& topk_ids, Slots&& slots,
                scalar_ref<dispatch_counters> const& counters) {
    dispatch(layer, topk_ids, lplb_batch{}, std::forward<Slots>(slots), counters);
  }

  /// `[layers, slots of the object]`, in the policy's memory: the split before rounding.
  [[nodiscard]] matrix_ref<double const> split() const {
    return pipeline_.per_slot(pipeline_.split);
  }
  /// `[layers, slots]`, in the policy's memory: the tokens of every slot.
  [[nodiscard]] matrix_ref<std::int32_t const> quotas() const {
    return pipeline_.per_slot(pipeline_.quotas);
  }
  /// `[layers, slots]`, in the policy's memory: the tokens of the source in every slot.
  [[nodiscard]] matrix_ref<std::int32_t const> own_quotas() const {
    return pipeline_.per_slot(pipeline_.shares);
  }
  /// `[layers]`, in the policy's memory: the results of `minmax_lp`.
  [[nodiscard]] vector_ref<certificate const> certificates() const {
    return pipeline_.lp.certificates_view();
  }
  /// `[layers]`, in the policy's memory: none, or the count for which `minmax_lp` split nothing.
  [[nodiscard]] vector_ref<fault const> faults() const { return pipeline_.lp.faults_view(); }
  /// `[layers]`, in the policy's memory: the results of `round_split`.
  [[nodiscard]] vector_ref<quota_report const> reports() const { return pipeline_.reports_view(); }

  /// @brief Throws `invalid_input` for the first layer whose last `update` or `plan` was refused.
  /// @stream synchronizes
  void check() const {
    pipeline_.lp.expect_updated("lplb::update");
    detail::expect_all_planned(pipeline_.lp.faults.read(), pipeline_.reports.read());
  }

 private:
  lplb_options options_;
  detail::lplb_pipeline<kept_context<P>> pipeline_;
};

template <execution_policy P>
lplb(P const&, placement_ref const&, lplb_options const&) -> lplb<P>;

}}}  // namespace plimsoll

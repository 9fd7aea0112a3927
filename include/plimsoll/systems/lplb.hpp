// SPDX-License-Identifier: Apache-2.0
/// @file
/// LPLB: chooses in each step the replica of every token, from counts that all ranks share.
#pragma once

#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/quota.hpp>
#include <plimsoll/detail/pipeline/lplb.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

struct lplb_options {
  /// A tolerance of 0, so that splits are optimal and the peak in whole tokens is the smallest.
  minmax_lp_options lp = {.tolerance = 0};
  /// The most ids (tokens times k) of one `dispatch`.
  index_t max_ids = 0;
  dispatch_method method = dispatch_method::in_order;
  /// For `sampled`: the key of the random number generator.
  std::uint64_t seed = 0;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Splits every step's tokens over the replicas of a placement. Ranks with the same counts
/// compute the same plan, to the bit, so that ranks exchange only counts.
///
/// `plan` solves the linear program and rounds the split to whole tokens; `dispatch` then maps
/// tokens to slots. DeepSeek's LPLB and SGLang's solver take five steps of an interior-point
/// method, and SGLang draws each token's replica at random; here the peak is the smallest possible
/// in whole tokens, and `method` chooses whether `dispatch` meets the quotas exactly or by draws.
///
/// The constructor allocates all memory, so that `plan` and `dispatch` can be captured in a CUDA
/// graph. One object plans one step at a time; an engine that plans layer by layer makes one object
/// for each layer.
template <execution_policy P>
class lplb {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a prepared object outlives this policy; use gpu(stream) or "
                "gpu(stream, resource)");

 public:
  /// @param placement slots and ranks of every layer, in the policy's memory, which must outlive
  ///   this object
  /// @param options options of the split and of `dispatch`
  /// @throws invalid_input as `minmax_lp`, and for options
  /// @workspace from the policy: that of `minmax_lp` and `quota`, which share their scratch; 16
  ///   bytes more per slot and 4 per expert; and for each 512 of options.max_ids 4 bytes per
  ///   expert, and, unless it fits in shared memory, up to 17 KiB and 8 bytes per expert
  /// @stream synchronises
  lplb(P const& policy, placement_ref const& placement, lplb_options const& options)
      : options_(options),
        pipeline_(detail::resolve(policy), placement, options.lp, options.max_ids) {
    detail::synchronize(pipeline_.context);
  }

  /// @brief Plans a step.
  /// @param counts `[layers, experts]` int32, uint32 or int64: tokens of all ranks together, in the
  ///   policy's memory; at most 2^31 - 1 in all per layer
  /// @throws invalid_input for shapes; `expect_planned` throws for values
  /// @complexity that of `minmax_lp::solve` and `quota`
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <load_matrix_view Counts>
    requires std::is_integral_v<detail::normalized_value_t<Counts, 2>>
  void plan(Counts const& counts) const {
    constexpr char const* name = "lplb::plan";
    auto const loads = detail::argument<2>(name, "counts", counts);
    detail::expect_extent(name, "counts", pipeline_.layers(), loads.extent(0), "layers");
    detail::expect_extent(name, "counts", pipeline_.experts(), loads.extent(1), "experts");
    pipeline_.enqueue_plan(loads);
  }

  /// @brief Chooses the slot of every token copy of a layer, as `plimsoll::dispatch` does.
  /// @param layer row of the placement
  /// @param topk_ids `[tokens, k]` int32 or int64: the tokens of all ranks, or, if sampled, any
  ///   part of them
  /// @param[out] slots `[tokens, k]` int32
  /// @param[out] counters `[1]`
  /// @param subsequence for sampled tokens: the subsequence of random numbers, different for each
  ///   step and layer
  /// @param first_token for sampled tokens: the number of the first token
  /// @throws invalid_input for shapes and more than options.max_ids
  /// @complexity that of `plimsoll::dispatch`
  /// @stream enqueues as many kernels as `plimsoll::dispatch`; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, output_of<std::int32_t, 2> Slots,
            output_of<dispatch_counters, 1> Counters>
  void dispatch(index_t layer, Ids const& topk_ids, Slots&& slots, Counters&& counters,
                std::uint64_t subsequence = 0, std::uint64_t first_token = 0) const {
    constexpr char const* name = "lplb::dispatch";
    using id = detail::normalized_value_t<Ids, 2>;
    matrix_ref<id const> const ids = detail::argument<2>(name, "topk_ids", topk_ids);
    detail::expect_between(name, "layer", 0, pipeline_.layers() - 1, layer, "as layer");
    detail::expect_between(name, "topk_ids", 0, options_.max_ids, ids.extent(0) * ids.extent(1),
                           "ids (options.max_ids)");
    matrix_ref<std::int32_t> const chosen = detail::argument<2>(name, "slots", slots);
    vector_ref<dispatch_counters> const counted = detail::argument<1>(name, "counters", counters);
    detail::expect_dispatch_outputs(name, ids.extent(0), ids.extent(1), chosen, counted);
    pipeline_.enqueue_dispatch(layer, ids,
                               {.experts = pipeline_.experts(),
                                .method = options_.method,
                                .seed = options_.seed,
                                .subsequence = subsequence,
                                .first_token = first_token},
                               chosen, counted);
  }

  /// `[layers, slots]`, in the policy's memory: the split of `plan` before rounding.
  [[nodiscard]] matrix_ref<double> split() const { return pipeline_.per_slot(pipeline_.split); }
  /// `[layers, slots]`, in the policy's memory: the tokens of every slot.
  [[nodiscard]] matrix_ref<std::int32_t> quotas() const {
    return pipeline_.per_slot(pipeline_.quotas);
  }
  /// `[layers]`, in the policy's memory: the results of `minmax_lp`.
  [[nodiscard]] vector_ref<certificate> certificates() const {
    return pipeline_.per_layer(pipeline_.certificates);
  }
  /// `[layers]`, in the policy's memory: the results of `quota`.
  [[nodiscard]] vector_ref<quota_report> reports() const {
    return pipeline_.per_layer(pipeline_.reports);
  }

  /// @brief Throws for the first layer that `plan` could not split.
  /// @throws invalid_input naming the layer
  /// @stream synchronises
  void expect_planned(P const& policy) const {
    expect_solved(policy, certificates());
    expect_quotas(policy, reports());
  }

 private:
  lplb_options options_;
  detail::lplb_pipeline<detail::context_of<P>> pipeline_;
};

template <execution_policy P>
lplb(P const&, placement_ref const&, lplb_options const&) -> lplb<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// LPLB: chooses in each step the replica of every token, from counts that all ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/lplb.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/scratch.hpp>
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
      : context_(detail::resolve(policy)),
        options_(options),
        placement_(placement),
        lp_(policy, placement, options.lp, typename minmax_lp<P>::without_scratch{}) {
    detail::expect_between("lplb", "options.max_ids", 0, 0x7fffffff, options.max_ids, "ids");
    index_t const layers = placement.physical_to_logical.extent(0);
    index_t const slots = placement.physical_to_logical.extent(1);
    split_ = {context_, layers * slots};
    quotas_ = {context_, layers * slots};
    certificates_ = {context_, layers};
    reports_ = {context_, layers};
    lists_memory_ = {context_, static_cast<index_t>(detail::bytes_taken_by<detail::slot_lists>(
                                   experts(), slots, layers))};
    detail::scratch arrays(lists_memory_.data());
    lists_ = detail::slot_lists::in(arrays, experts(), slots, layers);
    detail::launch(context_, layers,
                   detail::list_slots_body{lists_, placement.physical_to_logical});
    matrix_ref<std::int32_t const> const loads(nullptr, layers, experts());
    index_t const planning = detail::launch_bytes(context_, layers, plan_body(loads));
    detail::dispatch_body<std::int32_t, dispatch_counters> body{};
    body.tiles = {options.max_ids, experts() + 2, nullptr, nullptr};
    index_t const mapping = detail::launch_bytes(context_, body.problems(), body);
    scratch_ = {context_, planning > mapping ? planning : mapping};
    dispatch_memory_ = {context_, detail::dispatch_bytes(options.max_ids, experts(), slots)};
    detail::synchronize(context_);
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
    detail::expect_extent(name, "counts", placement_.physical_to_logical.extent(0), loads.extent(0),
                          "layers");
    detail::expect_extent(name, "counts", experts(), loads.extent(1), "experts");
    detail::launch(context_, loads.extent(0), plan_body(loads), scratch_.data());
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
    auto const ids = detail::argument<2>(name, "topk_ids", topk_ids);
    detail::expect_between(name, "layer", 0, placement_.physical_to_logical.extent(0) - 1, layer,
                           "as layer");
    detail::expect_between(name, "topk_ids", 0, options_.max_ids, ids.extent(0) * ids.extent(1),
                           "ids (options.max_ids)");
    detail::enqueue_dispatch(
        name, detail::prepared_context<context>{context_, scratch_.data()},
        matrix_ref<id const>(ids), detail::row_of(placement_.physical_to_logical, layer),
        vector_ref<std::int32_t const>(detail::row_of(quotas(), layer)),
        dispatch_options{experts(), options_.method, options_.seed, subsequence, first_token},
        detail::argument<2>(name, "slots", slots), detail::argument<1>(name, "counters", counters),
        lists_.of_layer(layer), true, detail::scratch(dispatch_memory_.data()));
  }

  /// `[layers, slots]`, in the policy's memory: the split of `plan` before rounding.
  [[nodiscard]] matrix_ref<double> split() const { return matrix(split_); }
  /// `[layers, slots]`, in the policy's memory: the tokens of every slot.
  [[nodiscard]] matrix_ref<std::int32_t> quotas() const { return matrix(quotas_); }
  /// `[layers]`, in the policy's memory: the results of `minmax_lp`.
  [[nodiscard]] vector_ref<certificate> certificates() const {
    return {certificates_.data(), certificates_.size()};
  }
  /// `[layers]`, in the policy's memory: the results of `quota`.
  [[nodiscard]] vector_ref<quota_report> reports() const {
    return {reports_.data(), reports_.size()};
  }

  /// @brief Throws for the first layer that `plan` could not split.
  /// @throws invalid_input naming the layer
  /// @stream synchronises
  void expect_planned(P const& policy) const {
    expect_solved(policy, certificates());
    expect_quotas(policy, reports());
  }

 private:
  using context = detail::context_of<P>;

  [[nodiscard]] index_t experts() const { return placement_.replica_count.extent(1); }

  template <class T>
  [[nodiscard]] matrix_ref<T> matrix(detail::buffer<T, context> const& memory) const {
    return {memory.data(), placement_.physical_to_logical.extent(0),
            placement_.physical_to_logical.extent(1)};
  }

  template <class Loads>
  auto plan_body(Loads const& loads) const {
    auto const solve = lp_.body_of(loads, split(), certificates());
    detail::quota_body<Loads, quota_report> const round{
        loads,
        placement_.physical_to_logical,
        {placement_.rank_offsets, placement_.physical_to_logical.extent(1), placement_.ranks},
        split(),
        quotas(),
        reports(),
        lists_};
    return detail::lplb_plan_body<std::remove_const_t<decltype(solve)>,
                                  std::remove_const_t<decltype(round)>>{solve, round};
  }

  context context_;
  lplb_options options_;
  placement_ref placement_;
  minmax_lp<P> lp_;
  detail::slot_lists lists_{};  ///< of every layer, in `lists_memory_`
  detail::buffer<std::byte, context> lists_memory_;
  detail::buffer<double, context> split_;
  detail::buffer<std::int32_t, context> quotas_;
  detail::buffer<certificate, context> certificates_;
  detail::buffer<quota_report, context> reports_;
  detail::buffer<std::byte, context> scratch_;
  detail::buffer<std::byte, context> dispatch_memory_;
};

template <execution_policy P>
lplb(P const&, placement_ref const&, lplb_options const&) -> lplb<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

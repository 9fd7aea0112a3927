// SPDX-License-Identifier: Apache-2.0
// A step of one layer under one placement: capacity mask, LPLB, and Waterfill.
#pragma once

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline.hpp>

#include "exchange.hpp"
#include "stand_ins.hpp"

namespace online_balancer {

/// Objects and arrays of one layer, in the policy's memory. They keep their addresses, so that a
/// CUDA graph that has captured `enqueue` sees every later placement.
template <class Policy, class Exchange>
class layer {
 public:
  plimsoll::array<std::int32_t, Policy, 2> kept;    ///< `[tokens, top_k]`: experts, -1 if dropped
  plimsoll::array<std::int32_t, Policy, 2> chosen;  ///< `[tokens, top_k]`: slot of every copy
  /// `[tokens, top_k + 1]`: slots, where every rank has one more for the shared expert.
  plimsoll::array<std::int32_t, Policy, 2> filled;
  plimsoll::array<std::int32_t, Policy, 2> counts;  ///< `[1, experts]`: kept copies
  plimsoll::array<plimsoll::capacity_report, Policy> masked;

  /// @param placement is read in later steps, too: its arrays must keep their addresses
  layer(Policy const& policy, Exchange const& exchange, plimsoll::placement_ref const& placement)
      : kept(policy, tokens, top_k),
        chosen(policy, tokens, top_k),
        filled(policy, tokens, top_k + 1),
        counts(policy, 1, experts),
        masked(policy, 1),
        policy_(policy),
        exchange_(exchange),
        placement_(placement),
        mask_(policy, {.experts = experts, .top_k = top_k, .max_tokens = tokens, .factor = 4}),
        splitter_(policy, placement, {.max_token_copies = tokens * top_k}),
        shared_(policy, {.on = {.ranks = ranks},
                         .slots = slots,
                         .top_k = top_k,
                         .max_tokens = rank_tokens,
                         .candidates = plimsoll::candidate_ranks::all,
                         .min_tokens = 0}),
        dispatched_(policy, 1),
        own_loads_(policy, ranks, 2, ranks),
        loads_(policy, 2, ranks),
        source_offsets_(policy, offsets_of_ranks()),
        source_counts_(policy, ranks, experts),
        source_quotas_(policy, ranks, slots),
        routed_(policy, 1) {}

  /// Enqueues a step: masks the router's choices, splits and dispatches what is kept, and places
  /// the rows of the shared expert. One process neither allocates nor waits.
  void enqueue(plimsoll::matrix_ref<std::int32_t> const& topk_ids,
               plimsoll::matrix_ref<float> const& scores) {
    // The mask compares the tokens of all ranks.
    exchange_.gather(topk_ids.data, tokens * top_k);
    exchange_.gather(scores.data, tokens * top_k);
    mask_.apply(topk_ids, scores,
                plimsoll::kept_pairs{.ids = kept.view(),
                                     .counts = {counts.data_handle(), experts},
                                     .report = masked.view()});
    splitter_.plan(counts);
    dispatch_own();
    // Waterfill. Every rank of an engine calls `waterfill` for itself. A process of this program
    // acts for its ranks in turn and adds up their loads; then all processes add up theirs.
    for (index_t rank = exchange_.first_rank(); rank < exchange_.end_rank(); ++rank) {
      plimsoll::matrix_ref<std::int64_t> const own(own_loads_.data_handle() + 2 * ranks * rank, 2,
                                                   ranks);
      shared_.count(rows(chosen, rank), rank, own);
    }
    plimsoll::sum_steps(policy_, own_loads_, loads_);
    exchange_.sum(loads_.data_handle(), loads_.size());
    for (index_t rank = exchange_.first_rank(); rank < exchange_.end_rank(); ++rank) {
      shared_.plan(loads_, rank);
      shared_.fill(rows(chosen, rank), rank, {}, rows(filled, rank), {});
    }
  }

  // [dispatch]
  /// Chooses the slots of this process's tokens. With several processes, the quotas are divided
  /// among the ranks, and each process dispatches the tokens of its ranks by their parts.
  void dispatch_own() {
    if constexpr (Exchange::is_alone) {
      splitter_.dispatch(0, kept, chosen, dispatched_);
    } else {
      plimsoll::count_tokens_by_source(policy_, kept, source_offsets_, {}, source_counts_, routed_);
      plimsoll::array_ref const quotas(splitter_.quotas().data, slots);
      plimsoll::divide_quotas(policy_, quotas, source_counts_, placement_, {}, source_quotas_);
      plimsoll::array_ref const map(placement_.physical_to_logical.data, slots);
      for (index_t rank = exchange_.first_rank(); rank < exchange_.end_rank(); ++rank) {
        plimsoll::array_ref const part(source_quotas_.data_handle() + rank * slots, slots);
        plimsoll::dispatch(policy_, rows(kept, rank), map, part, {.experts = experts},
                           rows(chosen, rank), dispatched_);
      }
    }
  }
  // [end]

  /// Takes a new placement, or other live ranks.
  void update(plimsoll::placement_ref const& placement, plimsoll::rank_set const& on) {
    splitter_.update(0, placement, on);
    shared_.update({}, on);
  }
  /// Throws unless this placement is the one in use. Waits.
  void expect_current(plimsoll::placement_ref const& placement) const {
    splitter_.expect_current(placement);
  }
  /// Throws if an update or the last step was refused. Waits.
  void check() const {
    splitter_.check();
    shared_.check();
  }

 private:
  /// Rows of the tokens of a rank.
  static auto rows(plimsoll::array<std::int32_t, Policy, 2>& all, index_t rank) {
    index_t const width = all.extent(1);
    return plimsoll::matrix_ref<std::int32_t>(all.data_handle() + rank * rank_tokens * width,
                                              rank_tokens, width);
  }
  static ints offsets_of_ranks() {
    ints offsets;
    for (index_t rank = 0; rank <= ranks; ++rank) {
      offsets.push_back(static_cast<std::int32_t>(rank * rank_tokens));
    }
    return offsets;
  }

  Policy policy_;
  Exchange exchange_;
  plimsoll::placement_ref placement_;
  plimsoll::capacity_mask<Policy> mask_;
  plimsoll::lplb<Policy> splitter_;
  plimsoll::waterline<Policy> shared_;
  plimsoll::array<plimsoll::dispatch_counters, Policy> dispatched_;
  plimsoll::array<std::int64_t, Policy, 3> own_loads_;  // [ranks, 2, ranks]
  plimsoll::array<std::int64_t, Policy, 2> loads_;      // [2, ranks]
  // For several processes.
  plimsoll::array<std::int32_t, Policy> source_offsets_;    // [ranks + 1]
  plimsoll::array<std::int32_t, Policy, 2> source_counts_;  // [ranks, experts]
  plimsoll::array<std::int32_t, Policy, 2> source_quotas_;  // [ranks, slots]
  plimsoll::array<plimsoll::routing_counters, Policy> routed_;
};

}  // namespace online_balancer

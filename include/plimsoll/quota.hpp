// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rounds the split of a step's load over replicas to whole tokens, and chooses the replica of
/// every token.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/quota.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Rounds a split to whole tokens, and raises its peak by less than one token.
///
/// Each slot's share is rounded up or down so that the shares of every expert still add up to its
/// load, and each rank's load is the one in the split, rounded up or down (controlled rounding:
/// Bacharach 1966, Cox 1987). An optimal split with peak M thus becomes a split in whole tokens
/// with peak ceil(M), which is optimal, too. Rounding each expert on its own by largest remainders
/// does not keep that bound: eight experts of one token each, all on the same two ranks, may give
/// loads of 8 and 0.
///
/// @param loads `[layers, experts]` int32, uint32 or int64, whole tokens, in the policy's memory;
///   at most 2^31 - 1 in all per layer
/// @param placement slots and ranks of every layer, in the policy's memory; `replica_count` is not
///   read
/// @param split `[layers, slots]` double: the load of every slot, as `minmax_lp` writes it; 0 for
///   empty slots. The sum of an expert's shares may differ from its load by up to 2^-20 of it, and
///   a single share may exceed it by as much; the largest share absorbs the difference
/// @param[out] quotas `[layers, slots]` int32: whole tokens for every slot
/// @param[out] reports `[layers]`, in the policy's memory: the peak before and after rounding, or
///   the refused value; the layer's quotas are then 0
/// @throws invalid_input for shapes; `check` throws for values
/// @complexity O(slots + experts) per layer, and O(slots with a fraction * ranks of a walk), where
///   a walk reaches each rank at most once; on a GPU one thread walks for each group of ranks that
///   fractions connect
/// @workspace 20 bytes per slot, 8 per expert and 28 per rank, for each layer in flight
/// @stream enqueues one kernel, does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Split, class Quotas, class Reports>
void round_split(P const& policy, Loads const& loads, placement_ref const& placement,
                 Split const& split, Quotas&& quotas, Reports&& reports) {
  detail::checked_call call("round_split");
  auto const load = PLIMSOLL_COUNTS(call, "round_split", loads, "[layers, experts]");
  auto const ranges = detail::ranges_of(call, placement);
  matrix_ref<double const> const parts =
      PLIMSOLL_INPUT(double, call, "round_split", split, "[layers, slots]");
  matrix_ref<std::int32_t> const whole =
      PLIMSOLL_OUTPUT(int32, call, "round_split", quotas, "[layers, slots]");
  vector_ref<quota_report> const results =
      PLIMSOLL_OUTPUT(quota_report, call, "round_split", reports, "[layers]");
  detail::expect_between(call, "loads", 1, expert_limit, load.extent(1), "experts");
  detail::enqueue_quota(detail::resolve(policy), load, placement.physical_to_logical, ranges, parts,
                        whole, results);
}

/// @brief Throws for the first layer that `round_split` could not round.
///
/// @param reports `[layers]`, in the policy's memory
/// @throws invalid_input naming the layer and the slot, expert or rank
/// @stream synchronizes once
template <execution_policy P, class Reports>
void check(P const& policy, Reports const& reports) {
  auto const all =
      read(policy, PLIMSOLL_INPUT(quota_report, unchecked, "check", reports, "[layers]"));
  detail::expect_sound("round_split", all, static_cast<index_t>(all.size()));
}

/// @brief Divides the quotas of one layer among the source ranks, so that as many tokens as
/// possible stay on their source rank.
///
/// For every expert, each source rank first fills the quotas of the slots on the same rank; sources
/// then fill the remaining quotas on their node, and finally those anywhere; each time in the order
/// of sources and slots. Ranks that know the counts of all ranks compute the same division, and
/// each dispatches its tokens by its own row.
///
/// @param quotas `[slots]` int32, at least 0, as `round_split` writes them
/// @param counts `[ranks, experts]` int32, at least 0: tokens of every source for every expert;
///   tokens beyond an expert's quotas get no quota
/// @param placement one layer's slots and ranks, in the policy's memory, as `round_split` accepts
///   them
/// @param on the nodes, into which ranks are numbered node by node. Liveness changes nothing, since
///   quotas of dead ranks are 0
/// @param[out] source_quotas `[ranks, slots]` int32: row s holds the quotas for tokens of rank s
/// @throws invalid_input for shapes
/// @complexity O(ranks * slots)
/// @workspace 16 bytes per slot and 4 per expert, from the policy; for each problem in flight 12
///   bytes per slot and per rank
/// @stream enqueues two kernels, does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Quotas, class Counts, class SourceQuotas>
void divide_quotas(P const& policy, Quotas const& quotas, Counts const& counts,
                   placement_ref const& placement, rank_set const& on,
                   SourceQuotas&& source_quotas) {
  detail::checked_call call("divide_quotas", {{"layers", 1}, {"ranks", placement.ranks}});
  auto const ranges = detail::ranges_of(call, placement);
  vector_ref<std::int32_t const> const whole =
      PLIMSOLL_INPUT(int32, call, "divide_quotas", quotas, "[slots]");
  matrix_ref<std::int32_t const> const from =
      PLIMSOLL_INPUT(int32, call, "divide_quotas", counts, "[ranks, experts]");
  matrix_ref<std::int32_t> const out =
      PLIMSOLL_OUTPUT(int32, call, "divide_quotas", source_quotas, "[ranks, slots]");
  rank_set const ranks = detail::with_ranks_of(call, on, placement.ranks, "on");
  detail::expect_no_speeds(call, ranks, "quotas are given", "on");
  detail::expect_between(call, "counts", 1, expert_limit, from.extent(1), "experts");
  detail::enqueue_source_quotas(detail::resolve(policy), whole, from,
                                detail::row_of(placement.physical_to_logical, 0), ranges,
                                ranks.nodes, out);
}

/// @brief Chooses the replica of every token copy.
///
/// `in_order`: the copies of an expert, in the order of tokens, fill the quota of its first slot,
/// then that of the next slot, so that quotas are met exactly. Ranks that see the same tokens
/// choose the same slots. `sampled`: copy (t, j) draws its slot with random number (first_token +
/// t) k + j, regardless of the rank and the batch that hold the token; quotas are met on average.
///
/// @param topk_ids `[tokens, k]` int32 or int64: experts, or -1; in the policy's memory
/// @param physical_to_logical `[slots]` int32 or int64: the expert in every slot, or -1
/// @param quotas `[slots]` int32, at least 0, sum below 2^31: from `round_split`, or a row of
///   `divide_quotas`
/// @param options number of experts, method, and random numbers
/// @param[out] slots `[tokens, k]` int32 or int64: the slot of every copy; -1 if the id is no
///   expert with a slot
/// @param[out] counters one element, in the policy's memory: the number of ids by outcome; none is
///   lost silently
/// @throws invalid_input for shapes and options
/// @complexity O(tokens k log(copies) + slots + experts)
/// @workspace from the policy: 12 bytes per slot, 16 per expert, 4 per expert for each 512 copies,
///   and, unless it fits in shared memory, up to 17 KiB and 8 bytes per expert for each 512 copies
///   in flight
/// @stream enqueues two kernels, three for more than 2^15 copies or 1024 experts; does not
///   synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Ids, class Map, class Quotas, class Slots>
void dispatch(P const& policy, Ids const& topk_ids, Map const& physical_to_logical,
              Quotas const& quotas, dispatch_options const& options, Slots&& slots,
              scalar_ref<dispatch_counters> const& counters) {
  detail::checked_call call("dispatch");
  detail::expect_between(call, "options.experts", 1, expert_limit, options.experts, "experts");
  detail::expect_enumerator(call, "options.method", dispatch_method::sampled, options.method);
  auto const ids = PLIMSOLL_IDS(call, "dispatch", topk_ids, "[tokens, k]");
  detail::expect_between(call, "topk_ids", 1, 0x7fffffff, ids.extent(1), "ids per token");
  detail::expect_between(call, "topk_ids", 0, 0x7fffffff / ids.extent(1), ids.extent(0),
                         "tokens (below 2^31 ids)");
  auto const map = PLIMSOLL_IDS(call, "dispatch", physical_to_logical, "[slots]");
  detail::expect_between(call, "physical_to_logical", 1, 0x7fffffff, map.extent(0), "slots");
  using id = typename decltype(ids)::value_type;
  using expert = typename decltype(map)::value_type;
  vector_ref<std::int32_t const> const whole =
      PLIMSOLL_INPUT(int32, call, "dispatch", quotas, "[slots]");
  auto const chosen = PLIMSOLL_OUTPUT_IDS(call, "dispatch", slots, "[tokens, k]");
  auto const counted = detail::one_element(call, "counters", counters);
  detail::enqueue_dispatch(detail::resolve(policy), matrix_ref<id const>(ids),
                           vector_ref<expert const>(map), whole, options, chosen, counted);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

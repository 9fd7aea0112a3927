// SPDX-License-Identifier: Apache-2.0
/// @file
/// `refine` improves a placement by local search: it swaps replicas and moves copies between
/// experts.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/refinement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/refinement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Improves a placement in place by local search until its peak, the load of the most loaded
/// rank, is close to the lower bound. The peak never rises.
///
/// First, it swaps replicas of the most loaded rank with lighter ones, or with free slots, of other
/// ranks, as long as that helps. Each swap is the one that minimizes the load of the worse of its
/// two ranks. If the greedy placement of the same copies is better than the result, it swaps from
/// there, too. Second, it tries plans with one copy moved from one expert to another (or added in a
/// free slot): each is placed greedily and improved by swaps, and the search goes on from the first
/// one that is better. Choosing counts and placement jointly pays if ranks have few slots: a
/// replica that is too heavy to share a rank wastes the rest of its rank. Third, in layers of at
/// most 64 slots, it changes a few slots at random and swaps again (iterated local search). That
/// finds exchanges of several replicas where no swap of two helps, as is common if one replica is a
/// large part of a rank's load. No slot becomes free. Node lists and required anti-affinity are
/// respected; with preferred anti-affinity the number of violations never rises.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param where the options that `place` was given
/// @param options stopping criteria
/// @param[in,out] physical_to_logical `[layers, slots]` int32 or int64, as `place` writes it
/// @param[out] replica_count `[layers, experts]` int32 or int64, the copies of the result
/// @return per layer: value = load (over speed) of the most loaded rank; lower_bound = a bound for
///   placements with any counts if `max_trials > 0`: the mean over ranks with slots or, if larger,
///   the smallest possible weight of the heaviest replica with these slots; otherwise the bound of
///   `place` for the given counts; status optimal, within_tolerance, iteration_limit if all trials
///   were used, or feasible if no swap, moved copy or tried perturbation helps; work = swaps made
///   and plans tried
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank, node or
///   slot, an invalid `physical_to_logical` included; the outputs are then unspecified
/// @complexity O(slots) per swap and replica of the most loaded rank, and as `place` for each plan
///   tried; the number of swaps is not limited, but no plan repeats before the perturbations, which
///   take O(2^19) steps in all plus those of their swaps
/// @workspace 36 bytes per expert, 16 per slot and 32 per rank for each problem in flight (more
///   with anti-affinity, as `place`), 64 bytes per layer, and 4 bytes for each int64 element, from
///   the policy
/// @stream synchronizes once
/// @determinism the same bits under every policy; ties go to the lowest slot and expert
template <execution_policy P, class Loads, class Placement, class Counts>
std::vector<certificate> refine(P const& policy, Loads const& loads, placement_options const& where,
                                refinement_options const& options, Placement&& physical_to_logical,
                                Counts&& replica_count) {
  detail::checked_call call("refine");
  auto const load = PLIMSOLL_LOADS(call, "refine", loads, "[layers, experts]");
  auto const placement =
      PLIMSOLL_OUTPUT_IDS(call, "refine", physical_to_logical, "[layers, slots]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "refine", replica_count, "[layers, experts]");
  index_t const layers = load.extent(0);
  detail::expect_placeable(call, layers, load.extent(1), placement.extent(1), where, "where");
  detail::expect_refinable(call, options);

  auto const context = detail::resolve(policy);
  detail::int32_ids const map(context, placement);
  detail::int32_ids const copies(context, counts);
  return detail::run_planning(call, context, layers, 1, [&](detail::problem_report* reports) {
    map.load();
    detail::enqueue_refine(context, load, where, options, map.view(), copies.view(), reports);
    map.store();
    copies.store();
  });
}

/// @brief Improves a copy of a placement as the call with output arrays, and returns it in memory
/// of the policy.
///
/// @param given the placement, which stays as it is; its `replica_count` is not read
/// @param where the options that `place` was given; with 0 ranks or without `rank_offsets`, those
///   of `given` apply
/// @return the improved placement with a copy of the `rank_offsets`, and the certificates; the
///   workspace includes the arrays that it keeps
/// @throws invalid_input also if `where` has another number of ranks than `given`
template <execution_policy P, class Loads>
placement<P> refine(P const& policy, Loads const& loads, placement_ref const& given,
                    placement_options const& where, refinement_options const& options) {
  detail::checked_call call("refine");
  auto const load = PLIMSOLL_LOADS(call, "refine", loads, "[layers, experts]");
  index_t const layers = load.extent(0);
  index_t const experts = load.extent(1);
  index_t const slots = given.physical_to_logical.extent(1);
  detail::expect_elements(call, "given.physical_to_logical", given.physical_to_logical);
  detail::expect_elements(call, "given.rank_offsets", given.rank_offsets);
  placement_options const ranks = detail::options_for(call, given, where);
  detail::expect_placeable(call, layers, experts, slots, ranks, "where");
  call.expect("given.physical_to_logical", given.physical_to_logical, "[layers, slots]");
  auto result = detail::allocate_placement(policy, layers, experts, slots, ranks.on.ranks,
                                           ranks.rank_offsets);
  detail::copy_ids(detail::resolve(policy), given.physical_to_logical,
                   result.physical_to_logical.view());
  result.certificates =
      refine(policy, load, ranks, options, result.physical_to_logical, result.replica_count);
  return result;
}

PLIMSOLL_EXPECT_ON(refine, (Loads const& loads), (loads), refinement_options const&)
PLIMSOLL_EXPECT_ON(refine, (Loads const& loads, placement_ref const& given), (loads, given),
                   refinement_options const&)

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

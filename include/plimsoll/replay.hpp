// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replay of recorded steps: their balancedness under other placements.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/replay.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replay_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Replays recorded steps under one or several plans and averages their balancedness.
///
/// balancedness(p, l) is the mean over the steps t of mean / peak of the rank loads in step t. The
/// replicas of an expert share its load evenly, as in `rank_loads`, or, if `options.split` says so,
/// as an optimal split of the step divides it (`minmax_lp`). A step in which the layer has no load
/// counts as 1.
///
/// This balancedness of single steps decides how long steps take. The balancedness of the summed
/// loads does not: there the peaks of different steps cancel out. (To get the latter, call
/// `rank_loads` on the sums and then `measure`.) CRAFT's algorithm 1 estimates the gain of replicas
/// with `replay`.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; at least one step; int32,
///   uint32, int64, float, double or generated; each at least 0, the total of a layer and step
///   below 2^47. The loads are read once for all plans, and not copied
/// @param placement `[plans * layers]` rows; the rows of plan p begin at p * layers
/// @param options the live ranks
/// @param[out] balancedness `[plans, layers]` double, in (0, 1]
/// @throws invalid_input for wrong shapes; for a placement that `validate` refuses; and for wrong
///   loads, naming layer, step and expert, in which case `balancedness` is unspecified
/// @complexity O(steps layers (experts + plans slots)); with the optimal split also that of
///   `minmax_lp::solve` for every step and plan, and of its constructor for every plan
/// @workspace for every 8 steps, 8 bytes per row of the placement and 64 bytes per layer; the
///   workspace of `validate`; and for each problem in flight, 132 bytes per expert (264 for loads
///   of 8 bytes), 32 bytes per slot, 2304 bytes and, for each plan, 256 bytes and 4 bytes per rank
///   (on a device only if this exceeds the shared memory of a block); with the optimal split,
///   48 bytes per step of every row, and the workspace of `minmax_lp` for all rows
/// @stream synchronizes once; with the optimal split a few times
/// @determinism the same bits under every policy: each quotient and each sum is rounded once, in
///   an order that depends only on the shapes
template <execution_policy P, class Loads, class Out>
void replay(P const& policy, Loads const& loads, placement_ref const& placement,
            replay_options const& options, Out&& balancedness) {
  detail::checked_call call("replay");
  auto const load = PLIMSOLL_LOADS(call, "replay", loads, "[steps, layers, experts]");
  auto const out = PLIMSOLL_OUTPUT(double, call, "replay", balancedness, "[plans, layers]");
  detail::expect_replay(call, load, placement, options, out);
  index_t const rows = placement.physical_to_logical.extent(0);
  if (rows == 0) {
    return;
  }

  auto const context = detail::resolve(policy);
  detail::run_planning(
      call, context, load.extent(1), out.extent(0) + detail::replay_tiles(load.extent(0)),
      [&](detail::problem_report* reports) {
        detail::enqueue_validate(context, placement, {.on = options.on}, reports);
        detail::enqueue_replay(context, load, placement, options.on.active, out, reports + rows);
      });
  if (options.split == split_rule::optimal) {  // the other replay has checked loads and placement
    detail::run_optimal_replay(call, context, load, placement, options.on.active, out);
  }
}

PLIMSOLL_EXPECT_ON(replay, (Loads const& loads, placement_ref const& placement), (loads, placement))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

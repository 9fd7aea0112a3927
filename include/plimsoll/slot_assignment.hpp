// SPDX-License-Identifier: Apache-2.0
/// @file
/// `assign_slots` divides the slots of each layer among the ranks.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/slot_assignment.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/slot_assignment_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Divides each layer's slots among the ranks evenly, both within the layer and over all
/// layers.
///
/// In every layer the numbers of slots of live ranks differ by at most one, and so do their totals
/// over the layers so far. The remainder after equal shares goes to the ranks with the lowest
/// totals; if too many ranks tie for it, `options.remainder` selects evenly spaced ones, which
/// spreads them over the nodes. This is algorithm 3 of CRAFT, applied to all copies of a layer
/// instead of the additional ones only. If the slots of all layers together are not a multiple of
/// the number of live ranks, the totals end up one apart.
///
/// @param layer_slots `[layers]` int32 or int64, at least 0 each, in the policy's memory
/// @param options ranks, live ranks, and the spread of the remainder
/// @param[out] rank_offsets `[layers, ranks + 1]` int32, as `place` takes it, or int64: first slot
///   of each rank, rising from 0 to the number of slots of the layer. The range of a dead rank is
///   empty
/// @throws invalid_input for shapes and options; for values, naming the layer, in which case
///   `rank_offsets` is unspecified
/// @complexity O(layers * ranks), the layers one after another
/// @workspace 9 bytes per rank, 64 bytes, and 4 bytes for each int64 element, from the policy
/// @stream synchronizes once
/// @determinism the same bits under every policy: integers only
template <execution_policy P, class Slots, class Offsets>
void assign_slots(P const& policy, Slots const& layer_slots, slot_assignment_options const& options,
                  Offsets&& rank_offsets) {
  detail::expect_slot_assignment_options("assign_slots", options);
  detail::checked_call call("assign_slots", {{"ranks", options.on.ranks}});
  auto const slots = PLIMSOLL_IDS(call, "assign_slots", layer_slots, "[layers]");
  auto const offsets =
      PLIMSOLL_OUTPUT_IDS(call, "assign_slots", rank_offsets, "[layers, ranks + 1]");

  auto const context = detail::resolve(policy);
  detail::int32_ids const in(context, slots);
  detail::int32_ids const out(context, offsets);
  detail::run_planning(call, context, 1, 1, [&](detail::problem_report* reports) {
    in.load();
    detail::enqueue_slot_assignment(context, in.view(), 1, options, out.view(), reports);
    out.store();
  });
}

PLIMSOLL_EXPECT_ON(assign_slots, (Other const& layer_slots), (layer_slots))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

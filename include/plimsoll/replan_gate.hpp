// SPDX-License-Identifier: Apache-2.0
/// @file
/// `decide_replan` tells whether a new plan is worth the move, and `replan` makes one and asks it.
#pragma once

#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/detail/planning/replan_gate.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replan_gate_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A new placement in memory of a policy, aligned to the plan in use, and the judgment of the move.
template <unqualified_policy P, class Context = kept_context<P>>
struct gated_plan : placement<P, Context> {
  replan_decision decision;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Tells whether moving to a new plan pays until the next decision: *keep*, *move*, or
/// *insufficient evidence*.
///
/// A plan balances the steps that it was made from better than those to come. So a candidate's gain
/// is judged on steps that its plans had not seen: the plan of the first half of the steps on the
/// second half, and the other way round. The gain of a step is the time of the busiest rank of
/// every layer under the plan in use, added up, less that under the candidate. Times are those of
/// `options.cost`, so that balance is worth nothing where tokens cost nothing (`moe_cost`).
///
/// The cost of moving is the duration of `plan_transfers`, as far as steps wait for it, and a stall
/// for each layer that changes. With the mean gain g of a step, its standard error s, and k =
/// `options.standard_errors`, the answer for a horizon of n steps is
///
/// - `keep` if nothing changes; if n (g + k s) is at most the cost, so that moving would not pay
///   even if the gain were that much larger; if perfect balance would not pay either; or if the
///   balancedness of the plan in use is enough
/// - `move` if g exceeds k s, and n g exceeds the cost
/// - `insufficient_evidence` otherwise, and with fewer steps than `least_steps`
///
/// Every layer is judged in the same way by its own gain and cost, for engines that move single
/// layers. Steps without load do not count.
///
/// Judge on the steps since the load last changed, such as those of the last decision: over a
/// longer history each half sees loads that are gone, and the plan in use seems good enough.
///
/// Rules of engines are special cases: a threshold on balancedness is `enough_balancedness` with a
/// cost of moving near 0 and 0 standard errors; an interval is `horizon`.
///
/// Source: this library.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; int32, uint32, int64, float,
///   double or generated; all steps of a layer together below 2^47. `load_window::steps` gives them
/// @param in_use the plan in use, in the policy's memory: as `validate` demands, dead ranks empty
/// @param candidates the plans to judge; without any, only the plan in use is judged
/// @param options the costs, the horizon and the evidence
/// @return the decision, the same on every rank that has the same loads
/// @throws invalid_input for shapes and options; for placements that `validate` refuses; for loads
///   and costs, naming layer, step and expert or rank
/// @complexity per plan and step: O(slots + ranks cost) per layer; `optimal`: one
///   `minmax_lp::solve`; and `plan_transfers` per candidate
/// @workspace 97 bytes per step and layer; `optimal`: 32 more, and as `minmax_lp`; as
///   `plan_transfers`
/// @stream synchronizes
/// @determinism the same bits under every policy, if a cost of your own has them
template <execution_policy P, class Loads, class Cost>
replan_decision decide_replan(P const& policy, Loads const& loads, placement_ref const& in_use,
                              std::vector<replan_candidate> const& candidates,
                              replan_options<Cost> const& options) {
  detail::checked_call call("decide_replan");
  auto const load = PLIMSOLL_LOADS(call, "decide_replan", loads, "[steps, layers, experts]");
  auto const context = detail::resolve(policy);
  return detail::expect_replan_gate(call, context, load, in_use, options).decide(candidates);
}

/// @brief Plans on recent steps and on each half of them, and asks `decide_replan` whether to move.
///
/// @param loads, in_use, options as for `decide_replan`; at least 2 steps
/// @param plan callable as plan(policy, history), which returns a `placement` for loads
///   `[steps, layers, experts]`, a `tensor_ref` or `generated` view of a part of `loads`, such as a
///   call of `place_by_flow`; of the shape, ranks and rank offsets of `in_use`. It is called for
///   each half, then for all steps; what it returns is aligned to `in_use`
/// @return the plan for all steps, aligned, and the decision about it
/// @throws invalid_input as `decide_replan` and `plan`
/// @complexity three plans, and as `align` and `decide_replan`
/// @workspace three plans, and as `align` and `decide_replan`
/// @stream synchronizes
/// @determinism as `decide_replan`, if `plan` has the same bits
template <execution_policy P, class Loads, class Cost, class Plan>
gated_plan<P> replan(P const& policy, Loads const& loads, placement_ref const& in_use,
                     Plan const& plan, replan_options<Cost> const& options) {
  detail::checked_call call("replan");
  auto const load = PLIMSOLL_LOADS(call, "replan", loads, "[steps, layers, experts]");
  index_t const steps = load.extent(0);
  detail::expect_between(call, "loads", 2, 0x7fffffff, steps, "steps");
  auto const context = detail::resolve(policy);
  auto const gate = detail::expect_replan_gate(call, context, load, in_use, options);
  alignment_options const labels{.on = options.on};
  auto const aligned = [&](detail::history_part const& part) -> placement<P> {
    placement<P> const made = plan(policy, detail::part_of(load, part));
    return detail::on_behalf_of(
        call, "align", {{"from.", "in_use."}, {"to.", "plan."}, {"as in from", "as in in_use"}},
        [&] { return align(policy, in_use, made.ref(), labels); });
  };
  placement<P> const of_first = aligned(gate.halves()[0]);
  placement<P> const of_second = aligned(gate.halves()[1]);
  gated_plan<P> result{aligned({0, steps}), {}};
  result.decision = gate.decide({{result.ref(), of_first.ref(), of_second.ref()}});
  return result;
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

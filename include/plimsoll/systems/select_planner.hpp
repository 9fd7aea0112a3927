// SPDX-License-Identifier: Apache-2.0
/// @file
/// `select_planner` plans with the planner whose plans last longest within a history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/detail/planning/select_planner.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/select_planner_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A caller's planner. `plan(policy, history)` returns a `placement` in memory of the policy for
/// loads `[steps, layers, experts]`, a `tensor_ref` or `generated` view of a part of the history.
template <class F>
struct planner_candidate {
  std::string name;
  F plan;
};

/// Makes a candidate for `select_planner`.
template <class F>
planner_candidate<F> candidate(std::string name, F plan) {
  return {std::move(name), std::move(plan)};
}

/// A placement in memory of a policy, and how its planner was chosen.
template <unqualified_policy P, class Context = kept_context<P>>
struct selected_plan : placement<P, Context> {
  using base = placement<P, Context>;
  /// Candidates in order: those of the options, then the caller's.
  std::vector<planner_report> candidates;
  /// Index of the chosen candidate.
  index_t chosen = 0;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Plans with each candidate on one half of a history, judges the plans on the other half,
/// and plans with the best candidate on all of it.
///
/// No planner is best for every model and workload, and the loads that a plan was made from do not
/// tell how long it lasts. Steps that it has not seen do.
///
/// Each candidate plans on the first half of the steps with load and is judged on the second, and
/// the other way round, with the middle step of an odd number in the second half. The balancedness
/// of a layer is the mean over its steps with load, under the split of the options. A layer without
/// load in one of the halves is left out of both, since nothing was seen of it. The candidate with
/// the largest mean over layers and halves, less `options.move_price` for every move from the plan
/// in use, is the best. The first candidate whose mean is below it by at most one standard error of
/// the difference is chosen: with `options.in_use`, another plan must be better by more than chance
/// to replace it.
///
/// Halves of 128 steps or more are judged in up to four blocks. After each, candidates that are
/// behind the best by more than four standard errors are dropped; their reports tell on how many
/// steps they were judged.
///
/// A candidate that throws `invalid_input`, or whose plan `validate` refuses, is reported and not
/// chosen. If no candidate can be judged, because the history has one step or the halves are too
/// small for all of them, the first candidate that can plan all of the history is chosen.
///
/// Source: this library; the rule of one standard error is that of Breiman et al. (1984).
///
/// @param loads `[steps, layers, experts]`, as for `place_by_flow`
/// @param slots number of slots of every layer, at least one per expert, at most 65535
/// @param options ranks with their slots, the split in use, the plan in use, and the candidates
/// @param more the caller's candidates, made by `candidate`
/// @return the placement, with the certificates of its planner; the reports of all candidates
/// @throws invalid_input for shapes and options; if no candidate can plan, with the error of the
///   first
/// @complexity for every candidate three plans, and O(experts + slots) for every step and layer,
///   with `split_rule::optimal` one `minmax_lp::solve`
/// @workspace that of the candidates; 16 bytes for every step and layer, `optimal`: 32 more, and
///   that of `minmax_lp`; 8 bytes per expert of every layer, and two plans of every candidate; with
///   `in_use` that of `align`
/// @stream synchronizes
/// @determinism the same bits under every policy, if the caller's candidates have them
template <execution_policy P, class Loads, class... Plan>
selected_plan<P> select_planner(P const& policy, Loads const& loads, index_t slots,
                                select_planner_options const& options,
                                planner_candidate<Plan> const&... more) {
  detail::checked_call call("select_planner");
  auto const load = PLIMSOLL_LOADS(call, "select_planner", loads, "[steps, layers, experts]");
  index_t const steps = load.extent(0);
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  detail::expect_select_planner(call, steps, layers, experts, slots, options);
  std::vector<detail::named_planner> const kinds = detail::candidates_of(options);
  auto const context = detail::resolve(policy);
  auto const plan_with = [&](std::size_t index, auto const& history) -> placement<P> {
    if (index < kinds.size()) {
      detail::named_planner const& one = kinds[index];
      if (one.is_in_use) {
        return copy_placement(policy, options.in_use.physical_to_logical,
                              options.in_use.replica_count, options.in_use.ranks,
                              options.in_use.rank_offsets);
      }
      if (detail::is_flow(one.kind)) {
        split_rule const split =
            one.kind == planner::flow_even ? split_rule::even : split_rule::optimal;
        return place_by_flow(policy, history, slots,
                             {.on = options.on,
                              .rank_offsets = options.rank_offsets,
                              .split = split,
                              .load_exponent = one.load_exponent});
      }
      array<double, P, 2> sums(policy, layers, experts);
      detail::enqueue_sum_steps(context, history, sums.view());
      return eplb(policy, sums, slots, detail::eplb_options_of(one.kind, options));
    }
    placement<P> result;
    std::size_t at = kinds.size();
    (void)((at++ == index && (result = more.plan(policy, history), true)) || ...);
    return result;
  };

  std::vector<std::string> names;
  (names.push_back(more.name), ...);  // nvcc 13.0 does not expand a pack in a braced list here
  auto all = detail::candidates_named(kinds, names);
  auto const sound_plan = [&](std::size_t index, auto const& history) {
    detail::made_plan<placement<P>> made{plan_with(index, history)};
    detail::expect_planned(call, context, made.plan.ref(), layers, experts, slots, options);
    validate(policy, made.plan.ref(), {.on = options.on});
    bool const is_in_use = index < kinds.size() && kinds[index].is_in_use;
    if (options.in_use.physical_to_logical.data != nullptr && !is_in_use) {
      auto const map = made.plan.physical_to_logical.view();
      auto const aligned = detail::run_align(
          call, context,
          detail::expect_migration(call, options.in_use, made.plan.ref(), options.on),
          relabeling::per_layer, map);
      for (slot_changes const& layer : aligned.layers) {
        made.moves.push_back(layer.moves);
      }
    }
    return made;
  };
  detail::step_judge const judge(call, context,
                                 rank_set{.ranks = options.on.ranks, .active = options.on.active},
                                 options.split);
  detail::judge_halves<placement<P>>(judge, detail::read_loaded_steps(call, context, {}, load),
                                     load, options.move_price, sound_plan, all);
  return detail::plan_with_chosen<selected_plan<P>>(call, all, [&](std::size_t i) {
    return std::move(sound_plan(i, detail::part_of(load, {0, steps})).plan);
  });
}

PLIMSOLL_EXPECT_ON(select_planner, (Loads const& loads, index_t slots), (loads, slots))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Moving from the placement in use to another one at little cost: `align` renames ranks so that
/// few experts move, `plan_within` finds the best plan within a budget of moves, and
/// `plan_transfers` lists the weights to transfer, in rounds.
///
/// A *move* is an expert that arrives on a rank which did not hold it. A rank that holds the expert
/// already copies it locally.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/planning/layer_planner.hpp>
#include <plimsoll/detail/planning/plan_within.hpp>
#include <plimsoll/detail/planning/transfers.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// A placement in memory of a policy, and how `align` made it. It has no certificates of peaks.
template <unqualified_policy P, class Context = kept_context<P>>
struct aligned_plan : placement<P, Context> {
  alignment_report alignment;
};

/// A placement in memory of a policy, and what its layers gain and move. Its certificates are those
/// of the imbalance in the reports.
template <unqualified_policy P, class Context = kept_context<P>>
struct migration_plan : placement<P, Context> {
  std::vector<migration_report> reports;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Returns the balancedness that a move must gain to pay for itself until the next decision,
/// for `migration_options::move_price` and `select_planner_options::move_price`.
///
/// A layer whose balancedness rises by g takes at least g * layer_seconds less in every step. A
/// move that loses expert_bytes * seconds_per_byte seconds pays if the steps save as much.
///
/// @return the price, at most 1, which no move gains
/// @throws invalid_input for values that are not above 0
inline double price_of_move(move_cost const& of) {
  detail::expect_move_cost("price_of_move", of);
  double const lost = static_cast<double>(of.expert_bytes) * of.seconds_per_byte;
  double const price = lost / (of.layer_seconds * static_cast<double>(of.steps));
  return price < 1 ? price : 1.0;
}

/// @brief Counts the slots that change from one placement to another.
///
/// @param from the placement in use, in the policy's memory; experts may be missing, and dead ranks
///   may hold some, which nobody can read
/// @param to the new placement, of the same shape, with the same ranks and rank offsets; slots of
///   dead ranks are empty or as in `from`
/// @param options liveness of the ranks; the rest is not read
/// @return per layer: moves and local copies
/// @throws invalid_input for shapes; for values, naming layer and slot, rank or expert
/// @complexity O(slots log slots) per layer
/// @workspace 52 bytes per slot and 8 per expert for each problem in flight; 48 bytes per layer
/// @stream synchronizes once
/// @determinism integers only: the same under every policy
template <execution_policy P>
std::vector<slot_changes> count_changes(P const& policy, placement_ref const& from,
                                        placement_ref const& to,
                                        alignment_options const& options = {}) {
  constexpr char const* name = "count_changes";
  detail::migration_pair const pair = detail::expect_alignment(name, from, to, options);
  return detail::run_count_changes(name, detail::resolve(policy), pair);
}

PLIMSOLL_EXPECT_ON(count_changes, (placement_ref const& from, placement_ref const& to), (from, to))

/// @brief Lists the layers in which at least one slot holds another expert.
///
/// @param from,to placements of the same shape; only their maps are read
/// @return the layers, rising
/// @throws invalid_input for shapes
/// @complexity O(slots) per layer
/// @workspace 8 bytes per layer
/// @stream synchronizes once
/// @determinism integers only: the same under every policy
template <execution_policy P>
std::vector<index_t> changed_layers(P const& policy, placement_ref const& from,
                                    placement_ref const& to) {
  constexpr char const* name = "changed_layers";
  detail::migration_pair const pair = detail::expect_migration(name, from, to, {});
  return detail::run_changed_layers(detail::resolve(policy), pair);
}

/// @brief Gives a new placement the rank labels and slots with which the fewest experts move from
/// the placement in use. Its balance does not change.
///
/// Ranks of a new placement are interchangeable if they have equal slot counts, speeds and
/// liveness; so are nodes with such ranks, whose ranks stay together. The labels are an optimal
/// assignment: first the fewest experts arrive from another rank, then, among these, the fewest
/// slots change by copies within a rank. With nodes, the cost of a pair of nodes is the optimal
/// assignment of its ranks. Then the slots of every rank are exchanged, so that an expert that
/// stays keeps its slot; other experts fill the other slots in rising order of slots.
///
/// Source: the assignment of new ranks to old ones is what DeepSeek's maintainers advise (EPLB
/// issue 25) and FlashLB does; keeping slots within a rank is vLLM's `preserve_intragpu_slots`.
///
/// @param from the placement in use, in the policy's memory; experts may be missing, and dead ranks
///   may hold some, which nobody can read
/// @param to the new placement, of the same shape, with the same ranks and rank offsets
/// @param options nodes, liveness and speeds of the ranks, and which labels are exchanged
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64: `to` with other labels; its
///   `replica_count` is that of `to`. May be the array of `to` itself
/// @return certificates of the assignments, and per layer what still changes
/// @throws invalid_input for shapes; for values, naming layer and slot, rank or expert; the output
///   is then unspecified
/// @complexity O(slots (log slots + copies of an expert) + ranks^3 / nodes) per layer at worst;
///   about ranks^2 instead of the last if most experts of a rank move together. With all layers in
///   one relabeling the last is only once
/// @workspace per relabeling 8 ranks^2 + 16 nodes^2 + 4 ranks nodes bytes; 52 bytes per slot, 8 per
///   expert and 32 per rank for each problem in flight; 48 bytes per layer; 4 bytes for each int64
///   element
/// @stream synchronizes
/// @determinism integers only: the same bits under every policy; ties go to the lowest rank and
///   slot
template <execution_policy P, class Placement>
alignment_report align(P const& policy, placement_ref const& from, placement_ref const& to,
                       alignment_options const& options, Placement&& physical_to_logical) {
  detail::migration_pair const pair = detail::expect_alignment("align", from, to, options);
  detail::checked_call call("align", {{"layers", pair.layers()}, {"slots", pair.slots()}});
  auto const map = PLIMSOLL_OUTPUT_IDS(call, "align", physical_to_logical, "[layers, slots]");
  auto const context = detail::resolve(policy);
  detail::int32_ids const slots(context, map);
  alignment_report report = detail::run_align(call, context, pair, options.relabel, slots.view());
  slots.store();
  return report;
}

/// @brief Aligns as the call with an output array, and returns the placement in memory of the
/// policy.
///
/// @return `to` with other labels, a copy of its counts and `rank_offsets`, and the report
template <execution_policy P>
aligned_plan<P> align(P const& policy, placement_ref const& from, placement_ref const& to,
                      alignment_options const& options = {}) {
  detail::migration_pair const pair = detail::expect_alignment("align", from, to, options);
  detail::expect_elements("align", "to.replica_count", to.replica_count);
  aligned_plan<P> result{detail::allocate_placement(policy, pair.layers(), pair.experts(),
                                                    pair.slots(), to.ranks, to.rank_offsets),
                         {}};
  detail::copy_ids(detail::resolve(policy), to.replica_count, result.replica_count.view());
  result.alignment = align(policy, from, to, options, result.physical_to_logical);
  return result;
}

PLIMSOLL_EXPECT_ON(align, (placement_ref const& from, placement_ref const& to), (from, to))

/// @brief Finds the plan that balances recorded steps best among those that a limited number of
/// moves reaches from the placement in use.
///
/// Maximizes the mean balancedness of single steps, under the split of `options`. (The
/// sum of the steps can be balanced with few moves, while every step stays unbalanced; and what an
/// optimal split balances in every step needs no move at all.) The plans compared in each layer
/// are, unless `options.candidates` names fewer:
///
/// - the placement in use
/// - seven plans of `place_by_flow`, which keep the ranks and copies in use by bonuses of 0 to
///   3.2, aligned; not with node lists or copies that must be on different nodes
/// - plans of a path that relieves the most loaded rank of the summed steps by one or two moves at
///   a time: a replica of it and one of another rank are swapped, or a slot with a superfluous
///   replica gets a copy of another expert. No slot becomes free. With one step all plans of the
///   path, with several those after 1, 2, 4, 8, 16 and 32 moves
/// - the new placement `to`, aligned: the plan to get to, if the budget allows and nothing is
///   better
///
/// Each layer gets one of them; a limit on all layers is divided by multiple-choice knapsack, so
/// that the sum of the gains, less the price of the moves, is largest. The fewest moves break ties.
///
/// *Validation.* A plan balances the steps that it was made from better than those to come, and
/// with a stationary load each move only follows noise. From two steps with load on, therefore,
/// plans of every kind (a bonus, a number of moves) are made from the first half of the steps and
/// judged on the second, and the other way round. A layer's gain of a kind is the mean of what it
/// gained there and what the kind gained in the mean over the layers, at most what its plan gains
/// on all steps. A kind is left out unless this mean exceeds its standard error, and nothing moves
/// unless that of the plan without bonus does in either half. `to` is judged on all steps, less
/// what the plan without bonus loses on unseen ones.
///
/// Without a price, a larger budget never gives a smaller sum of `expected_gain`. A budget of 0
/// returns the placement in use. Layers that do not change keep what dead ranks hold. That no other
/// plan within the budget is better is not proven; the bound holds for all plans with these slots,
/// whatever they move.
///
/// Source: this library.
///
/// @param loads `[steps, layers, experts]`, or `[layers, experts]` for one step; as for
///   `replicate`, all steps of a layer together below 2^47. Steps in which a layer has no load do
///   not count for it
/// @param from the placement in use, in the policy's memory: a live rank holds every expert
/// @param to the new placement, such as a planner's for these loads, of the same shape, with the
///   same ranks and rank offsets
/// @param where ranks and constraints, as for `refine`; with 0 ranks, those of `from`. The rank
///   offsets are those of `from`
/// @param options the budget, the split, and whether plans are validated
/// @param[out] physical_to_logical `[layers, slots]` int32 or int64; may be the array of `from`
/// @param[out] replica_count `[layers, experts]` int32 or int64: slots of live ranks
/// @return per layer: certificate of the mean imbalance, that of `from`, gains, and what changes
/// @throws invalid_input for shapes and options; for values, naming layer and slot, rank, or step
///   and expert; the outputs are then unspecified
/// @complexity for each half of the steps and for all: that of `place_by_flow` and `align` for
///   each bonus; O(slots^2) for each plan of the path. To judge, O(slots) per plan and step, with
///   `split_rule::optimal` one `minmax_lp::solve`; for a limit on all layers that of `knapsack`
/// @workspace 8 bytes per load; as `place_by_flow` and `align`; for every layer 48 bytes per slot;
///   one map for each plan compared, and 16 bytes (optimal: 48) for each step of it
/// @stream synchronizes
/// @determinism the same bits under every policy; ties go to the lowest slot and expert
template <execution_policy P, view_of_rank<3> Loads, class Placement, class Counts>
std::vector<migration_report> plan_within(P const& policy, Loads const& loads,
                                          placement_ref const& from, placement_ref const& to,
                                          placement_options const& where,
                                          migration_options const& options,
                                          Placement&& physical_to_logical, Counts&& replica_count) {
  detail::checked_call call("plan_within");
  auto const load = PLIMSOLL_LOADS(call, "plan_within", loads, "[steps, layers, experts]");
  detail::expect_between(call, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::migration_pair const pair =
      detail::expect_plan_within(call, load.extent(1), load.extent(2), from, to, where, options);
  call.know({"slots", pair.slots()});
  auto const map = PLIMSOLL_OUTPUT_IDS(call, "plan_within", physical_to_logical, "[layers, slots]");
  auto const counts = PLIMSOLL_OUTPUT_IDS(call, "plan_within", replica_count, "[layers, experts]");
  auto const context = detail::resolve(policy);
  detail::int32_ids const slots(context, map);
  detail::int32_ids const copies(context, counts);
  std::vector<migration_report> reports = detail::run_plan_within(
      call, context, load, pair, where, options, slots.view(), copies.view());
  slots.store();
  copies.store();
  return reports;
}

/// @overload For one step: loads `[layers, experts]`.
template <execution_policy P, class Loads, class Placement, class Counts>
std::vector<migration_report> plan_within(P const& policy, Loads const& loads,
                                          placement_ref const& from, placement_ref const& to,
                                          placement_options const& where,
                                          migration_options const& options,
                                          Placement&& physical_to_logical, Counts&& replica_count) {
  auto const load = PLIMSOLL_LOADS(unchecked, "plan_within", loads, "[layers, experts]");
  return plan_within(policy, detail::as_tensor(load), from, to, where, options, physical_to_logical,
                     replica_count);
}

/// @brief Plans as the call with output arrays, and returns the placement in memory of the policy.
///
/// @return the placement with a copy of the `rank_offsets` of `from`, and the reports
template <execution_policy P, view_of_rank<3> Loads>
migration_plan<P> plan_within(P const& policy, Loads const& loads, placement_ref const& from,
                              placement_ref const& to, placement_options const& where = {},
                              migration_options const& options = {}) {
  detail::checked_call call("plan_within");
  auto const load = PLIMSOLL_LOADS(call, "plan_within", loads, "[steps, layers, experts]");
  detail::migration_pair const pair =
      detail::expect_plan_within(call, load.extent(1), load.extent(2), from, to, where, options);
  migration_plan<P> result{detail::allocate_placement(policy, pair.layers(), pair.experts(),
                                                      pair.slots(), from.ranks, from.rank_offsets),
                           {}};
  result.reports = plan_within(policy, load, from, to, where, options, result.physical_to_logical,
                               result.replica_count);
  for (migration_report const& report : result.reports) {
    result.certificates.push_back(report.imbalance);
  }
  return result;
}

/// @overload For one step: loads `[layers, experts]`.
template <execution_policy P, class Loads>
migration_plan<P> plan_within(P const& policy, Loads const& loads, placement_ref const& from,
                              placement_ref const& to, placement_options const& where = {},
                              migration_options const& options = {}) {
  auto const load = PLIMSOLL_LOADS(unchecked, "plan_within", loads, "[layers, experts]");
  return plan_within(policy, detail::as_tensor(load), from, to, where, options);
}

PLIMSOLL_EXPECT_ON(plan_within,
                   (Loads const& loads, placement_ref const& from, placement_ref const& to),
                   (loads, from, to), migration_options const&)

/// @brief Plans one layer after the other as `plan_within`, without allocating: for the thread of
/// an engine that plans while the GPU computes.
///
/// Every call has the budget of the options; a budget for all layers needs `plan_within`, which
/// sees them together. `plan_within` also averages gains on unseen steps over layers; one layer
/// alone proves less, so that noise moves more. With `migration_candidates::one_bonus` a call
/// compares one plan with the placement in use.
///
/// The object keeps the memory of its temporaries. The constructor rehearses a call, so that calls
/// with at least two steps allocate nothing. With one step the number of plans compared depends on
/// the loads, and memory grows to the most that any call needed. One object serves one thread at a
/// time.
///
/// Source: this library.
class layer_planner {
 public:
  /// @param policy `seq`, or `seq(resource)`: where the object takes its memory from
  /// @param layer the placement in use of one layer, such as `placement.of_layer(0)`, in host
  ///   memory; its numbers of experts, slots and ranks are those of all calls
  /// @param steps most steps of a call, at least 1
  /// @param where ranks and constraints of one layer, as for `plan_within`; their arrays must
  ///   outlive the object, and each call reads them anew
  /// @param options the budget, the split, and the candidates
  /// @throws invalid_input as `plan_within`
  /// @workspace keeps what `plan_within` takes for one layer, from the policy
  template <int = 0>  // compiled only where an object is made
  layer_planner(seq_policy const& policy, placement_ref const& layer, index_t steps,
                placement_options const& where = {}, migration_options const& options = {})
      : kept_("layer_planner", layer, steps, where, options, policy.memory) {}
  PLIMSOLL_EXPECT_ON_OF_OBJECT(layer_planner,
                               (seq_policy const& policy, placement_ref const& layer,
                                index_t steps),
                               (policy, layer, steps))

  /// @brief Plans a layer.
  /// @param loads `[steps, experts]`, as for `plan_within`, with at most as many steps as the
  ///   constructor was given
  /// @param from the placement in use of one layer
  /// @param[out] physical_to_logical `[slots]` int32 or int64
  /// @param[out] replica_count `[experts]` int32 or int64: slots of live ranks
  /// @return as `plan_within`
  /// @throws invalid_input as `plan_within`; the layer is 0 in its message
  /// @complexity as `plan_within`
  /// @workspace none
  /// @determinism the same bits as `plan_within` of one layer
  template <class Loads, class Map, class Counts>
  migration_report plan(Loads const& loads, placement_ref const& from, Map&& physical_to_logical,
                        Counts&& replica_count) {
    return plan_layer(loads, from, nullptr, physical_to_logical, replica_count);
  }
  /// @overload With a new placement `to` of the layer, which is one of the candidates `all`.
  template <class Loads, class Map, class Counts>
  migration_report plan(Loads const& loads, placement_ref const& from, placement_ref const& to,
                        Map&& physical_to_logical, Counts&& replica_count) {
    return plan_layer(loads, from, &to, physical_to_logical, replica_count);
  }

 private:
  template <class Loads, class Map, class Counts>
  migration_report plan_layer(Loads const& loads, placement_ref const& from,
                              placement_ref const* to, Map& physical_to_logical,
                              Counts& replica_count) {
    auto const load = PLIMSOLL_LOADS(unchecked, "layer_planner::plan", loads, "[steps, experts]");
    auto const map =
        PLIMSOLL_OUTPUT_IDS(unchecked, "layer_planner::plan", physical_to_logical, "[slots]");
    auto const counts =
        PLIMSOLL_OUTPUT_IDS(unchecked, "layer_planner::plan", replica_count, "[experts]");
    return kept_.plan("layer_planner::plan", load, from, to, map, counts);
  }

  detail::kept_layer_planner<> kept_;
};

/// @brief Lists the weights that must be transferred from one placement to another, in rounds.
///
/// Every slot that gets another expert is one transfer. An expert that arrives on a rank in several
/// slots is sent once and copied within the rank in a round after all others. The source is the
/// nearest live rank that holds the expert: the rank itself, a rank of the node, then any other
/// rank. Among the nearest, the transfers are divided so that the most that one rank sends is
/// smallest. Experts that no live rank holds come from the host.
///
/// The transfers from one rank to another are one flow, and all in one round. Rounds color the
/// flows: with `send_and_receive` in as few rounds as the largest degree (Kőnig), with `one_peer`
/// in at most one more (Vizing; Misra and Gries). A layer's rounds follow one another; layers are
/// independent. Local copies and transfers from the host belong to no flow, and are in the first
/// round from which no other rank reads their destination slot any more.
///
/// The transfers of a round run at the same time. A slot whose old expert is read in that round or
/// later gets its new one by way of a staging slot, at the end of the last round that reads it.
/// Thus every transfer reads a slot that holds its expert, and after every round each expert that
/// was readable is so still, in a slot or in a staging slot. `validate` checks that.
///
/// Source: the rule of one peer is vLLM's (pull request 52641).
///
/// @param from the placement in use, in the policy's memory; experts may be missing, and dead ranks
///   may hold some, which nobody can read
/// @param to the new placement, such as `align` returns, of the same shape, with the same ranks and
///   rank offsets; a live rank holds every expert
/// @param options nodes and liveness of the ranks, the rule of the rounds, bytes and bandwidths
/// @return the transfers of all layers, rounds, bytes and an estimate of the duration
/// @throws invalid_input for shapes and options; for values, naming layer and slot, rank or expert
/// @complexity O(slots (log slots + rounds)) per layer; for m transfers between n ranks, O(m^2) to
///   divide the sources at worst, and usually O(m n) to color the flows
/// @workspace 48 bytes per slot of every layer, and 104 per layer; for each problem in flight 92
///   bytes per slot, 16 per expert, 40 per rank, and 2 ranks^2, with `send_and_receive` 4 ranks^2
/// @stream synchronizes
/// @determinism integers only: the same on every rank and under every policy
template <execution_policy P>
transfer_plan plan_transfers(P const& policy, placement_ref const& from, placement_ref const& to,
                             transfer_options const& options = {}) {
  constexpr char const* name = "plan_transfers";
  detail::migration_pair const pair = detail::expect_transfers(name, from, to, options);
  return detail::run_transfers(name, detail::resolve(policy), pair, options);
}

PLIMSOLL_EXPECT_ON(plan_transfers, (placement_ref const& from, placement_ref const& to), (from, to))

/// @brief Checks a list of transfers and throws for its first fault.
///
/// Plays the rounds: in each, every source slot holds the expert when it is read, no transfer
/// writes to a slot that another one reads, the rule of the rounds holds, a staging slot receives
/// one transfer at a time, and no expert that was readable becomes unreadable; after the last round
/// the slots hold the experts of `to`. Kinds, bytes and counts of rounds, moves and local copies
/// are checked, too. Whether sources are the nearest, rounds are few and `seconds` is right is not.
///
/// @param from,to the placements for which the transfers were made, in the policy's memory
/// @param plan the transfers
/// @param options as for `plan_transfers`; bandwidths are not read
/// @throws invalid_input for shapes; for the first fault, naming layer, round and transfer
/// @complexity O((transfers + layers slots) log slots), on the host
/// @workspace none, or a copy of each map whose rows are not contiguous
/// @stream synchronizes
/// @determinism the same fault under every policy
template <execution_policy P>
void validate(P const& policy, placement_ref const& from, placement_ref const& to,
              transfer_plan const& plan, transfer_options const& options = {}) {
  constexpr char const* name = "validate";
  detail::migration_pair const pair = detail::expect_transfers(name, from, to, options);
  detail::run_validate_transfers(name, detail::resolve(policy), pair, plan, options);
}

PLIMSOLL_EXPECT_ON(validate,
                   (placement_ref const& from, placement_ref const& to, transfer_plan const& plan),
                   (from, to, plan))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

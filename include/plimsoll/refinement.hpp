// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes a placement better: swaps of replicas, and copies moved from expert to expert.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/refinement.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// When `refine` stops.
struct refinement_options {
  /// Good enough: a peak within this part above the lower bound, 0 to 1.
  double tolerance = 1e-3;
  /// Plans with other replica counts to try, per layer and node with lists of its own; 0: the
  /// counts stay.
  std::int64_t trials = 256;
  /// Randomly changed plans to try once no swap helps, per layer and node with lists of its own;
  /// none in layers of more than 64 slots, and at most 2^19 / slots^2. 0: none.
  std::int64_t perturbations = 1024;
};

namespace detail {

inline void expect_refinable(std::string_view function, refinement_options const& options,
                             std::string const& argument = "options") {
  if (!(options.tolerance >= 0 && options.tolerance <= 1)) {
    fail(function, text(argument, ".tolerance"), "0 to 1", text(options.tolerance));
  }
  if (options.trials < 0) {
    fail(function, text(argument, ".trials"), "at least 0", text(options.trials));
  }
  if (options.perturbations < 0) {
    fail(function, text(argument, ".perturbations"), "at least 0", text(options.perturbations));
  }
}

template <class Context, class Loads>
void enqueue_refine(Context const& context, Loads const& loads, placement_options const& where,
                    refinement_options const& options, matrix_ref<std::int32_t> physical_to_logical,
                    matrix_ref<std::int32_t> replica_count, problem_report* reports) {
  launch(
      context, loads.extent(0),
      refinement_body<Loads>{loads, topology_of(where, physical_to_logical.extent(1)),
                             rule_of(where), options.tolerance, options.trials,
                             options.perturbations, physical_to_logical, replica_count, reports});
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Improves a placement in place until its peak is close to what any plan can reach; never
/// makes it worse.
///
/// First it swaps replicas of the most loaded rank with lighter ones, or with free slots, of other
/// ranks, each time the pair whose worse rank ends lightest, as long as that helps; and does the
/// same from the greedy placement of the same copies, if that is better. Then it tries plans with
/// one copy moved from one expert to another (or made for a free slot): greedy placement and swaps
/// again; it takes the first that is better and goes on from there. Choosing counts and ranks
/// jointly pays where ranks have few slots: a replica too heavy to have company wastes what is left
/// of its rank. At last, in layers of at most 64 slots, it changes a few slots at random and swaps
/// again (iterated local search): no swap of two replicas makes up for an exchange of several, and
/// where slots are few one replica is much of a rank. No slot becomes free. Node lists and a
/// required rule are kept; where a rule is preferred, no more replicas meet than before.
///
/// @param loads `[layers, experts]`, as for `replicate`
/// @param where what `place` was told
/// @param options when to stop
/// @param[in,out] physical_to_logical `[layers, slots]` int32, as `place` makes it
/// @param[out] replica_count `[layers, experts]` int32, the copies of the result
/// @return per layer: the load (over speed) of the most loaded rank; a bound for all placements,
///   with any counts where trials > 0: the mean over ranks with slots, and the lightest heaviest
///   replica that the slots allow; with these counts where trials = 0: that of `place`; status
///   optimal, within_tolerance, work_limit where all trials were used, or feasible where no swap,
///   no moved copy and no perturbation tried helps; work = swaps made and plans tried
/// @throws invalid_input for shapes and options; for values, naming layer and expert, rank, node or
///   slot: also for a map that is not legal; the outputs are then unspecified
/// @complexity O(slots) per swap and replica of the most loaded rank, and as `place` for each plan
///   tried; swaps are not limited, but no plan comes twice before perturbations, which take
///   O(2^19) steps and the swaps' in all
/// @workspace 36 bytes per expert, 16 per slot and 24 per rank for each problem in flight (more for
///   a rule, as `place`), and 64 bytes per layer, from the policy
/// @stream synchronises once
/// @determinism the same bits under every policy; ties go to the lowest slot and expert
template <execution_policy P, load_matrix_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 2> Counts>
std::vector<certificate> refine(P const& policy, Loads const& loads, placement_options const& where,
                                refinement_options const& options, Placement&& physical_to_logical,
                                Counts&& replica_count) {
  constexpr char const* name = "refine";
  auto const load = detail::argument<2>(name, "loads", loads);
  matrix_ref<std::int32_t> const placement =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const counts = detail::argument<2>(name, "replica_count", replica_count);
  index_t const layers = load.extent(0);
  detail::expect_placeable(name, layers, load.extent(1), placement.extent(1), where, "where");
  detail::expect_refinable(name, options);
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", load.extent(1), counts.extent(1), "experts");

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, layers);
  detail::enqueue_refine(context, load, where, options, placement, counts, reports.data());
  return detail::collect(name, reports);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace plimsoll

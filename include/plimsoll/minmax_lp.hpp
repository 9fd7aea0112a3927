// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits each expert's load over its replicas so that the most loaded rank carries as little as
/// possible.
#pragma once

#include <optional>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>  // read(policy, certificates())
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Splits each expert's load over its replicas with the smallest possible peak, to the
/// tolerance of the options, and proves it.
///
/// The load of an expert may be split among the ranks that hold a copy, in any proportion. The peak
/// is the largest (base_load + load) / speed of a rank. For any set of ranks, the load that only
/// they can take, divided by the sum of their speeds, is a lower bound for every peak; the largest
/// of these bounds equals the smallest peak (max-flow min-cut). Up to four water-filling sweeps, in
/// which each expert in turn levels its ranks, are often within the tolerance. Otherwise Dinic's
/// blocking flows move load along augmenting paths, from ranks above the bound to ranks below it,
/// until peak and bound are equal.
///
/// LPLB (DeepSeek, SGLang) solves the same linear program by five steps of an interior-point method
/// in single precision, for up to about 64 ranks and 64 redundant experts. This solver takes up to
/// `rank_limit` ranks and `expert_limit` experts with any number of replicas, and its result is
/// optimal with a tolerance of 0.
///
/// The constructor copies the placement, allocates and synchronizes; `solve` and `update` do not
/// allocate or synchronize, so they can be captured in a CUDA graph. One object solves one step at
/// a time and keeps the certificates of the last one.
///
/// Loads are stored in units of a power of two: a layer's load is less than 2^52 units, so that
/// their sums are exact in double. Splits are optimal among splits in whole units. Integer loads
/// are exact; floating-point loads and base loads are rounded down to units, so that the peak of a
/// split may exceed the certificate's value by one unit for the base load and one for each expert
/// of a rank. If speeds differ, bounds use speeds rounded up to a multiple of a power of two that
/// is at most 2^-44 of the fastest speed, so that a bound is never too high.
template <unqualified_policy P>
class minmax_lp {
 public:
  /// @brief Prepares to solve steps of one placement.
  /// @param placement slots and ranks of every layer, in the policy's memory; experts without a
  ///   slot must have no load; of `replica_count` only the shape is read
  /// @param options ranks, and when to stop
  /// @throws invalid_input for shapes and options; for values, naming the layer and the rank or
  ///   slot
  /// @complexity O(slots + experts colors) per layer. Experts of one color have no rank in common;
  ///   there are at most as many colors as experts on several ranks
  /// @workspace from the policy, for every layer: 24 bytes per slot, 20 per rank, 4 per expert and
  ///   12 per expert that may have several replicas, which are at most half of the slots; 160 more;
  ///   and the scratch of a call if it does not fit in shared memory
  /// @stream synchronizes
  minmax_lp(P const& policy, placement_ref const& placement, minmax_lp_options const& options = {})
      : pipeline_(detail::resolve(policy), placement, options) {
    pipeline_.allocate_results();
    pipeline_.allocate_scratch();
    detail::synchronize(pipeline_.context);
  }
  PLIMSOLL_EXPECT_ON_OF_OBJECT(minmax_lp, (P const& policy, placement_ref const& placement),
                               (policy, placement))

  /// @brief Takes a new placement for layers from `first_layer` on. The object and its memory stay,
  /// so that a CUDA graph captured before splits by the new placement when it is replayed.
  /// @param first_layer the layer that gets row 0 of the placement
  /// @param placement `[layers, slots]`, at most as many slots as the object has room for, in the
  ///   policy's memory: the enqueued kernel copies it, so that it may change after that;
  ///   `replica_count` may be empty
  /// @param on liveness and speeds of the ranks of these layers; without it they stay
  /// @throws invalid_input for shapes. Values are checked where they are read: a layer whose
  ///   placement or ranks are refused stays as it is, and `check` throws
  /// @complexity O(slots + experts colors) per layer
  /// @workspace none
  /// @stream enqueues one kernel; neither allocates nor synchronizes, so that it can be captured
  /// @determinism the same bits under every policy
  void update(index_t first_layer, placement_ref const& placement,
              std::optional<rank_set> const& on = {}) {
    auto const ranks = detail::expect_placement_update(
        "minmax_lp::update", pipeline_.graph, pipeline_.layers, first_layer, placement, on);
    pipeline_.enqueue_update(first_layer, placement, ranks ? &*ranks : nullptr,
                             pipeline_.memory.data());
  }

  /// @brief Throws unless a placement is the one in use: the last that was given for each layer and
  /// not refused.
  /// @param placement all layers, in the policy's memory
  /// @throws invalid_input for shapes; naming the first layer and slot, or rank, that differ
  /// @stream synchronizes
  void expect_current(placement_ref const& placement) const {
    pipeline_.expect_current("minmax_lp::expect_current", placement);
  }

  /// @brief Splits the loads of one step, and writes `certificates`.
  /// @param loads `[layers, experts]`, in the policy's memory; int32, uint32, int64, float, double
  ///   or generated; each at least 0, the total of a layer (with its base load) below 2^47
  /// @param inputs the load already on each rank
  /// @param[out] split `[layers, slots]` double, with as many slots as the object has room for: the
  ///   load of every slot, in the unit of the loads; 0 past the last slot of the placement.
  ///   Copies on one rank share evenly, and the first takes the remainder; the slots of an expert
  ///   add up to its load, exactly in units
  /// @param[out] outputs the bottleneck ranks
  /// @throws invalid_input for shapes; `check` throws for values
  /// @complexity O(copies) per sweep and O(copies) per augmenting path and layer
  /// @workspace none
  /// @stream enqueues one kernel, does not synchronize
  /// @determinism the same bits under every policy
  template <class Loads, class Split>
  void solve(Loads const& loads, minmax_lp_inputs const& inputs, Split&& split,
             minmax_lp_outputs const& outputs = {}) {
    detail::checked_call call("minmax_lp::solve", {{"layers", pipeline_.layers},
                                                   {"experts", pipeline_.graph.experts},
                                                   {"slots", pipeline_.graph.slots},
                                                   {"ranks", pipeline_.graph.ranks}});
    auto const load = PLIMSOLL_LOADS(call, "minmax_lp::solve", loads, "[layers, experts]");
    matrix_ref<double> const parts =
        PLIMSOLL_OUTPUT(double, call, "minmax_lp::solve", split, "[layers, slots]");
    call.expect_given("inputs.base_load", inputs.base_load, "[layers, ranks]");
    call.expect_given("outputs.bottleneck", outputs.bottleneck, "[layers, ranks]");
    pipeline_.enqueue_solve(load, inputs, parts, outputs);
  }
  /// @brief Splits the loads of one step without optional inputs and outputs.
  template <class Loads, class Split>
  void solve(Loads const& loads, Split&& split) {
    solve(loads, minmax_lp_inputs{}, std::forward<Split>(split));
  }

  /// Returns the results of the last `solve`, `[layers]`, in the policy's memory. value is the
  /// peak, rounded up. lower_bound holds for the peak of every split, fractions allowed, and is
  /// rounded down. work is the number of sweeps and augmenting paths, at most `max_iterations`. The
  /// status is one of
  /// - optimal: no rank carries a whole unit more than the bound times its speed (with the
  ///   lexicographic objective, each rank within the bound of its own level);
  /// - within_tolerance;
  /// - iteration_limit: the split is complete, but the objective was not reached;
  /// - infeasible: no split exists, for the reason in `faults`. The split is 0, value and
  ///   lower_bound are infinity, and work is 0.
  [[nodiscard]] vector_ref<certificate const> certificates() const {
    return pipeline_.certificates_view();
  }
  /// Returns what the last `solve` refused, `[layers]`, in the policy's memory: none, or why the
  /// layer could not be split, which `check` throws.
  [[nodiscard]] vector_ref<fault const> faults() const { return pipeline_.faults_view(); }

  /// @brief Throws for the first layer whose last `update` was refused, or that the last `solve`
  /// could not split.
  /// @throws invalid_input naming the refused number, its slot, expert or rank, and the layer
  /// @stream synchronizes
  void check() const {
    pipeline_.expect_updated("minmax_lp::update");
    detail::expect_sound("minmax_lp::solve", pipeline_.faults.read(), pipeline_.layers);
  }

 private:
  detail::minmax_lp_pipeline<kept_context<P>> pipeline_;
};

template <execution_policy P>
minmax_lp(P const&, placement_ref const&, minmax_lp_options const&) -> minmax_lp<P>;
template <execution_policy P>
minmax_lp(P const&, placement_ref const&) -> minmax_lp<P>;

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

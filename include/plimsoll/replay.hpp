// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replay of recorded steps: their balancedness under other placements.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/algorithm/replay.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `replay`.
struct replay_options {
  /// `[ranks]`, in the policy's memory: 0 for a dead rank, which does not count in the mean over
  /// ranks. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
};

namespace detail {

inline index_t replay_problems(index_t steps, index_t layers) {
  return replay_tiles(steps) * layers;
}

/// Enqueues a replay. `reports` must have `replay_problems` elements.
template <class Context, class Loads>
void enqueue_replay(Context const& context, Loads const& loads, placement_ref const& placement,
                    vector_ref<std::uint8_t const> active, matrix_ref<double> balancedness,
                    problem_report* reports) {
  auto const& map = placement.physical_to_logical;
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const rows = map.extent(0);
  buffer<double, Context> const memory(context, rows * replay_tiles(steps));
  matrix_ref<double> const sums(memory.data(), rows, replay_tiles(steps));
  launch(context, replay_problems(steps, layers),
         replay_body<Loads>{loads,
                            map,
                            placement.replica_count,
                            {placement.rank_offsets, map.extent(1), placement.ranks},
                            active,
                            balancedness.extent(0),
                            sums,
                            reports});
  launch(context, rows, replay_mean_body{sums, steps, layers, balancedness});
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Replays recorded steps under one or several plans and averages their balancedness.
///
/// balancedness(p, l) is the mean over the steps t of mean / peak of the rank loads in step t. The
/// replicas of an expert share its load evenly, as in `rank_loads`. A step in which the layer has
/// no load counts as 1.
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
/// @complexity O(steps layers (experts + plans slots))
/// @workspace for every 8 steps, 8 bytes per row of the placement and 64 bytes per layer; the
///   workspace of `validate`; and for each problem in flight, 72 bytes per expert and, for each
///   plan, 64 bytes and 4 bytes per rank (on a device only if this exceeds the shared memory
///   of a block)
/// @stream synchronises once
/// @determinism the same bits under every policy: each quotient and each sum is rounded once, in
///   an order that depends only on the shapes
template <execution_policy P, load_tensor_view Loads, output_of<double, 2> Out>
void replay(P const& policy, Loads const& loads, placement_ref const& placement,
            replay_options const& options, Out&& balancedness) {
  constexpr char const* name = "replay";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<double> const out = detail::argument<2>(name, "balancedness", balancedness);
  index_t const steps = load.extent(0);
  index_t const layers = load.extent(1);
  index_t const rows = placement.physical_to_logical.extent(0);
  auto const& counts = placement.replica_count;
  detail::expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  detail::expect_between(name, "loads", 1, expert_limit, load.extent(2), "experts");
  detail::expect_extent(name, "balancedness", layers, out.extent(1), "layers");
  detail::expect_extent(name, "placement.physical_to_logical", out.extent(0) * layers, rows,
                        "rows (plans * layers)");
  detail::ranked_source const source = detail::expect_ranked(name, placement, load.extent(2));
  detail::expect_extent(name, "placement.replica_count", rows, counts.extent(0),
                        "rows (plans * layers)");
  detail::expect_extent(name, "placement.replica_count", load.extent(2), counts.extent(1),
                        "experts");
  detail::expect_elements(name, "placement.replica_count", counts);
  if (options.active.data != nullptr) {
    detail::expect_extent(name, "options.active", placement.ranks, options.active.extent(0),
                          "ranks");
  }
  if (rows == 0) {
    return;
  }

  auto const context = detail::resolve(policy);
  detail::buffer<detail::problem_report, std::remove_const_t<decltype(context)>> const reports(
      context, rows + detail::replay_problems(steps, layers));
  detail::validation_body validation{source, counts, options.active, 0, {}, reports.data()};
  detail::launch(context, rows, validation);
  detail::enqueue_replay(context, load, placement, options.active, out, reports.data() + rows);
  detail::collect(name, reports, layers, detail::throw_placement_fault);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `replay`.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replay.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/pipeline/minmax_lp.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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
         replay_body<Loads>{.loads = loads,
                            .physical_to_logical = map,
                            .replica_count = placement.replica_count,
                            .ranges = {placement.rank_offsets, map.extent(1), placement.ranks},
                            .active = active,
                            .plans = balancedness.extent(0),
                            .sums = sums,
                            .reports = reports});
  launch(context, rows, replay_mean_body{sums, steps, layers, balancedness});
}

/// Returns the rows of one plan of a placement that holds several.
inline placement_ref plan_of(placement_ref const& placement, index_t layers, index_t plan) {
  auto const rows = [=](auto matrix) {
    if (matrix.data != nullptr) {
      matrix.data += plan * layers * matrix.strides[0];
      matrix.extents[0] = layers;
    }
    return matrix;
  };
  return {rows(placement.physical_to_logical), rows(placement.replica_count), placement.ranks,
          rows(placement.rank_offsets)};
}

/// Splits every step optimally under every plan, and averages the balancedness. The caller has checked
/// loads and placement.
template <class Context, class Loads>
void run_optimal_replay(std::string_view name, Context const& context, Loads const& loads,
                        placement_ref const& placement, vector_ref<std::uint8_t const> active,
                        matrix_ref<double> balancedness) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const plans = balancedness.extent(0);
  buffer<certificate, Context> const peaks(context, steps * layers);
  buffer<double, Context> const of_steps(context, plans * layers * steps);
  matrix_ref<double> const sums(of_steps.data(), plans * layers, steps);
  for (index_t plan = 0; plan < plans; ++plan) {
    rank_set const on{.ranks = placement.ranks, .active = active};
    minmax_lp_pipeline<Context> lp(context, plan_of(placement, layers, plan),
                                   {.on = on, .tolerance = 0}, name);
    launch(context, steps * layers, lp.body_of_steps(loads, peaks.data()));
    launch(context, steps * layers,
           split_balance_body<Loads>{loads, static_cast<double>(lp.live_ranks), peaks.data(),
                                     plan * layers, sums});
  }
  launch(context, plans * layers, replay_mean_body{sums, steps, layers, balancedness});
  synchronize(context);
}

}}}  // namespace plimsoll::detail

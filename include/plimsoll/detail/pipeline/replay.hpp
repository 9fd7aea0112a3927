// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `replay`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replay.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/placement_types.hpp>
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

}}}  // namespace plimsoll::detail

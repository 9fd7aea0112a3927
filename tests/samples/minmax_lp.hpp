// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/minmax_lp.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Both experts are on both ranks, so each rank gets half of the load.
template <class Run>
void sample_minmax_lp(Run& run) {
  small_placement placement(run);
  auto const loads = run.array(ints{3, 5}, 1, 2);
  auto const base = run.array(reals{0, 0}, 1, 2);
  auto const split = run.array(reals{9, 9, 9, 9}, 1, 4);
  auto const bottleneck = run.array(std::vector<std::uint8_t>{9, 9}, 1, 2);
  auto solver = run.prepare("minmax_lp", [&] {
    return plimsoll::minmax_lp(
        run.policy, placement("placement", placement_parts::map_and_offsets),
        {.on = run.ranks("options.on", 2, {.of_placement = true}),
         .objective = run.option("options.objective", plimsoll::split_objective::min_peak)});
  });
  run.work("minmax_lp::update", [&] {
    solver.update(0, placement("placement", placement_parts::map_and_offsets),
                  run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("minmax_lp::solve", [&] {
    solver.solve(run.in("loads", loads), {.base_load = run("inputs.base_load", base)},
                 run("split", split), {.bottleneck = run("outputs.bottleneck", bottleneck)});
  });
  run.expect(split.values()[0] + split.values()[1], 4.0);
  run.expect(solver.certificates().extent(0), 1);
  run.expect(solver.faults().extent(0), 1);
  run.work("minmax_lp::solve", [&] { solver.solve(run.in("loads", loads), run("split", split)); });
  run.expect(split.values()[2] + split.values()[3], 4.0);
}
PLIMSOLL_SAMPLE(minmax_lp);

}  // namespace plimsoll_test

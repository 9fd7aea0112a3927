// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/select_planner.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_select_planner(Run& run) {
  auto const loads = run.array(reals{3, 5, 3, 5}, 2, 1, 2);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const selected = run.call("select_planner", [&] {
    return plimsoll::select_planner(
        run.policy, run.in("loads", loads), 4,
        {.on = run.ranks("options.on", 2, {false, "balancedness counts tokens"}),
         .rank_offsets = run("options.rank_offsets", offsets),
         .split = run.option("options.split", plimsoll::split_rule::optimal),
         .candidates = {run.option("options.candidates", plimsoll::planner::flow_optimal)}});
  });
  run.expect(selected.replica_count.view(), {2, 2});
}
PLIMSOLL_SAMPLE(select_planner);

}  // namespace plimsoll_test

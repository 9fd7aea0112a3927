// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/flow_placement.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_flow_placement(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 1, 2);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  run.call("place_by_flow", [&] {
    plimsoll::place_by_flow(run.policy, run.in("loads", loads),
                            {.on = run.ranks("options.on", 2),
                             .rank_offsets = run("options.rank_offsets", offsets),
                             .split = run.option("options.split", plimsoll::split_rule::optimal)},
                            run("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const used = run.array(ints{0, 1, 0, 1}, 1, 4);
  auto const owned = run.call("place_by_flow", [&] {
    return plimsoll::place_by_flow(
        run.policy, run.in("loads", loads), 4,
        {.on = {.ranks = 2},
         .split = run.option("options.split", plimsoll::split_rule::optimal),
         .in_use = run.ids("options.in_use", used)});
  });
  run.expect(owned.replica_count.view(), {2, 2});
  small_placement placement(run);
  auto const bound = run.call("certify", [&] {
    return plimsoll::certify(run.policy, run.in("loads", loads),
                             placement("placement", placement_parts::map_and_offsets),
                             {.on = run.ranks("options.on", 2, {.of_placement = true})});
  });
  run.expect(bound[0].value, 4.0);
}
PLIMSOLL_SAMPLE(flow_placement);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/refinement.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Starts from one replica of expert 1 less than the best plan has.
template <class Run>
void sample_refinement(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 2);
  auto const map = run.array(ints{0, 1, 0, 1}, 1, 4);
  auto const copies = run.array(ints{2, 2}, 1, 2);
  run.call("refine", [&] {
    return plimsoll::refine(run.policy, run.in("loads", loads),
                            {.on = run.ranks("where.on", 2),
                             .replica_anti_affinity = run.option("where.replica_anti_affinity",
                                                                 plimsoll::anti_affinity::none),
                             .anti_affinity_strength = run.option("where.anti_affinity_strength",
                                                                  plimsoll::strictness::preferred)},
                            {}, run.ids("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  small_placement placement(run);
  auto const owned = run.call("refine", [&] {
    return plimsoll::refine(
        run.policy, run.in("loads", loads), placement("given", placement_parts::map_and_offsets),
        {.on = {.ranks = 2},
         .replica_anti_affinity =
             run.option("where.replica_anti_affinity", plimsoll::anti_affinity::none),
         .anti_affinity_strength =
             run.option("where.anti_affinity_strength", plimsoll::strictness::preferred)},
        {});
  });
  run.expect(owned.replica_count.view(), {2, 2});
}
PLIMSOLL_SAMPLE(refinement);

}  // namespace plimsoll_test

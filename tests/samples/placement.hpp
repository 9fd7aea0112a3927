// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/placement.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Both experts have two replicas, one for each rank; groups of one expert for one node.
template <class Run>
void sample_placement(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 2);
  auto const copies = run.array(ints{2, 2}, 1, 2);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const nodes = run.array(ints{0, 1}, 1, 2);
  auto const node_offsets = run.array(ints{0, 2}, 1, 2);
  run.call("place", [&] {
    return plimsoll::place(run.policy, run.in("loads", loads), run("replica_count", copies),
                           {.on = run.ranks("options.on", 2),
                            .rank_offsets = run("options.rank_offsets", offsets),
                            .replica_anti_affinity = run.option("options.replica_anti_affinity",
                                                                plimsoll::anti_affinity::none),
                            .anti_affinity_strength = run.option("options.anti_affinity_strength",
                                                                 plimsoll::strictness::preferred)},
                           run("physical_to_logical", map));
  });
  run.expect(map, {1, 0, 1, 0});
  run.call("place", [&] {
    return plimsoll::place(run.policy, run.in("loads", loads), run("replica_count", copies),
                           {.on = {.ranks = 2},
                            .node_experts = run.ids("options.node_experts", nodes),
                            .node_offsets = run("options.node_offsets", node_offsets)},
                           run("physical_to_logical", map));
  });
  run.expect(map, {1, 0, 1, 0});
  auto const owned = run.call("place", [&] {
    return plimsoll::place(run.policy, run.in("loads", loads), run("replica_count", copies), 4,
                           {.on = {.ranks = 2},
                            .replica_anti_affinity = run.option("options.replica_anti_affinity",
                                                                plimsoll::anti_affinity::none),
                            .anti_affinity_strength = run.option("options.anti_affinity_strength",
                                                                 plimsoll::strictness::preferred)});
  });
  run.expect(owned.physical_to_logical.view(), {1, 0, 1, 0});
  run.call("place_groups", [&] {
    return plimsoll::place_groups(
        run.policy, run.in("loads", loads), 1, 4,
        {.on = run.ranks("options.on", 2),
         .replica_anti_affinity =
             run.option("options.replica_anti_affinity", plimsoll::anti_affinity::none),
         .anti_affinity_strength =
             run.option("options.anti_affinity_strength", plimsoll::strictness::preferred)},
        run("node_experts", nodes), run("node_offsets", node_offsets));
  });
  run.expect(nodes, {0, 1});
}
PLIMSOLL_SAMPLE(placement);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/placement_maps.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// The conversions of one map with two replicas of each expert.
template <class Run>
void sample_placement_maps(Run& run) {
  small_placement placement(run);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  run.call("count_replicas", [&] {
    plimsoll::count_replicas(run.policy, run.ids("physical_to_logical", placement.map),
                             run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const begins = run.array(ints{9, 9, 9}, 1, 3);
  auto const lists = run.array(ints{9, 9, 9, 9}, 1, 4);
  run.call("slots_to_replicas", [&] {
    plimsoll::slots_to_replicas(run.policy, run.ids("physical_to_logical", placement.map),
                                run("replica_offsets", begins), run("replica_slots", lists));
  });
  run.expect(begins, {0, 2, 4});
  run.expect(lists, {0, 2, 1, 3});
  auto const starts = run.array(ints{9, 9}, 1, 2);
  run.call("slots_to_replicas", [&] {
    plimsoll::slots_to_replicas(run.policy, run.ids("physical_to_logical", placement.map),
                                run("replica_count", copies), run("replica_offsets", starts),
                                run("replica_slots", lists));
  });
  run.expect(starts, {0, 2});
  auto const replicas = [&] {
    return plimsoll::replica_lists_ref{run("replicas.replica_offsets", begins),
                                       run("replicas.replica_slots", lists)};
  };
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  run.call("replicas_to_slots", [&] {
    plimsoll::replicas_to_slots(run.policy, replicas(), run("physical_to_logical", map));
  });
  run.expect(map, {0, 1, 0, 1});
  auto const padded = run.array(ints{9, 9, 9, 9}, 1, 2, 2);
  run.call("replicas_to_padded", [&] {
    plimsoll::replicas_to_padded(run.policy, replicas(), run("logical_to_physical", padded));
  });
  run.expect(padded, {0, 2, 1, 3});
  run.call("padded_to_replicas", [&] {
    plimsoll::padded_to_replicas(run.policy, run("logical_to_physical", padded),
                                 run("replica_offsets", begins), run("replica_slots", lists));
  });
  run.expect(lists, {0, 2, 1, 3});
  auto const of_ranks = run.array(ints{9, 9, 9, 9}, 1, 2, 2);
  run.call("slots_to_ranks", [&] {
    plimsoll::slots_to_ranks(run.policy, placement("placement", placement_parts::map_and_offsets),
                             run("rank_experts", of_ranks));
  });
  run.expect(of_ranks, {0, 1, 0, 1});
  run.call("slots_to_rank_rows", [&] {
    plimsoll::slots_to_rank_rows(run.policy,
                                 placement("placement", placement_parts::map_and_offsets),
                                 run("rank_experts", of_ranks));
  });
  run.expect(of_ranks, {0, 1, 0, 1});
  auto const offsets = run.array(ints{9, 9, 9}, 1, 3);
  run.call("ranks_to_slots", [&] {
    plimsoll::ranks_to_slots(run.policy, run.ids("rank_experts", of_ranks),
                             run("physical_to_logical", map), run("rank_offsets", offsets));
  });
  run.expect(offsets, {0, 2, 4});
  auto const sources = run.array(ints{1, 0}, 2);
  run.call("resize_placement", [&] {
    plimsoll::resize_placement(run.policy, placement("from", placement_parts::map_and_offsets),
                               run.ids("source_ranks", sources),
                               run("rank_offsets", placement.offsets),
                               run("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(map, {0, 1, 0, 1});
  run.call("validate", [&] {
    plimsoll::validate(run.policy, placement(),
                       {.on = run.ranks("options.on", 2, {.of_placement = true}),
                        .replica_anti_affinity = run.option("options.replica_anti_affinity",
                                                            plimsoll::anti_affinity::none)});
  });
  run.call("validate", [&] {
    plimsoll::validate(run.policy, placement("placement", placement_parts::map), replicas());
  });
  run.call("validate", [&] {
    plimsoll::validate(run.policy, placement("placement", placement_parts::map),
                       run.ids("logical_to_physical", padded));
  });
}
PLIMSOLL_SAMPLE(placement_maps);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/eplb.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_eplb(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 2);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  run.call("eplb", [&] {
    return plimsoll::eplb(run.policy, run.in("loads", loads),
                          {.on = run.ranks("options.on", 2),
                           .policy = run.option("options.policy", plimsoll::eplb_policy::automatic),
                           .refine = run.option("options.refine", plimsoll::eplb_refinement::none),
                           .replica_anti_affinity = run.option("options.replica_anti_affinity",
                                                               plimsoll::anti_affinity::none),
                           .anti_affinity_strength = run.option("options.anti_affinity_strength",
                                                                plimsoll::strictness::preferred)},
                          run("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const owned = run.call("eplb", [&] {
    return plimsoll::eplb(run.policy, run.in("loads", loads), 4,
                          {.on = {.ranks = 2},
                           .policy = run.option("options.policy", plimsoll::eplb_policy::automatic),
                           .refine = run.option("options.refine", plimsoll::eplb_refinement::none),
                           .replica_anti_affinity = run.option("options.replica_anti_affinity",
                                                               plimsoll::anti_affinity::none),
                           .anti_affinity_strength = run.option("options.anti_affinity_strength",
                                                                plimsoll::strictness::preferred)});
  });
  run.expect(owned.replica_count.view(), {2, 2});
  auto const inverse = run.array(ints{9, 9, 9, 9, 9, 9}, 1, 2, 3);
  run.call("rebalance_experts", [&] {
    return plimsoll::rebalance_experts(
        run.policy, run.in("loads", loads), 4, 1, 1, 2, run("physical_to_logical", map),
        run("logical_to_physical", inverse), run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
}
PLIMSOLL_SAMPLE(eplb);

}  // namespace plimsoll_test

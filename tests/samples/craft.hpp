// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/craft.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_craft(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 1, 2);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const offsets = run.array(ints{9, 9, 9}, 1, 3);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  rank_rules const rules{false, "gains count tokens"};
  auto const options = [&](plimsoll::rank_set const& on) {
    return plimsoll::craft_options{
        .on = on,
        .budget = 2,
        .objective = run.option("options.objective", plimsoll::craft_objective::gain),
        .fill = run.option("options.fill", plimsoll::knapsack_fill::at_most),
        .split = run.option("options.split", plimsoll::split_rule::even),
        .remainder = run.option("options.remainder", plimsoll::remainder_spread::interleaved),
        .policy = run.option("options.policy", plimsoll::eplb_policy::automatic),
        .refine = run.option("options.refine", plimsoll::eplb_refinement::none),
        .replica_anti_affinity =
            run.option("options.replica_anti_affinity", plimsoll::anti_affinity::none),
        .anti_affinity_strength =
            run.option("options.anti_affinity_strength", plimsoll::strictness::preferred)};
  };
  auto const budget = run.call("replica_budget", [] { return plimsoll::replica_budget(7, 3, 2); });
  run.expect(budget, 4);
  auto const gains = run.call("estimate_gains", [&] {
    return plimsoll::estimate_gains(run.policy, run.in("loads", loads),
                                    options(run.ranks("options.on", 2, rules)));
  });
  run.call("allocate_replicas",
           [&] { return plimsoll::allocate_replicas(run.policy, gains, options({.ranks = 2})); });
  run.call("craft", [&] {
    return plimsoll::craft(run.policy, run.in("loads", loads),
                           options(run.ranks("options.on", 2, rules)),
                           run("physical_to_logical", map), run("rank_offsets", offsets),
                           run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const owned = run.call("craft", [&] {
    return plimsoll::craft(run.policy, run.in("loads", loads), options({.ranks = 2}));
  });
  run.expect(owned.replica_count.view(), {2, 2});
}
PLIMSOLL_SAMPLE(craft);

}  // namespace plimsoll_test

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
  auto const budget = run.call("replica_budget", [] { return plimsoll::replica_budget(7, 3, 2); });
  run.expect(budget, 4);
  auto const gains = run.call("estimate_gains", [&] {
    return plimsoll::estimate_gains(run.policy, run.in("loads", loads),
                                    {.on = run.ranks("options.on", 2, rules)});
  });
  run.call("allocate_replicas", [&] {
    return plimsoll::allocate_replicas(run.policy, gains, {.on = {.ranks = 2}, .budget = 2});
  });
  run.call("craft", [&] {
    return plimsoll::craft(run.policy, run.in("loads", loads),
                           {.on = run.ranks("options.on", 2, rules), .budget = 2},
                           run("physical_to_logical", map), run("rank_offsets", offsets),
                           run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const owned = run.call("craft", [&] {
    return plimsoll::craft(run.policy, run.in("loads", loads), {.on = {.ranks = 2}, .budget = 2});
  });
  run.expect(owned.plan.replica_count.view(), {2, 2});
}
PLIMSOLL_SAMPLE(craft);

}  // namespace plimsoll_test

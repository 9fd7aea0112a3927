// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/swap_search.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// The search moves one of two experts of one rank to the other rank.
template <class Run>
void sample_swap_search(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 1, 2);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const scores = run.array(reals(30, 9), 1, 30);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const copies = run.array(ints{1, 1}, 1, 2);
  rank_rules const rules{false, "the cost of a rank includes its speed"};
  run.call("swap_search", [&] {
    return plimsoll::swap_search(
        run.policy, run.in("loads", loads), plimsoll::token_cost{},
        {.on = run.ranks("options.on", 2, rules),
         .rank_offsets = run("options.rank_offsets", offsets),
         .replica_count = run("options.replica_count", copies),
         .objective = run.option("options.objective", plimsoll::latency_objective::total)},
        run("physical_to_logical", map), run("restart_scores", scores));
  });
  run.expect(scores.values()[0], 5.0);
  auto const owned = run.call("swap_search", [&] {
    return plimsoll::swap_search(
        run.policy, run.in("loads", loads), plimsoll::token_cost{}, 4,
        {.on = {.ranks = 2},
         .objective = run.option("options.objective", plimsoll::latency_objective::total)});
  });
  run.expect(owned.certificates[0].value, 5.0);
}
PLIMSOLL_SAMPLE(swap_search);

}  // namespace plimsoll_test

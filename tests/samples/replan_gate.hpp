// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/array.hpp>
#include <plimsoll/replan_gate.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// From a plan to itself: nothing moves.
template <class Run>
void sample_replan_gate(Run& run) {
  small_placement placement(run);
  auto const loads = run.array(reals{3, 5, 3, 5}, 2, 1, 2);
  auto const options = [&] {
    return plimsoll::replan_options<>{
        .on = run.ranks("options.on", 2, {.of_placement = true}),
        .split = run.option("options.split", plimsoll::split_rule::optimal),
        .cost = {.per_token = 1},
        .horizon = 1,
        .rounds = run.option("options.rounds", plimsoll::round_rule::one_peer)};
  };
  auto const decision = run.call("decide_replan", [&] {
    return plimsoll::decide_replan(run.policy, run.in("loads", loads), placement("in_use"),
                                   {{placement("candidates[0].plan")}}, options());
  });
  run.expect(decision.step_seconds, 4.0);
  auto const planned = run.call("replan", [&] {
    return plimsoll::replan(
        run.policy, run.in("loads", loads), placement("in_use"),
        [&](auto const& policy, auto const&) {
          return plimsoll::copy_placement(policy, placement.map.view(), placement.copies.view(), 2,
                                          placement.offsets.view());
        },
        options());
  });
  run.expect(planned.physical_to_logical.view(), {0, 1, 0, 1});
}
PLIMSOLL_SAMPLE(replan_gate);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/replay.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_replay(Run& run) {
  small_placement placement(run);
  auto const loads = run.array(reals{3, 5}, 1, 1, 2);
  auto const balancedness = run.array(reals{9}, 1, 1);
  run.call("replay", [&] {
    plimsoll::replay(run.policy, run.in("loads", loads), placement(),
                     {.on = run.ranks("options.on", 2, {true, "balancedness counts tokens"}),
                      .split = run.option("options.split", plimsoll::split_rule::even)},
                     run("balancedness", balancedness));
  });
  run.expect(balancedness, {1});
}
PLIMSOLL_SAMPLE(replay);

}  // namespace plimsoll_test

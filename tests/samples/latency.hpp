// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/latency.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// A rank takes a microsecond for a token.
template <class Run>
void sample_latency(Run& run) {
  small_placement placement(run);
  auto const loads = run.array(reals{3, 5}, 1, 1, 2);
  auto const tokens = run.array(longs{0, 10}, 2);
  auto const microseconds = run.array(reals{0, 10}, 1, 2);
  auto const speeds = run.array(reals{1, 1}, 2);
  auto const table = run.prepare("latency_table", [&] {
    return plimsoll::latency_table(run.policy,
                                   {.tokens = run("curves.tokens", tokens),
                                    .latency = run("curves.latency", microseconds),
                                    .speeds = run("curves.speeds", speeds)},
                                   2);
  });
  auto const counts = run.call("sampling_plan", [] {
    return plimsoll::sampling_plan(
        {.tile = 4, .dense_until = 4, .sparse_step = 4, .max_tokens = 8});
  });
  run.expect(counts, {4, 8});
  auto const of_ranks = run.array(reals{9, 9}, 1, 1, 2);
  run.call("rank_latencies", [&] {
    plimsoll::rank_latencies(run.policy, run.in("loads", loads), placement(), table.cost(),
                             run("latencies", of_ranks));
  });
  run.expect(of_ranks, {4, 4});
  run.call("rank_latencies", [&] {
    plimsoll::rank_latencies(run.policy, run.in("loads", loads), placement(),
                             plimsoll::token_cost{run("cost.speeds", speeds)},
                             run("latencies", of_ranks));
  });
  run.expect(of_ranks, {4, 4});
  auto const of_steps = run.array(reals{9}, 1, 1);
  run.call("step_latencies", [&] {
    plimsoll::step_latencies(run.policy, run.in("loads", loads), placement(), table.cost(),
                             run("latencies", of_steps));
  });
  run.expect(of_steps, {4});
}
PLIMSOLL_SAMPLE(latency);

}  // namespace plimsoll_test

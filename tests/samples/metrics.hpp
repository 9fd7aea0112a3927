// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/metrics.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Expert 1 has three times the tokens of expert 0 in both steps.
template <class Run>
void sample_metrics(Run& run) {
  auto const loads = run.array(ints{1, 3}, 1, 2);
  auto const stats = run.array(std::vector<plimsoll::balance_stats>(1), 1);
  run.call("measure",
           [&] { plimsoll::measure(run.policy, run.in("loads", loads), run("out", stats)); });
  run.expect(stats.values()[0].peak, 3.0);
  auto const owned =
      run.call("measure", [&] { return plimsoll::measure(run.policy, run.in("loads", loads)); });
  run.expect(owned.to_host()[0].peak, 3.0);
  auto const summary = run.call("summarize", [&] {
    return plimsoll::summarize(run.policy, run.in("rows", stats),
                               run.option("empty", plimsoll::empty_step_policy::count));
  });
  run.expect(summary.worst_row, 0);

  auto const steps = run.array(reals{1, 3, 2, 6}, 2, 1, 2);
  auto const correlation = run.array(reals{9, 9, 9, 9}, 1, 2, 2);
  run.call("correlate", [&] {
    plimsoll::correlate(run.policy, run.in("loads", steps), run("correlation", correlation));
  });
  run.expect(correlation, {1, 1, 1, 1});
  auto const use = run.array(std::vector<plimsoll::expert_use>(2), 1, 2);
  run.call("classify_experts", [&] {
    plimsoll::classify_experts(run.policy, run.in("loads", steps), {}, run("use", use));
  });
  auto const pairs = run.call("correlated_pairs", [&] {
    return plimsoll::correlated_pairs(run.policy, run("correlation", correlation), run("use", use));
  });
  run.expect(static_cast<int>(pairs.size()) <= 1, true);
}
PLIMSOLL_SAMPLE(metrics);

}  // namespace plimsoll_test

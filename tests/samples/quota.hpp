// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/quota.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Splits 3 and 5 tokens over two replicas each, for one source and a batch of two tokens.
template <class Run>
void sample_quota(Run& run) {
  small_placement placement(run);
  auto const plan = [&] { return placement("placement", placement_parts::map_and_offsets); };
  auto const loads = run.array(ints{3, 5}, 1, 2);
  auto const split = run.array(reals{2, 2, 1, 3}, 1, 4);
  auto const quotas = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const reports = run.array(std::vector<plimsoll::quota_report>(1), 1);
  run.of_step("round_split", [&] {
    plimsoll::round_split(run.policy, run.in("loads", loads), plan(), run("split", split),
                          run("quotas", quotas), run("reports", reports));
  });
  run.expect(quotas, {2, 2, 1, 3});
  run.call("check", [&] { plimsoll::check(run.policy, run.in("reports", reports)); });
  auto const by_rank = run.array(ints{3, 5, 0, 0}, 2, 2);
  auto const row = run.array(ints{2, 2, 1, 3}, 4);
  auto const of_sources = run.array(ints(8, 9), 2, 4);
  run.of_step("divide_quotas", [&] {
    plimsoll::divide_quotas(run.policy, run("quotas", row), run("counts", by_rank), plan(),
                            run.ranks("on", 2, {true, "quotas are given"}),
                            run("source_quotas", of_sources));
  });
  run.expect(of_sources, {2, 2, 1, 3, 0, 0, 0, 0});
  auto const ids = run.array(ints{0, 1}, 2, 1);
  auto const map = run.array(ints{0, 1, 0, 1}, 4);
  auto const slots = run.array(ints{9, 9}, 2, 1);
  auto const counted = run.array(std::vector<plimsoll::dispatch_counters>(1), 1);
  run.of_step("dispatch", [&] {
    plimsoll::dispatch(
        run.policy, run.ids("topk_ids", ids), run.ids("physical_to_logical", map),
        run("quotas", row),
        {.experts = 2, .method = run.option("options.method", plimsoll::dispatch_method::in_order)},
        run("slots", slots), run("counters", counted));
  });
  run.expect(counted.values()[0].routed, 2);
}
PLIMSOLL_SAMPLE(quota);

}  // namespace plimsoll_test

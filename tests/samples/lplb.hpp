// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/lplb.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Splits 3 and 5 tokens over two ranks, and sends a batch of two of them.
template <class Run>
void sample_lplb(Run& run) {
  small_placement placement(run);
  auto const counts = run.array(ints{3, 5}, 1, 2);
  auto const ids = run.array(ints{0, 1}, 2, 1);
  auto const slots = run.array(ints{9, 9}, 2, 1);
  auto const counted = run.array(std::vector<plimsoll::dispatch_counters>(1), 1);
  auto planner = run.prepare("lplb", [&] {
    return plimsoll::lplb(
        run.policy, placement("placement", placement_parts::map_and_offsets),
        {.lp = {.objective =
                    run.option("options.lp.objective", plimsoll::split_objective::min_peak)},
         .max_token_copies = 8,
         .method = run.option("options.method", plimsoll::dispatch_method::in_order)});
  });
  run.work("lplb::update", [&] {
    planner.update(0, placement("placement", placement_parts::map_and_offsets),
                   run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("lplb::plan", [&] { planner.plan(run.in("counts", counts)); });
  run.work("lplb::plan", [&] { planner.plan(0, run.in("counts", counts)); });
  run.expect(planner.certificates().extent(0), 1);
  run.expect(planner.faults().extent(0), 1);
  run.work("lplb::dispatch", [&] {
    planner.dispatch(0, run.ids("topk_ids", ids), run("slots", slots), run("counters", counted));
  });
  run.expect(counted.values()[0].routed, 2);
  auto const by_rank = run.array(ints{2, 4, 1, 1}, 1, 2, 2);
  auto const by_rank_of_layer = run.array(ints{2, 4, 1, 1}, 2, 2);
  run.work("lplb::plan", [&] { planner.plan(run.in("counts", by_rank), 1); });
  run.work("lplb::plan", [&] { planner.plan(0, run.in("counts", by_rank_of_layer), 1); });
  run.expect(planner.own_quotas().extent(0), 1);
}
PLIMSOLL_SAMPLE(lplb);

}  // namespace plimsoll_test

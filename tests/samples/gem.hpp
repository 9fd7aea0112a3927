// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/gem.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// A rank takes a microsecond for a token.
template <class Run>
void sample_gem(Run& run) {
  auto const loads = run.array(reals{3, 5, 3, 5}, 2, 1, 2);
  auto const tokens = run.array(longs{0, 10}, 2);
  auto const microseconds = run.array(reals{0, 10}, 1, 2);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  rank_rules const rules{false, "the cost of a rank includes its speed"};
  auto const curves = [&] {
    return plimsoll::latency_curves{.tokens = run("curves.tokens", tokens),
                                    .latency = run("curves.latency", microseconds)};
  };
  run.call("gem", [&] {
    return plimsoll::gem(
        run.policy, run.in("loads", loads), curves(),
        {.on = run.ranks("options.on", 2, rules),
         .rank_offsets = run("options.rank_offsets", offsets),
         .objective = run.option("options.objective", plimsoll::latency_objective::total),
         .spare_slots = run.option("options.spare_slots", plimsoll::spare_slot_use::stay_free)},
        run("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(copies, {1, 1});
  auto const owned = run.call("gem", [&] {
    return plimsoll::gem(
        run.policy, run.in("loads", loads), curves(), 4,
        {.on = {.ranks = 2},
         .objective = run.option("options.objective", plimsoll::latency_objective::total),
         .spare_slots = run.option("options.spare_slots", plimsoll::spare_slot_use::stay_free)});
  });
  run.expect(owned.replica_count.view(), {1, 1});
  auto const latencies = run.array(reals{9}, 1, 1);
  run.call("trace_length_latencies", [&] {
    plimsoll::trace_length_latencies(
        run.policy, run.in("loads", loads), curves(), 4, 1, {1},
        {.on = run.ranks("options.on", 2, rules),
         .objective = run.option("options.objective", plimsoll::latency_objective::total),
         .spare_slots = run.option("options.spare_slots", plimsoll::spare_slot_use::stay_free)},
        run("latencies", latencies));
  });
  run.expect(latencies, {5});
}
PLIMSOLL_SAMPLE(gem);

}  // namespace plimsoll_test

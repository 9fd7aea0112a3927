// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/load_tensor.hpp>

#include <cstdint>
#include <type_traits>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Three tokens of experts 0, 1 and 1.
template <class Run>
void sample_load_tensor(Run& run) {
  auto const ids = run.array(ints{0, 1, 1}, 3, 1);
  auto const layers = run.array(ints{0, 1, 1}, 1, 3, 1);
  auto const counts = run.array(ints{9, 9}, 2);
  auto const rows = run.array(ints{9, 9}, 1, 2);
  auto const counted = run.array(std::vector<plimsoll::routing_counters>(1), 1);
  run.of_step("count_tokens", [&] {
    plimsoll::count_tokens(run.policy, run.ids("topk_ids", ids),
                           {.mode = run.option("options.mode", plimsoll::count_mode::overwrite)},
                           run("counts", counts), run("counters", counted));
  });
  run.expect(counts, {1, 2});
  run.of_step("count_tokens", [&] {
    plimsoll::count_tokens(run.policy, run.ids("topk_ids", layers),
                           {.mode = run.option("options.mode", plimsoll::count_mode::overwrite)},
                           run("counts", rows), run("counters", counted));
  });
  run.expect(rows, {1, 2});

  auto const begins = run.array(ints{0, 1, 3}, 3);
  auto const of_sources = run.array(ints{9, 9, 9, 9}, 2, 2);
  run.of_step("count_tokens_by_source", [&] {
    plimsoll::count_tokens_by_source(
        run.policy, run.ids("topk_ids", ids), run("source_offsets", begins),
        {.mode = run.option("options.mode", plimsoll::count_mode::overwrite)},
        run("counts", of_sources), run("counters", counted));
  });
  run.expect(of_sources, {1, 0, 0, 2});

  small_placement placement(run);
  auto const of_slots = run.array(ints{1, 2, 3, 4}, 1, 4);
  auto const logical = run.array(longs{9, 9}, 1, 2);
  auto const lost = run.array(std::vector<plimsoll::scatter_counters>(1), 1);
  run.of_step("scatter_to_logical", [&] {
    plimsoll::scatter_to_logical(run.policy, run.in("physical_counts", of_slots),
                                 run.ids("physical_to_logical", placement.map),
                                 run("logical", logical), run("counters", lost));
  });
  run.expect(logical, {4, 6});

  auto const loads = run.array(ints{3, 5}, 1, 2);
  auto const steps = run.array(ints{3, 5, 1, 1}, 2, 1, 2);
  auto const sums = run.array(longs{9, 9}, 1, 2);
  run.of_step("sum_steps",
              [&] { plimsoll::sum_steps(run.policy, run.in("loads", steps), run("out", sums)); });
  run.expect(sums, {4, 6});
  auto const of_ranks = run.array(reals{9, 9}, 1, 2);
  run.call("rank_loads", [&] {
    plimsoll::rank_loads(run.policy, run.in("loads", loads), placement(), run("out", of_ranks));
  });
  run.expect(of_ranks, {4, 4});
  auto const history = run.array(reals{9, 9, 9, 9}, 2, 1, 2);
  run.call("rank_loads", [&] {
    plimsoll::rank_loads(run.policy, run.in("loads", steps), placement(), run("out", history));
  });
  run.expect(history, {4, 4, 1, 1});
  auto const owned = run.call("rank_loads", [&] {
    return plimsoll::rank_loads(run.policy, run.in("loads", loads), placement());
  });
  run.expect(owned.view(), {4, 4});
  auto const owned_history = run.call("rank_loads", [&] {
    return plimsoll::rank_loads(run.policy, run.in("loads", steps), placement());
  });
  run.expect(owned_history.view(), {4, 4, 1, 1});

  using policy = std::remove_cvref_t<decltype(run.policy)>;
  auto window = run.prepare("load_window", [&] {
    return plimsoll::load_window<std::int32_t, policy>(run.policy, 1, 2, {.window = 4});
  });
  run.work("load_window::push", [&] { window.push(run.in("loads", loads)); });
  run.work("load_window::sum", [&] { window.sum(run("out", sums)); });
  run.expect(sums, {3, 5});
  auto const kept = run.array(ints(8, 9), 4, 1, 2);
  run.work("load_window::steps", [&] { window.steps(run("out", kept)); });
  run.expect(kept, {3, 5, 0, 0, 0, 0, 0, 0});
  auto decay = run.prepare("load_decay", [&] { return plimsoll::load_decay(run.policy, 1, 2); });
  run.work("load_decay::push", [&] { decay.push(run.in("loads", loads)); });
  run.expect(decay.values(), {3, 5});
  run.work("load_decay::reset", [&] { decay.reset(0); });
  run.expect(decay.values(), {0, 0});
}
PLIMSOLL_SAMPLE(load_tensor);

}  // namespace plimsoll_test

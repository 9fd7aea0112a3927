// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/least_loaded.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Two ranks, of which the first has all four tokens, of expert 0, and sends two.
template <class Run>
void sample_least_loaded(Run& run) {
  auto const ids = run.array(ints{0, 0, 0, 0}, 4, 1);
  auto const home_rank = run.array(ints{0, 1}, 2);
  auto const counts = run.array(ints{4, 0, 0, 0}, 2, 2);
  auto const row = run.array(ints{9, 9}, 2);
  auto const loads = run.array(longs{4, 0}, 2);
  auto const destinations = run.array(ints{9, 9, 9, 9}, 4, 1);
  auto const rows = run.array(ints{9, 9, 9, 9}, 4, 1);
  auto const arranged = run.array(ints(8, 9), 8);
  auto const groups = run.array(std::vector<plimsoll::spill_segment>(2), 2);
  auto const counted = run.array(std::vector<plimsoll::spill_counters>(1), 1);
  auto const options = [&] {
    return plimsoll::least_loaded_options{
        .on = run.ranks("options.on", 2),
        .experts = 2,
        .home_rank = run.ids("options.home_rank", home_rank),
        .round = run.option("options.round", plimsoll::rounding_mode::up),
        .min_chunk = 1,
        .trigger = run.option("options.trigger", plimsoll::spill_trigger::rank_imbalance),
        .small_excess = run.option("options.small_excess", plimsoll::small_excess_policy::helper),
        .max_token_copies = 4};
  };
  auto planner =
      run.prepare("least_loaded", [&] { return plimsoll::least_loaded(run.policy, options()); });
  run.work("least_loaded::update", [&] {
    planner.update({.home_rank = run.ids("homes.home_rank", home_rank)},
                   run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("least_loaded::plan", [&] { planner.plan(run.in("loads", loads)); });
  run.work("least_loaded::add_up", [&] { planner.add_up(run("counts", counts)); });
  run.work("least_loaded::plan", [&] { planner.plan(); });
  run.work("least_loaded::exchange", [&] { planner.exchange(); });
  run.work("least_loaded::count",
           [&] { planner.count(run.ids("topk_ids", ids), run("counts", row)); });
  run.expect(row, {4, 0});
  run.work("least_loaded::route", [&] {
    planner.route(0, run.ids("topk_ids", ids), run("destinations", destinations), run("rows", rows),
                  run("counters", counted));
  });
  run.expect(destinations, {0, 0, 1, 1});
  run.work("least_loaded::arrange",
           [&] { planner.arrange(1, run("arranged", arranged), run("groups", groups)); });
  run.expect(arranged.values()[0], 0);
  run.call("validate", [&] {
    auto const plan = planner.plan_ref();
    plimsoll::validate(run.policy,
                       {run("plan.offsets", plan.offsets), run("plan.segments", plan.segments),
                        run("plan.transfer_offsets", plan.transfer_offsets),
                        run("plan.transfers", plan.transfers)},
                       run.in("loads", loads), options());
  });
}
PLIMSOLL_SAMPLE(least_loaded);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/migration.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// From a plan to itself: nothing moves.
template <class Run>
void sample_migration(Run& run) {
  small_placement placement(run);
  auto const loads = run.array(reals{3, 5}, 1, 2);
  auto const map = run.array(ints{9, 9, 9, 9}, 1, 4);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  auto const from = [&] { return placement("from", placement_parts::map_and_offsets); };
  auto const to = [&] { return placement("to", placement_parts::map_and_offsets); };
  rank_rules const given{.of_placement = true};
  auto const where = [&](plimsoll::rank_set const& on) {
    return plimsoll::placement_options{
        .on = on,
        .replica_anti_affinity =
            run.option("where.replica_anti_affinity", plimsoll::anti_affinity::none),
        .anti_affinity_strength =
            run.option("where.anti_affinity_strength", plimsoll::strictness::preferred)};
  };
  auto const options = [&] {
    return plimsoll::migration_options{
        .split = run.option("options.split", plimsoll::split_rule::even),
        .judge_on = run.option("options.judge_on", plimsoll::judged_steps::unseen),
        .candidates = run.option("options.candidates", plimsoll::migration_candidates::all)};
  };
  auto const changes = run.call("count_changes", [&] {
    return plimsoll::count_changes(
        run.policy, from(), to(),
        {.on = run.ranks("options.on", 2, given),
         .relabel = run.option("options.relabel", plimsoll::relabeling::per_layer)});
  });
  run.expect(changes[0] == plimsoll::slot_changes{}, true);
  auto const changed = run.call("changed_layers",
                                [&] { return plimsoll::changed_layers(run.policy, from(), to()); });
  run.expect(changed.empty(), true);
  run.call("align", [&] {
    plimsoll::align(run.policy, from(), to(),
                    {.on = run.ranks("options.on", 2, given),
                     .relabel = run.option("options.relabel", plimsoll::relabeling::per_layer)},
                    run("physical_to_logical", map));
  });
  run.expect(map, {0, 1, 0, 1});
  auto const aligned = run.call("align", [&] {
    return plimsoll::align(
        run.policy, from(), placement("to"),
        {.relabel = run.option("options.relabel", plimsoll::relabeling::per_layer)});
  });
  run.expect(aligned.physical_to_logical.view(), {0, 1, 0, 1});
  run.call("plan_within", [&] {
    plimsoll::plan_within(run.policy, run.in("loads", loads), from(), to(),
                          where(run.ranks("where.on", 2, given)), options(),
                          run("physical_to_logical", map), run("replica_count", copies));
  });
  run.expect(map, {0, 1, 0, 1});
  auto const within = run.call("plan_within", [&] {
    return plimsoll::plan_within(run.policy, run.in("loads", loads), from(), to(),
                                 where({.ranks = 2}), options());
  });
  run.expect(within.physical_to_logical.view(), {0, 1, 0, 1});
  auto planner = run.call("layer_planner", [&] {
    return plimsoll::layer_planner(plimsoll::seq,
                                   placement("layer", placement_parts::map_and_offsets), 1,
                                   where(run.ranks("where.on", 2, given)), options());
  });
  auto const row = run.array(ints{9, 9, 9, 9}, 4);
  auto const row_copies = run.array(ints{9, 9}, 2);
  run.of_step("layer_planner::plan", [&] {
    planner.plan(run.in("loads", loads), from(), to(), run("physical_to_logical", row),
                 run("replica_count", row_copies));
  });
  run.expect(row, {0, 1, 0, 1});
  run.of_step("layer_planner::plan", [&] {
    planner.plan(run.in("loads", loads), from(), run("physical_to_logical", row),
                 run("replica_count", row_copies));
  });
  run.expect(row_copies, {2, 2});
  run.expect(plimsoll::price_of_move(
                 {.expert_bytes = 1, .seconds_per_byte = 1, .layer_seconds = 1, .steps = 2}),
             0.5);
  auto const moves = run.call("plan_transfers", [&] {
    return plimsoll::plan_transfers(
        run.policy, from(), to(),
        {.on = run.ranks("options.on", 2, {true, "a transfer takes as long on every rank"}),
         .rounds = run.option("options.rounds", plimsoll::round_rule::one_peer)});
  });
  run.expect(moves.list.empty(), true);
  run.call("validate", [&] { plimsoll::validate(run.policy, from(), to(), moves); });
}
PLIMSOLL_SAMPLE(migration);

}  // namespace plimsoll_test

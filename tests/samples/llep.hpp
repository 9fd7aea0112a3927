// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/llep.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// The first of two ranks, with four tokens of its own expert, sends two of them.
template <class Run>
void sample_llep(Run& run) {
  auto const ids = run.array(ints{0, 0, 0, 0}, 4, 1);
  auto const destinations = run.array(ints{9, 9, 9, 9}, 4, 1);
  auto const rows = run.array(ints{9, 9, 9, 9}, 4, 1);
  auto const arranged = run.array(ints(8, 9), 8);
  auto const groups = run.array(std::vector<plimsoll::spill_segment>(2), 2);
  auto const counted = run.array(std::vector<plimsoll::spill_counters>(1), 1);
  auto step = run.prepare("llep", [&] {
    return plimsoll::llep(
        run.policy,
        {.rank = 0,
         .assignment = {
             .on = run.ranks("options.assignment.on", 2),
             .experts = 2,
             .round = run.option("options.assignment.round", plimsoll::rounding_mode::up),
             .min_chunk = 1,
             .trigger =
                 run.option("options.assignment.trigger", plimsoll::spill_trigger::rank_imbalance),
             .small_excess = run.option("options.assignment.small_excess",
                                        plimsoll::small_excess_policy::helper),
             .max_token_copies = 4}});
  });
  auto const home_rank = run.array(ints{0, 1}, 2);
  run.work("llep::update", [&] {
    step.update({.home_rank = run.ids("homes.home_rank", home_rank)},
                run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("llep::count", [&] { step.count(run.ids("topk_ids", ids)); });
  run.write(step.counts(), {4, 0, 0, 0});  // the all-gather
  run.work("llep::plan", [&] { step.plan(); });
  run.work("llep::route", [&] {
    step.route(run.ids("topk_ids", ids), run("destinations", destinations), run("rows", rows),
               run("counters", counted));
  });
  run.expect(destinations, {0, 0, 1, 1});
  run.work("llep::arrange",
           [&] { step.arrange(run("arranged", arranged), run("groups", groups)); });
  run.expect(arranged.values()[0], 0);
}
PLIMSOLL_SAMPLE(llep);

}  // namespace plimsoll_test

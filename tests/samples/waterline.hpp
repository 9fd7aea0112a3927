// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/waterline.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Two tokens of rank 0, one for each rank.
template <class Run>
void sample_waterline(Run& run) {
  auto const ids = run.array(ints{0, 2}, 2, 1);
  auto const weights = run.array(std::vector<float>{1, 1}, 2, 1);
  auto const loads = run.array(longs{9, 9, 9, 9}, 2, 2);
  auto const out = run.array(ints{9, 9, 9, 9}, 2, 2);
  auto const out_weights = run.array(std::vector<float>{9, 9, 9, 9}, 2, 2);
  auto const out_ranks = run.array(ints{9, 9}, 2);
  auto line = run.prepare("waterline", [&] {
    return plimsoll::waterline(
        run.policy,
        {.on = run.ranks("options.on", 2),
         .slots = 4,
         .top_k = 1,
         .max_tokens = 4,
         .method = run.option("options.method", plimsoll::fill_method::surplus),
         .candidates = run.option("options.candidates", plimsoll::candidate_ranks::visited),
         .counts = run.option("options.counts", plimsoll::counted_ranks::all),
         .arithmetic = run.option("options.arithmetic", plimsoll::fill_arithmetic::exact)});
  });
  auto const offsets = run.array(ints{0, 2, 4}, 3);
  run.work("waterline::update", [&] {
    line.update(run("rank_offsets", offsets), run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("waterline::count",
           [&] { line.count(run.ids("topk_ids", ids), 0, run("loads", loads)); });
  run.work("waterline::plan", [&] { line.plan(run("loads", loads), 0); });
  run.work("waterline::fill", [&] {
    line.fill(run.ids("topk_ids", ids), 0, {.weights = run("batch.weights", weights)},
              run("ids", out),
              {.weights = run("rows.weights", out_weights), .ranks = run("rows.ranks", out_ranks)});
  });
  run.expect(out.values()[0], 0);
  run.expect(out.values()[2], 3);  // slot 2 of rank 1, and its shared expert before it
}
PLIMSOLL_SAMPLE(waterline);

}  // namespace plimsoll_test

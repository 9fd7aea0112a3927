// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/waterfill.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_waterfill(Run& run) {
  small_placement placement(run);
  auto const ids = run.array(ints{0, 1}, 2, 1);
  auto const out = run.array(ints{9, 9, 9, 9}, 2, 2);
  auto fill = run.prepare("waterfill", [&] {
    return plimsoll::waterfill(
        run.policy, placement("placement", placement_parts::offsets),
        {.line = {.on = run.ranks("options.line.on", 2, {.of_placement = true}),
                  .top_k = 1,
                  .max_tokens = 4,
                  .method = run.option("options.line.method", plimsoll::fill_method::surplus),
                  .candidates =
                      run.option("options.line.candidates", plimsoll::candidate_ranks::visited)}});
  });
  auto const offsets = run.array(ints{0, 2, 4}, 3);
  run.work("waterfill::update", [&] {
    fill.update(run("rank_offsets", offsets), run.ranks("on", 2, {.of_placement = true}));
  });
  run.work("waterfill::count", [&] { fill.count(run.ids("topk_ids", ids)); });
  run.work("waterfill::fill", [&] { fill.fill(run.ids("topk_ids", ids), {}, run("ids", out)); });
  run.expect(fill.report().extent(0), 1);
  run.expect(out.values()[0], 0);
}
PLIMSOLL_SAMPLE(waterfill);

}  // namespace plimsoll_test

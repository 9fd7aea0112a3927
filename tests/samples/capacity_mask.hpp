// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/capacity_mask.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Both tokens choose expert 0, which has room for one; the other keeps its candidate.
template <class Run>
void sample_capacity_mask(Run& run) {
  auto const ids = run.array(ints{0, 0}, 2, 1);
  auto const scores = run.array(std::vector<float>{1, 2}, 2, 1);
  auto const priorities = run.array(ints{0, 0}, 2);
  auto const weights = run.array(std::vector<float>{1, 2}, 2, 1);
  auto const kept = run.array(ints{9, 9}, 2, 1);
  auto const kept_weights = run.array(std::vector<float>{9, 9}, 2, 1);
  auto const positions = run.array(ints{9, 9}, 2, 1);
  auto const counts = run.array(ints{9, 9}, 2);
  auto const offsets = run.array(ints{9, 9, 9}, 3);
  auto const report = run.array(std::vector<plimsoll::capacity_report>(1), 1);
  auto mask = run.prepare("capacity_mask", [&] {
    return plimsoll::capacity_mask(
        run.policy, {.experts = 2,
                     .top_k = 1,
                     .candidates = 1,
                     .max_tokens = 2,
                     .round = run.option("options.round", plimsoll::rounding_mode::up),
                     .drop_by = run.option("options.drop_by", plimsoll::drop_policy::score),
                     .order = run.option("options.order", plimsoll::candidate_order::topk_first),
                     .normalize = run.option("options.normalize", plimsoll::normalization::none),
                     .pad = run.option("options.pad", plimsoll::padding_mode::none)});
  });
  run.work("capacity_mask::apply", [&] {
    mask.apply(run.ids("topk_ids", ids), run.in("topk_scores", scores),
               {.priorities = run("batch.priorities", priorities),
                .weights = run("batch.weights", weights)},
               plimsoll::kept_pairs{.ids = run("kept.ids", kept),
                                    .weights = run("kept.weights", kept_weights),
                                    .positions = run("kept.positions", positions),
                                    .counts = run("kept.counts", counts),
                                    .offsets = run("kept.offsets", offsets),
                                    .report = run("kept.report", report)});
  });
  run.expect(kept, {-1, 0});
  run.expect(counts, {1, 0});
}
PLIMSOLL_SAMPLE(capacity_mask);

}  // namespace plimsoll_test

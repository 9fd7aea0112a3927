// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/systems/token_drop.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Both tokens prefer expert 0, which has room for one.
template <class Run>
void sample_token_drop(Run& run) {
  auto const logits = run.array(std::vector<float>{2, 1, 3, 1}, 2, 2);
  auto const homes = run.array(ints{0, 0}, 2);
  auto const kept = run.array(ints{9, 9}, 2, 1);
  auto const counts = run.array(ints{9, 9}, 2);
  auto const report = run.array(std::vector<plimsoll::capacity_report>(1), 1);
  auto drop = run.prepare("token_drop", [&] {
    return plimsoll::token_drop(
        run.policy,
        {.function = run.option("options.function", plimsoll::score_function::softmax),
         .route = {.k = 1,
                   .function = run.option("options.route.function", plimsoll::score_function::none),
                   .normalize =
                       run.option("options.route.normalize", plimsoll::normalization::none)},
         .limit = {
             .experts = 2,
             .max_tokens = 2,
             .round = run.option("options.limit.round", plimsoll::rounding_mode::up),
             .drop_by = run.option("options.limit.drop_by", plimsoll::drop_policy::score),
             .normalize = run.option("options.limit.normalize", plimsoll::normalization::none),
             .pad = run.option("options.limit.pad", plimsoll::padding_mode::none)}});
  });
  run.work("token_drop::apply", [&] {
    drop.apply(run.in("logits", logits), {.homes = run("batch.homes", homes)},
               plimsoll::kept_pairs{.ids = run("kept.ids", kept),
                                    .counts = run("kept.counts", counts),
                                    .report = run("kept.report", report)});
  });
  run.expect(counts, {1, 0});
}
PLIMSOLL_SAMPLE(token_drop);

}  // namespace plimsoll_test

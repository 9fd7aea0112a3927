// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/top_k.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// The second of two scores is the larger one.
template <class Run>
void sample_top_k(Run& run) {
  auto const scores = run.array(std::vector<float>{1, 3}, 1, 2);
  auto const bias = run.array(std::vector<float>{0, 0}, 2);
  auto const ids = run.array(ints{9}, 1, 1);
  auto const weights = run.array(std::vector<float>{9}, 1, 1);
  run.of_step("top_k", [&] {
    plimsoll::top_k(run.policy, run.in("scores", scores),
                    {.k = 1,
                     .function = run.option("options.function", plimsoll::score_function::none),
                     .bias = run("options.bias", bias),
                     .normalize = run.option("options.normalize", plimsoll::normalization::none)},
                    run("topk_ids", ids), run("topk_weights", weights));
  });
  run.expect(ids, {1});
}
PLIMSOLL_SAMPLE(top_k);

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/knapsack.hpp>

#include <limits>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Options of weights 2 and 3; the capacity leaves the first.
template <class Run>
void sample_knapsack(Run& run) {
  auto const weights = run.array(ints{2, 3}, 1, 1, 2);
  auto const values = run.array(reals{5, 7}, 1, 1, 2);
  auto const capacities = run.array(longs{2}, 1);
  auto const options = run.array(ints{2}, 1, 1);
  auto const choices = run.array(ints{9}, 1, 1);
  run.call("knapsack", [&] {
    return plimsoll::knapsack(run.policy, run.in("weights", weights), run.in("values", values),
                              {.capacity = 2,
                               .fill = run.option("options.fill", plimsoll::knapsack_fill::at_most),
                               .choice = run.option("options.choice", plimsoll::class_choice::one),
                               .capacities = run("options.capacities", capacities),
                               .option_count = run("options.option_count", options)},
                              run("choices", choices));
  });
  run.expect(choices, {0});

  auto const best = run.array(reals{9, 9, 9}, 1, 3);
  run.call("knapsack_curve", [&] {
    return plimsoll::knapsack_curve(
        run.policy, run.in("weights", weights), run.in("values", values),
        {.capacity = 2,
         .fill = run.option("options.fill", plimsoll::knapsack_fill::at_most),
         .choice = run.option("options.choice", plimsoll::class_choice::one),
         .capacities = run("options.capacities", capacities)},
        run("best", best));
  });
  double const none = -std::numeric_limits<double>::infinity();
  run.expect(best, {none, none, 5});
}
PLIMSOLL_SAMPLE(knapsack);

}  // namespace plimsoll_test

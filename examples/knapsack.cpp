// SPDX-License-Identifier: Apache-2.0
// Divides four replicas over two layers so that their gains add up to the most.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/knapsack.hpp>

int main() {
  // [example]
  // The first layer may get 0, 1 or 2 replicas, the second 0, 1 or 3. Gains are in percent.
  int const replicas[] = {0, 1, 2, 0, 1, 3};
  double const gains[] = {0, 5, 6, 0, 4, 9};
  plimsoll::array const weights(plimsoll::seq, replicas, 1, 2, 3);  // [problems, classes, options]
  plimsoll::array const values(plimsoll::seq, gains, 1, 2, 3);
  auto choices = plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 2);  // [problems, classes]
  auto const result = plimsoll::knapsack(plimsoll::seq, weights, values, {.capacity = 4}, choices);
  std::printf("options %d and %d: gain %.0f\n", choices.view()(0, 0), choices.view()(0, 1),
              result[0].value);
  // [end]

  // [curve]
  auto best = plimsoll::zeros<double>(plimsoll::seq, 1, 5);  // [problems, capacity + 1]
  plimsoll::knapsack_curve(plimsoll::seq, weights, values, {.capacity = 4}, best);
  for (int capacity = 0; capacity <= 4; ++capacity) {
    std::printf("capacity %d: gain %.0f\n", capacity, best.view()(0, capacity));
  }
  // [end]
}

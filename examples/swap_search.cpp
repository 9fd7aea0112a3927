// SPDX-License-Identifier: Apache-2.0
// Experts that are busy in the same steps go to different ranks, which their summed loads cannot
// show.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/swap_search.hpp>

int main() {
  // [example]
  // Experts 0 and 1 are busy in step 0, experts 2 and 3 in step 1.
  int const tokens[] = {50, 40, 10, 5,    // step 0
                        5,  10, 40, 50};  // step 1

  plimsoll::array const loads(plimsoll::seq, tokens, 2, 1, 4);  // [steps, layers, experts]
  auto const plan =
      plimsoll::swap_search(plimsoll::seq, loads, plimsoll::token_cost{}, 4, {.on = {.ranks = 2}});
  auto const experts = plan.physical_to_logical.to_host();
  plimsoll::certificate const& layer = plan.certificates[0];
  std::printf("rank 0: experts %d %d; rank 1: experts %d %d\n", experts[0], experts[1], experts[2],
              experts[3]);
  std::printf("score %.0f tokens, lower bound %.0f\n", layer.value, layer.lower_bound);
  // [end]

  // [outputs]
  auto map = plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 4);  // [layers, slots]
  auto scores = plimsoll::zeros<double>(plimsoll::seq, 1, 3);     // [layers, restarts]
  auto const certificates = plimsoll::swap_search(plimsoll::seq, loads, plimsoll::token_cost{},
                                                  {.on = {.ranks = 2}, .restarts = 3}, map, scores);
  std::printf("three searches: %.0f %.0f %.0f tokens\n", scores.view()(0, 0), scores.view()(0, 1),
              scores.view()(0, 2));
  // [end]
  return certificates[0].value == layer.value ? 0 : 1;
}

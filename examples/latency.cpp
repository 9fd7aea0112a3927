// SPDX-License-Identifier: Apache-2.0
// Converts the tokens of two ranks of unequal speed to latencies, by a curve measured in tiles.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>

int main() {
  // [curves]
  // A staircase of 64 tokens a stair up to 256 tokens, then lines. Rank 1 takes 12 % longer.
  std::int64_t const samples[] = {64, 128, 192, 256, 448, 640};
  double const microseconds[] = {23, 26, 29, 32, 40, 50};
  double const speeds[] = {1, 1 / 1.12};
  plimsoll::latency_curves const curves{
      .tokens = samples, .latency = {microseconds, 1, 6}, .dense_until = 256, .speeds = speeds};
  std::printf("rank 0: %.2f us for 64 tokens, %.2f for 65, %.2f for 300\n", curves(0, 64),
              curves(0, 65), curves(0, 300));
  std::printf("rank 1: %.2f us for 64 tokens\n", curves(1, 64));
  // [end]

  // [replay]
  // Experts 0 and 1 are on rank 0, experts 2 and 3 on rank 1.
  int const tokens[] = {100, 40, 30,  60,   // step 0
                        10,  70, 200, 30};  // step 1
  int const map[] = {0, 1, 2, 3};
  int const copies[] = {1, 1, 1, 1};
  plimsoll::array const loads(plimsoll::seq, tokens, 2, 1, 4);  // [steps, layers, experts]
  auto const plan = plimsoll::copy_placement(plimsoll::seq, plimsoll::array_ref(map, 1, 4),
                                             plimsoll::array_ref(copies, 1, 4), 2);
  plimsoll::latency_table const table(plimsoll::seq, curves, 2);   // checks the curves
  auto of_rank = plimsoll::zeros<double>(plimsoll::seq, 2, 1, 2);  // [steps, layers, ranks]
  auto of_step = plimsoll::zeros<double>(plimsoll::seq, 2, 1);     // [steps, layers]
  plimsoll::rank_latencies(plimsoll::seq, loads, plan.ref(), table.cost(), of_rank);
  plimsoll::step_latencies(plimsoll::seq, loads, plan.ref(), table.cost(), of_step);
  for (int step = 0; step < 2; ++step) {
    std::printf("step %d: %.2f us, ranks %.2f %.2f\n", step, of_step.view()(step, 0),
                of_rank.view()(step, 0, 0), of_rank.view()(step, 0, 1));
  }
  // [end]

  // [sampling]
  auto const to_measure = plimsoll::sampling_plan(
      {.tile = 64, .dense_until = 256, .sparse_step = 1024, .max_tokens = 2048});
  std::printf("measure at");
  for (std::int64_t const n : to_measure) {
    std::printf(" %lld", static_cast<long long>(n));
  }
  std::printf(" tokens\n");
  // [end]
}

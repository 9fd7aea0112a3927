// SPDX-License-Identifier: Apache-2.0
// Eight experts of one layer on four GPUs, three slots each: the busiest expert gets four copies.
#include <cstdio>
#include <plimsoll/plimsoll.hpp>

int main() {
  int tokens[8] = {900, 300, 250, 200, 140, 110, 60, 40}, expert_of_slot[12], copies[8];
  double gpu_tokens[4];
  plimsoll::balance_stats balance[1];
  plimsoll::matrix_ref<int> loads(tokens, 1, 8), map(expert_of_slot, 1, 12), counts(copies, 1, 8);
  plimsoll::matrix_ref<double> gpu_loads(gpu_tokens, 1, 4);

  plimsoll::eplb(plimsoll::seq, loads, {.on = {.ranks = 4}}, map, counts);
  plimsoll::rank_loads(plimsoll::seq, loads, {map, counts, 4}, gpu_loads);
  plimsoll::measure(plimsoll::seq, gpu_loads, balance);

  for (int gpu = 0; gpu < 4; ++gpu) {
    int const* const held = expert_of_slot + 3 * gpu;
    std::printf("GPU %d: experts %d %d %d, %.0f tokens\n", gpu, held[0], held[1], held[2],
                gpu_tokens[gpu]);
  }
  std::printf("balancedness %.3f\n", balance[0].balancedness);
}

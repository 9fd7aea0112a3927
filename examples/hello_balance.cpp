// SPDX-License-Identifier: Apache-2.0
// Eight experts of one layer on four GPUs, three slots each: the busiest expert gets four copies.
#include <cstddef>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>

int main() {
  int const tokens[8] = {900, 300, 250, 200, 140, 110, 60, 40};
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 8);  // [layers, experts]
  auto const plan = plimsoll::eplb(plimsoll::seq, loads, 12, {.on = {.ranks = 4}});
  auto const gpu_loads = plimsoll::rank_loads(plimsoll::seq, loads, plan);
  auto const balance = plimsoll::measure(plimsoll::seq, gpu_loads).to_host();
  auto const experts = plan.physical_to_logical.to_host();
  auto const gpu_tokens = gpu_loads.to_host();
  for (std::size_t gpu = 0; gpu < 4; ++gpu) {
    std::printf("GPU %zu: experts %d %d %d, %.0f tokens\n", gpu, experts[3 * gpu],
                experts[3 * gpu + 1], experts[3 * gpu + 2], gpu_tokens[gpu]);
  }
  std::printf("balancedness %.3f\n", balance[0].balancedness);
}

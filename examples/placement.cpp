// SPDX-License-Identifier: Apache-2.0
// Places the copies of four experts on four GPUs of two slots, the heaviest first, each on the GPU
// that is least loaded.
#include <cstddef>
#include <cstdio>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/placement.hpp>
#include <vector>

int main() {
  // [example]
  plimsoll::array const loads(plimsoll::seq, std::vector<int>{900, 200, 60, 40}, 1, 4);
  plimsoll::array const copies(plimsoll::seq, std::vector<int>{4, 2, 1, 1}, 1, 4);
  auto const plan = plimsoll::place(plimsoll::seq, loads, copies, 8, {.on = {.ranks = 4}});
  auto const gpu_loads = plimsoll::rank_loads(plimsoll::seq, loads, plan.ref());
  // [end]
  std::vector<int> const experts = plan.physical_to_logical.to_host();
  auto const tokens = gpu_loads.to_host();
  for (std::size_t gpu = 0; gpu < 4; ++gpu) {
    std::printf("GPU %zu: experts %d %d, %.0f tokens\n", gpu, experts[2 * gpu],
                experts[2 * gpu + 1], tokens[gpu]);
  }
  plimsoll::certificate const layer = plan.certificates[0];
  std::printf("peak %.0f tokens, lower bound %.0f\n", layer.value, layer.lower_bound);
}

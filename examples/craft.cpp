// SPDX-License-Identifier: Apache-2.0
// Four layers of sixteen experts on four GPUs: CRAFT finds how many replicas the recorded loads
// justify, and gives them to the layers with skewed loads.
#include <cstddef>
#include <cstdio>
#include <plimsoll/systems/craft.hpp>
#include <vector>

int main() {
  std::vector<int>
      tokens;  // [steps, layers, experts]: even in layer 0, more skewed in each next one
  for (int step = 0; step < 8; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      for (int e = 0; e < 16; ++e) {
        tokens.push_back(1200 / (1 + layer * e) + (7 * step + 5 * e) % 16);
      }
    }
  }
  // [example]
  plimsoll::array const loads(plimsoll::seq, tokens, 8, 4, 16);
  auto const made = plimsoll::craft(plimsoll::seq, loads, {.on = {.ranks = 4}});
  plimsoll::replica_allocation const& chosen = made.allocation;
  // [end]
  for (std::size_t layer = 0; layer < 4; ++layer) {
    std::printf("layer %zu: replicas %d, balancedness %.3f -> %.3f\n", layer,
                chosen.replicas[layer], made.estimate.base[layer],
                made.estimate.base[layer] + chosen.gain[layer]);
  }
  std::printf("sum of gains: %.3f with %d replicas, %.3f with 16\n",
              chosen.curve[static_cast<std::size_t>(chosen.knee)], static_cast<int>(chosen.used),
              chosen.curve.back());
}

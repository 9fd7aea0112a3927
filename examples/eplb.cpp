// SPDX-License-Identifier: Apache-2.0
// The example of DeepSeek's EPLB: two layers of twelve experts in four groups get sixteen slots on
// eight GPUs of two nodes.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

int main() {
  std::vector<int> const tokens{90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
                                20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27};
  // [example]
  plimsoll::array const loads(plimsoll::seq, tokens, 2, 12);  // [layers, experts]
  auto const plan =
      plimsoll::eplb(plimsoll::seq, loads, 16, {.on = {.ranks = 8, .nodes = 2}, .groups = 4});
  // [end]
  std::vector<int> const experts = plan.physical_to_logical.to_host();
  for (std::size_t layer = 0; layer < 2; ++layer) {
    std::printf("layer %zu:", layer);
    for (std::size_t slot = 16 * layer; slot < 16 * (layer + 1); slot += 2) {
      std::printf(" [%d %d]", experts[slot], experts[slot + 1]);
    }
    std::printf(", peak %.1f tokens\n", plan.certificates[layer].value);
  }

  // [reference]
  // The same plan from the reference's arguments: loads, replicas, groups, nodes, GPUs.
  auto map = plimsoll::zeros<std::int64_t>(plimsoll::seq, 2, 16);
  auto slots = plimsoll::zeros<std::int64_t>(plimsoll::seq, 2, 12, 5);  // padded with -1
  auto copies = plimsoll::zeros<std::int64_t>(plimsoll::seq, 2, 12);
  plimsoll::rebalance_experts(plimsoll::seq, loads, 16, 4, 2, 8, map, slots, copies);
  // [end]
  auto const same = map.to_host() == std::vector<std::int64_t>(experts.begin(), experts.end());
  std::printf("rebalance_experts: %s map\n", same ? "the same" : "another");
}

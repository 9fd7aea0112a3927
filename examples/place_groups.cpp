// SPDX-License-Identifier: Apache-2.0
// Hierarchical EPLB in three steps, for twelve experts in four groups, two nodes and eight GPUs:
// each group goes to one node, then its experts get copies and slots within the node.
#include <cstddef>
#include <cstdio>
#include <plimsoll/placement.hpp>
#include <plimsoll/replication.hpp>
#include <vector>

int main() {
  std::vector<int> const tokens{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 12);  // [layers, experts]
  // [example]
  plimsoll::placement_options where{.on = {.ranks = 8, .nodes = 2}};
  auto node_experts = plimsoll::zeros<int>(plimsoll::seq, 1, 12);
  auto node_offsets = plimsoll::zeros<int>(plimsoll::seq, 1, 3);
  plimsoll::place_groups(plimsoll::seq, loads, 4, 16, where, node_experts, node_offsets);
  where.node_experts = node_experts.view();
  where.node_offsets = node_offsets.view();
  auto const made = plimsoll::replicate(plimsoll::seq, loads, 16, {.where = where});
  auto const plan = plimsoll::place(plimsoll::seq, loads, made.replica_count, 16, where);
  // [end]
  std::vector<int> const ids = node_experts.to_host();
  std::vector<int> const first = node_offsets.to_host();
  std::vector<int> const slots = plan.physical_to_logical.to_host();
  for (std::size_t node = 0; node < 2; ++node) {
    std::printf("node %zu: experts", node);
    for (auto i = static_cast<std::size_t>(first[node]);
         i < static_cast<std::size_t>(first[node + 1]); ++i) {
      std::printf(" %d", ids[i]);
    }
    std::printf("; slots of its GPUs:");
    for (std::size_t slot = 8 * node; slot < 8 * (node + 1); slot += 2) {
      std::printf(" [%d %d]", slots[slot], slots[slot + 1]);
    }
    std::printf("\n");
  }
}

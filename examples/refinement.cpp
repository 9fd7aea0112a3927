// SPDX-License-Identifier: Apache-2.0
// Improves a plan of EPLB for two hot experts on eight GPUs of two slots: two copies of the second
// expert give way to lighter experts.
#include <cstdio>
#include <plimsoll/refinement.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

namespace {

template <class Placement>
void print(char const* name, Placement const& plan) {
  std::printf("%-6s  copies", name);
  for (int const copies : plan.replica_count.to_host()) {
    std::printf(" %d", copies);
  }
  plimsoll::certificate const layer = plan.certificates[0];
  std::printf(", peak %.1f tokens, lower bound %.1f\n", layer.value, layer.lower_bound);
}

}  // namespace

int main() {
  std::vector<int> const tokens{600, 560, 120, 120, 20, 10, 10, 10};
  // [example]
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 8);  // [layers, experts]
  auto const plan = plimsoll::eplb(plimsoll::seq, loads, 16, {.on = {.ranks = 8}});
  auto const better = plimsoll::refine(plimsoll::seq, loads, plan.ref(), {}, {});
  // [end]
  print("eplb", plan);
  print("refine", better);
}

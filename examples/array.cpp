// SPDX-License-Identifier: Apache-2.0
// Counts the tokens of each GPU under a new placement and under the one that an engine has now.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

namespace {

void print(char const* what, std::vector<double> const& tokens) {
  std::printf("%s:", what);
  for (double const gpu : tokens) {
    std::printf(" %.0f", gpu);
  }
  std::printf("\n");
}

// [run]
template <class Policy>
void run(Policy const& policy) {
  std::vector<std::int32_t> const tokens{900, 300, 250, 200, 140, 110, 60, 40};
  plimsoll::array const loads(policy, tokens, 1, 8);        // [layers, experts], a copy
  auto gpu_tokens = plimsoll::zeros<double>(policy, 1, 4);  // [layers, ranks]

  // A planning call returns a placement, which owns its arrays.
  auto const plan = plimsoll::eplb(policy, loads, 12, {.on = {.ranks = 4}});
  plimsoll::rank_loads(policy, loads, plan.ref(), gpu_tokens);
  print("planned", gpu_tokens.to_host());

  // An engine's own maps: two experts on each GPU, without replicas.
  plimsoll::array const experts(policy, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, 1, 8);
  plimsoll::array const copies(policy, std::vector<std::int32_t>(8, 1), 1, 8);
  auto const now = plimsoll::copy_placement(policy, experts, copies, 4);
  plimsoll::rank_loads(policy, loads, now.ref(), gpu_tokens);
  print("now", gpu_tokens.to_host());
}
// [end]

}  // namespace

int main() { run(plimsoll::seq); }

// SPDX-License-Identifier: Apache-2.0
// Plans one layer of 16 experts on 8 GPUs from four recorded steps, and splits the tokens of the
// next step optimally: the plan made for that leaves every GPU a way out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

namespace {

constexpr int experts = 16;
constexpr int slots = 24;

/// Tokens of the experts in one step: two are hot, and all vary from step to step.
std::vector<int> tokens_of(int step) {
  std::vector<int> tokens;
  for (int e = 0; e < experts; ++e) {
    auto const draw = static_cast<std::uint64_t>(step * experts + e);
    tokens.push_back(static_cast<int>((e < 2 ? 500 : 150) *
                                      (0.1 + 1.8 * plimsoll::random::uniform(1, 0, draw))));
  }
  return tokens;
}

/// Prints the load of the busiest GPU if the step is split optimally under a plan.
template <class Placement>
void print(char const* name, Placement const& plan, std::vector<int> const& tokens) {
  plimsoll::minmax_lp split(plimsoll::seq, plan.ref());
  auto parts = plimsoll::zeros<double>(plimsoll::seq, 1, slots);
  split.solve(plimsoll::array(plimsoll::seq, tokens, 1, experts), parts);
  std::printf("%-15s busiest GPU %.1f tokens\n", name, split.certificates()[0].value);
}

}  // namespace

int main() {
  std::vector<int> recorded;  // [steps, layers, experts]
  for (int step = 0; step < 4; ++step) {
    auto const tokens = tokens_of(step);
    recorded.insert(recorded.end(), tokens.begin(), tokens.end());
  }
  // [example]
  plimsoll::array const history(plimsoll::seq, recorded, 4, 1, experts);
  auto const plan = plimsoll::place_by_flow(plimsoll::seq, history, slots, {.on = {.ranks = 8}});
  // [end]

  std::vector<int> const map = plan.physical_to_logical.to_host();
  for (std::size_t gpu = 0; gpu < 8; ++gpu) {
    std::printf("GPU %zu: experts %d %d %d\n", gpu, map[3 * gpu], map[3 * gpu + 1],
                map[3 * gpu + 2]);
  }
  auto sums = plimsoll::zeros<std::int64_t>(plimsoll::seq, 1, experts);
  plimsoll::sum_steps(plimsoll::seq, history, sums);
  auto const packed = plimsoll::eplb(plimsoll::seq, sums, slots, {.on = {.ranks = 8}});
  auto const next = tokens_of(4);
  double mean = 0;
  for (int const tokens : next) {
    mean += tokens / 8.0;
  }
  std::printf("next step:      mean %.1f tokens\n", mean);
  print("EPLB", packed, next);
  print("flow_placement", plan, next);
}

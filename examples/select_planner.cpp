// SPDX-License-Identifier: Apache-2.0
// Plans one layer of 16 experts on 8 GPUs with the planner whose plans last longest: four built-in
// ones and GEM, which the caller adds, plan on one half of eight recorded steps and are judged on
// the other.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/select_planner.hpp>
#include <vector>

namespace {

constexpr int steps = 8;
constexpr int experts = 16;
constexpr int slots = 24;

/// Tokens `[steps, layers, experts]` in which two experts are hot, and experts e and e + 4 are busy
/// in the same steps.
std::vector<int> recorded_tokens() {
  std::vector<int> tokens;
  for (int step = 0; step < steps; ++step) {
    for (int e = 0; e < experts; ++e) {
      auto const draw = static_cast<std::uint64_t>(step * 4 + e % 4);
      tokens.push_back(
          static_cast<int>((e < 2 ? 400 : 150) * (0.1 + plimsoll::random::uniform(1, 0, draw))));
    }
  }
  return tokens;
}

}  // namespace

int main() {
  auto const recorded = recorded_tokens();
  // [example]
  plimsoll::array const history(plimsoll::seq, recorded, steps, 1, experts);
  // GEM for GPUs that take 10 us and 1 us more for every 8 tokens.
  std::int64_t const tokens[] = {0, 8000};
  double const microseconds[] = {10, 1010};
  plimsoll::latency_curves const curves{.tokens = tokens, .latency = {microseconds, 1, 2}};
  auto const gem = plimsoll::candidate("gem", [&](auto const& policy, auto const& part) {
    return plimsoll::gem(
        policy, part, curves, slots,
        {.on = {.ranks = 8}, .spare_slots = plimsoll::spare_slot_use::hold_replicas});
  });
  auto const plan =
      plimsoll::select_planner(plimsoll::seq, history, slots, {.on = {.ranks = 8}}, gem);
  // [end]

  for (auto const& candidate : plan.candidates) {
    std::printf("%-12s %.4f, standard error %.4f\n", candidate.name.c_str(), candidate.balancedness,
                candidate.standard_error);
  }
  auto const chosen = static_cast<std::size_t>(plan.chosen);
  std::printf("chosen: %s\n", plan.candidates[chosen].name.c_str());
  auto const map = plan.physical_to_logical.to_host();
  for (std::size_t gpu = 0; gpu < 8; ++gpu) {
    std::printf("GPU %zu: experts %d %d %d\n", gpu, map[3 * gpu], map[3 * gpu + 1],
                map[3 * gpu + 2]);
  }
}

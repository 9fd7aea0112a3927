// SPDX-License-Identifier: Apache-2.0
// An engine asks every 150 steps whether a new plan is worth the stall of moving to it. The load
// first stays as it was, then other experts become busy. With few tokens a GPU takes the same time
// whatever its load, so that no plan is worth a move.
#include <cstdint>
#include <cstdio>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/replan_gate.hpp>
#include <tuple>
#include <vector>

namespace {

constexpr int steps = 12;
constexpr int experts = 16;
constexpr int slots = 24;
constexpr int gpus = 8;

/// Tokens `[steps, layers, experts]` in which `busy` and the next expert are hot.
std::vector<int> recent_tokens(std::uint64_t seed, int busy, int tokens) {
  std::vector<int> result;
  for (int i = 0; i < steps * experts; ++i) {
    double const draw = plimsoll::random::uniform(seed, 0, static_cast<std::uint64_t>(i));
    bool const is_hot = i % experts == busy || i % experts == busy + 1;
    result.push_back(static_cast<int>(tokens * (is_hot ? 4 : 1) * (0.5 + draw)));
  }
  return result;
}

void print(char const* load, plimsoll::replan_decision const& decision) {
  constexpr char const* answers[] = {"keep", "move", "insufficient evidence"};
  plimsoll::candidate_judgment const& judged = decision.candidates[0];
  std::printf("%-10s %s: gains %4.1f +- %.1f us of %5.1f us a step, costs %.0f us\n", load,
              answers[static_cast<int>(decision.answer)], 1e6 * judged.gain_seconds,
              1e6 * judged.standard_error, 1e6 * decision.step_seconds, 1e6 * judged.move_seconds);
}

}  // namespace

int main() {
  auto const planner = [](auto const& policy, auto const& history) {
    return plimsoll::place_by_flow(policy, history, slots, {.on = {.ranks = gpus}});
  };
  std::vector<int> const before = recent_tokens(1, 0, 2000);
  auto const in_use =
      planner(plimsoll::seq, plimsoll::array(plimsoll::seq, before, steps, 1, experts));

  for (auto const& [name, busy, tokens] :
       {std::tuple{"the same", 0, 2000}, {"changed", 9, 2000}, {"few tokens", 9, 20}}) {
    std::vector<int> const recent = recent_tokens(2, busy, tokens);
    // [example]
    plimsoll::array const window(plimsoll::seq, recent, steps, 1, experts);
    // A GPU takes 20 us for up to 200 tokens of a layer, and 10 ns for each further one.
    plimsoll::replan_options<> const when{
        .cost = {.launch = 20e-6, .per_token = 10e-9, .flat_below = 200},
        .horizon = 150,
        .expert_bytes = 44'000'000};
    auto const next = plimsoll::replan(plimsoll::seq, window, in_use, planner, when);
    if (next.decision.answer == plimsoll::replan_answer::move) {
      // next.physical_to_logical comes into use; plimsoll::plan_transfers lists what moves
    }
    // [end]
    print(name, next.decision);
  }
}

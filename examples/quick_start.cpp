// SPDX-License-Identifier: Apache-2.0
// Plans one layer of eight experts on four GPUs from recorded loads, then balances one step.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>

int main() {
  // [plan]
  // Token copies that the router has sent to each expert: [layers, experts].
  int const recorded[8] = {900, 300, 250, 200, 140, 110, 60, 40};
  plimsoll::array const loads(plimsoll::seq, recorded, 1, 8);
  // Twelve slots on four GPUs: four more than experts, so busy experts get several replicas.
  auto const plan = plimsoll::eplb(plimsoll::seq, loads, 12, {.on = {.ranks = 4}});
  // Balances steps of up to 16 token copies: eight tokens with two experts each.
  plimsoll::lplb balancer(plimsoll::seq, plan, {.max_token_copies = 16});
  // [end]

  // [step]
  // The router's choices for eight tokens: [tokens, k].
  int const chosen[16] = {0, 1, 0, 2, 3, 0, 0, 1, 4, 0, 0, 2, 6, 0, 0, 5};
  plimsoll::array const topk_ids(plimsoll::seq, chosen, 8, 2);
  auto counts = plimsoll::zeros<std::int32_t>(plimsoll::seq, 8);
  plimsoll::routing_counters routing;
  plimsoll::count_tokens(plimsoll::seq, topk_ids, {}, counts, routing);
  balancer.plan(counts);
  auto slots = plimsoll::zeros<std::int32_t>(plimsoll::seq, 8, 2);
  plimsoll::dispatch_counters counters;
  balancer.dispatch(0, topk_ids, slots, counters);
  balancer.check();
  // [end]

  auto const slot = slots.to_host();
  int copies[4] = {0, 0, 0, 0};
  for (std::size_t token = 0; token < 8; ++token) {
    int const first = slot[2 * token] / 3;
    int const second = slot[2 * token + 1] / 3;
    std::printf("token %zu: expert %d on GPU %d, expert %d on GPU %d\n", token, chosen[2 * token],
                first, chosen[2 * token + 1], second);
    ++copies[first];
    ++copies[second];
  }
  std::printf("token copies of the GPUs: %d %d %d %d\n", copies[0], copies[1], copies[2],
              copies[3]);
}

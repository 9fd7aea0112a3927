// SPDX-License-Identifier: Apache-2.0
// Plans a step with LPLB: counts the tokens of every expert and chooses the slot of every token.
#include <cstddef>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>
#include <vector>

int main() {
  // Four experts of one layer on two ranks, three slots each.
  int const history[4] = {8, 4, 3, 3};
  auto const placement = plimsoll::eplb(
      plimsoll::seq, plimsoll::array(plimsoll::seq, history, 1, 4), 6, {.on = {.ranks = 2}});

  // [step]
  // When the placement changes:
  plimsoll::lplb planner(plimsoll::seq, placement.ref(), {.max_token_copies = 16});
  std::vector<int> counts(4);                              // of the experts of one layer
  auto slots = plimsoll::zeros<int>(plimsoll::seq, 8, 2);  // [tokens, k]
  plimsoll::routing_counters routed;
  plimsoll::dispatch_counters dispatched;

  // Every step, on each rank: the ids of all ranks' tokens, eight tokens to two experts each.
  std::vector const ids{0, 1, 0, 3, 3, 0, 0, 2, 1, 3, 3, 0, 0, 3, 3, 1};
  plimsoll::array_ref const topk_ids(ids, 8, 2);
  plimsoll::count_tokens(plimsoll::seq, topk_ids, {}, counts, routed);
  planner.plan(counts);
  planner.dispatch(0, topk_ids, slots, dispatched);  // layer 0
  planner.check();
  // [end]

  // [own]
  // If a rank sees its own tokens only, four of the eight here, they exchange their own counts.
  auto own_counts = plimsoll::zeros<int>(plimsoll::seq, 2, 4);  // [ranks, experts], all-gathered
  for (int rank = 0; rank < 2; ++rank) {
    plimsoll::array_ref const own_ids(ids.data() + 8 * rank, 4, 2);
    plimsoll::array_ref const own_row(own_counts.data_handle() + 4 * rank, 4);
    plimsoll::count_tokens(plimsoll::seq, own_ids, {}, own_row, routed);
  }
  // Every rank makes the same plan. Here rank 1 gets its part of the quotas, and dispatches by it.
  planner.plan(0, own_counts, 1);
  auto own_slots = plimsoll::zeros<int>(plimsoll::seq, 4, 2);
  planner.dispatch(0, plimsoll::array_ref(ids.data() + 8, 4, 2), own_slots, dispatched);
  // [end]

  auto const experts = placement.physical_to_logical.to_host();
  for (int slot = 0; slot < 6; ++slot) {
    std::printf("slot %d, rank %d, expert %d: quota %d\n", slot, slot / 3,
                experts[static_cast<std::size_t>(slot)], planner.quotas()(0, slot));
  }
  std::printf("peak %lld\nslots of the first tokens:",
              static_cast<long long>(planner.reports()[0].peak));
  for (std::size_t token = 0; token < 4; ++token) {
    std::printf("  %d %d", slots.to_host()[2 * token], slots.to_host()[2 * token + 1]);
  }
  std::printf("\nslots of rank 1's own tokens: ");
  for (std::size_t token = 0; token < 4; ++token) {
    std::printf("  %d %d", own_slots.to_host()[2 * token], own_slots.to_host()[2 * token + 1]);
  }
  std::printf("\n");
}

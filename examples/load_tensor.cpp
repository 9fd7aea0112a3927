// SPDX-License-Identifier: Apache-2.0
// From the ids of a router to the loads of ranks: counts the tokens of two steps and sums them.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>

int main() {
  // [count]
  // Two steps of four tokens, which choose two of four experts each; -1 is padding, 9 is no expert.
  std::int32_t const chosen[2][8] = {{0, 2, 0, 1, 2, 0, -1, -1}, {3, 0, 0, 2, 1, 0, 2, 9}};
  auto counts = plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 4);  // [layers, experts]
  auto counters = plimsoll::zeros<plimsoll::routing_counters>(plimsoll::seq, 1);  // [layers]
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(plimsoll::seq, 1, 4);
  for (auto const& ids : chosen) {
    plimsoll::array const topk_ids(plimsoll::seq, ids, 1, 4, 2);  // [layers, tokens, k]
    plimsoll::count_tokens(plimsoll::seq, topk_ids, {}, counts, counters);
    window.push(counts);
    auto const of = counters.to_host()[0];
    std::printf("%d ids routed, %d not routed, %d out of range\n", int(of.routed), int(of.unrouted),
                int(of.out_of_range));
  }
  // [end]

  // [ranks]
  // When a plan is due: the loads of the last steps, and of two ranks with three slots each.
  auto total = plimsoll::zeros<std::int64_t>(plimsoll::seq, 1, 4);  // [layers, experts]
  window.sum(total);
  for (std::int64_t const load : total.to_host()) {
    std::printf("%d ", int(load));
  }
  std::printf("tokens per expert\n");

  std::int32_t const map[6] = {0, 1, 2, 0, 3, -1};  // expert 0 is on both ranks, one slot is empty
  std::int32_t const copies[4] = {2, 1, 1, 1};
  auto const placement =
      plimsoll::copy_placement(plimsoll::seq, plimsoll::array(plimsoll::seq, map, 1, 6),
                               plimsoll::array(plimsoll::seq, copies, 1, 4), 2);
  auto const ranks = plimsoll::rank_loads(plimsoll::seq, total, placement.ref()).to_host();
  std::printf("%.1f %.1f tokens per rank\n", ranks[0], ranks[1]);
  // [end]
}

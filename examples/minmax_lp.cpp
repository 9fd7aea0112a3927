// SPDX-License-Identifier: Apache-2.0
// Splits the load of a step over the replicas of a placement that was planned for other loads.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>

int main() {
  // Eight experts of one layer on four ranks, three slots each.
  int const history[8] = {900, 300, 250, 200, 140, 110, 60, 40};
  auto const placement = plimsoll::eplb(
      plimsoll::seq, plimsoll::array(plimsoll::seq, history, 1, 8), 12, {.on = {.ranks = 4}});

  // [solve]
  // When the placement changes:
  plimsoll::minmax_lp lp(plimsoll::seq, placement.ref());
  auto split = plimsoll::zeros<double>(plimsoll::seq, 1, 12);  // [layers, slots]

  // Every step:
  int const tokens[8] = {700, 340, 380, 150, 90, 160, 110, 70};
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 8);  // [layers, experts]
  lp.solve(loads, split);
  lp.check();
  plimsoll::certificate const& layer = lp.certificates()[0];
  // [end]

  auto const even = plimsoll::rank_loads(plimsoll::seq, loads, placement.ref()).to_host();
  auto const experts = placement.physical_to_logical.to_host();
  auto const of_slots = split.to_host();
  std::printf("rank    even  optimal  split over slots\n");
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::size_t const slot = 3 * rank;
    std::printf("rank %zu  %4.0f  %7.0f", rank, even[rank],
                of_slots[slot] + of_slots[slot + 1] + of_slots[slot + 2]);
    for (std::size_t i = slot; i < slot + 3; ++i) {
      std::printf("  expert %d: %3.0f", experts[i], of_slots[i]);
    }
    std::printf("\n");
  }
  std::printf("peak %.0f, lower bound %.0f\n", layer.value, layer.lower_bound);

  // [inputs]
  // The load already on each rank, and the ranks that prove the bound.
  double const shared_expert[4] = {120, 0, 0, 0};
  plimsoll::array const base_load(plimsoll::seq, shared_expert, 1, 4);   // [layers, ranks]
  auto bottleneck = plimsoll::zeros<std::uint8_t>(plimsoll::seq, 1, 4);  // [layers, ranks]
  lp.solve(loads, {.base_load = base_load.view()}, split, {.bottleneck = bottleneck.view()});
  // [end]
  lp.check();
  std::printf("with a base load on rank 0: peak %.0f, bottleneck", lp.certificates()[0].value);
  for (auto const part : bottleneck.to_host()) {
    std::printf(" %d", part);
  }
  std::printf("\n");
}

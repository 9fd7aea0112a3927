// SPDX-License-Identifier: Apache-2.0
// Rounds a split to whole tokens and chooses the slot of every token.
#include <cstdio>
#include <plimsoll/plimsoll.hpp>
#include <vector>

void print(char const* text, std::vector<int> const& values) {
  std::printf("%-14s", text);
  for (int const value : values) {
    std::printf(" %2d", value);
  }
  std::printf("\n");
}

int main() {
  // [quota]
  // Three experts on two ranks with two slots each: expert 0 is on both ranks.
  std::vector const experts{0, 1, 0, 2};
  plimsoll::placement_ref const placement{.physical_to_logical = {experts, 1, 4}, .ranks = 2};
  plimsoll::array const loads(plimsoll::seq, std::vector{4, 2, 1}, 1, 3);  // [layers, experts]
  plimsoll::array const split(plimsoll::seq, std::vector{1.5, 2.0, 2.5, 1.0}, 1, 4);

  std::vector<int> quotas(4);  // of the slots of one layer
  std::vector<plimsoll::quota_report> reports(1);
  plimsoll::round_split(plimsoll::seq, loads, placement, split, plimsoll::array_ref(quotas, 1, 4),
                        reports);
  plimsoll::check(plimsoll::seq, reports);
  // [end]
  print("quotas", quotas);
  std::printf("peak %lld, of the split %.1f\n", static_cast<long long>(reports[0].peak),
              reports[0].split_peak);

  // [dispatch]
  std::vector const ids{0, 1, 0, 0, 2, -1, 1, 0};
  auto slots = plimsoll::zeros<int>(plimsoll::seq, 8, 1);  // [tokens, k]
  plimsoll::dispatch_counters counters;
  plimsoll::dispatch(plimsoll::seq, plimsoll::array_ref(ids, 8, 1), experts, quotas, {.experts = 3},
                     slots, counters);
  // [end]
  print("ids", ids);
  print("slots", slots.to_host());

  // [sources]
  // Rank 0 has the first four of these tokens, rank 1 the others.
  std::vector const counts{3, 1, 0, 1, 1, 1};                 // [ranks, experts]
  auto of_ranks = plimsoll::zeros<int>(plimsoll::seq, 2, 4);  // [ranks, slots]
  plimsoll::divide_quotas(plimsoll::seq, quotas, plimsoll::array_ref(counts, 2, 3), placement, {},
                          of_ranks);
  // [end]
  auto const rows = of_ranks.to_host();
  print("from rank 0", std::vector(rows.begin(), rows.begin() + 4));
  print("from rank 1", std::vector(rows.begin() + 4, rows.end()));
}

// SPDX-License-Identifier: Apache-2.0
// Rounds a split to whole tokens and chooses the slot of every token.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>
#include <vector>

using ints = std::vector<std::int32_t>;

void print(char const* text, ints const& values) {
  std::printf("%-14s", text);
  for (std::int32_t const value : values) {
    std::printf(" %2d", value);
  }
  std::printf("\n");
}

int main() {
  // [quota]
  // Three experts on two ranks with two slots each: expert 0 is on both ranks.
  ints const experts{0, 1, 0, 2};
  plimsoll::placement_ref const placement{.physical_to_logical = {experts, 1, 4}, .ranks = 2};
  plimsoll::array const loads(plimsoll::seq, ints{4, 2, 1}, 1, 3);  // [layers, experts]
  plimsoll::array const split(plimsoll::seq, std::vector{1.5, 2.0, 2.5, 1.0}, 1, 4);

  ints quotas(4);  // of the slots of one layer
  std::vector<plimsoll::quota_report> reports(1);
  plimsoll::quota(plimsoll::seq, loads, placement, split, plimsoll::array_ref(quotas, 1, 4),
                  reports);
  plimsoll::check(plimsoll::seq, reports);
  // [end]
  print("quotas", quotas);
  std::printf("peak %lld, of the split %.1f\n", static_cast<long long>(reports[0].peak),
              reports[0].split_peak);

  // [dispatch]
  plimsoll::array const ids(plimsoll::seq, ints{0, 1, 0, 0, 2, -1, 1, 0}, 8, 1);  // [tokens, k]
  auto slots = plimsoll::zeros<std::int32_t>(plimsoll::seq, 8, 1);
  std::vector<plimsoll::dispatch_counters> counters(1);
  plimsoll::dispatch(plimsoll::seq, ids, experts, quotas, {.experts = 3}, slots, counters);
  // [end]
  print("ids", ids.to_host());
  print("slots", slots.to_host());

  // [sources]
  // Rank 0 has the first four of these tokens, rank 1 the others.
  plimsoll::array const counts(plimsoll::seq, ints{3, 1, 0, 1, 1, 1}, 2, 3);  // [ranks, experts]
  auto of_ranks = plimsoll::zeros<std::int32_t>(plimsoll::seq, 2, 4);         // [ranks, slots]
  plimsoll::source_quotas(plimsoll::seq, quotas, counts, placement, 1, of_ranks);
  // [end]
  ints const rows = of_ranks.to_host();
  print("from rank 0", ints(rows.begin(), rows.begin() + 4));
  print("from rank 1", ints(rows.begin() + 4, rows.end()));
}

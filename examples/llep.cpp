// SPDX-License-Identifier: Apache-2.0
// Plans a step with LLEP on two ranks. Both are in this process, which copies their counts instead
// of an all-gather.
#include <algorithm>
#include <cstdio>
#include <plimsoll/plimsoll.hpp>
#include <vector>

int main() {
  // [step]
  // Experts 0 and 1 on rank 0, experts 2 and 3 on rank 1; six tokens on each rank, one expert each.
  plimsoll::least_loaded_options const rules{
      .on = {.ranks = 2}, .experts = 4, .min_chunk = 1, .max_token_copies = 6};
  plimsoll::llep<plimsoll::seq_policy> ranks[2] = {
      {plimsoll::seq, {.rank = 0, .assignment = rules}},
      {plimsoll::seq, {.rank = 1, .assignment = rules}}};
  std::vector<int> const ids[2] = {{0, 0, 0, 2, 0, 0}, {0, 3, 0, 1, 1, 0}};

  // Every layer and step: each rank counts its tokens, and all-gathers the rows of `counts()`.
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].count(plimsoll::array_ref(ids[rank], 6, 1));
  }
  std::copy_n(&ranks[1].counts()(1, 0), 4, &ranks[0].counts()(1, 0));
  std::copy_n(&ranks[0].counts()(0, 0), 4, &ranks[1].counts()(0, 0));
  // [end]

  for (int rank = 0; rank < 2; ++rank) {
    plimsoll::llep<plimsoll::seq_policy>& step = ranks[rank];
    // [route]
    step.plan();
    step.check();
    auto destinations = plimsoll::zeros<int>(plimsoll::seq, 6, 1);  // [tokens, k]
    auto rows = plimsoll::zeros<int>(plimsoll::seq, 6, 1);          // [tokens, k]
    plimsoll::spill_counters counters;
    step.route(plimsoll::array_ref(ids[rank], 6, 1), destinations, rows, counters);
    std::vector<int> arranged(12);  // room for as many rows as a rank may receive
    std::vector<plimsoll::spill_segment> groups(4);
    step.arrange(arranged, groups);
    // [end]

    std::printf("rank %d\n  sends %d %d, receives %d %d\n  destination of each token:", rank,
                step.send_counts()[0], step.send_counts()[1], step.receive_counts()[0],
                step.receive_counts()[1]);
    for (int const to : destinations.to_host()) {
      std::printf(" %d", to);
    }
    std::printf("\n");
    for (plimsoll::spill_segment const& group : groups) {
      if (group.expert >= 0) {
        std::printf("  computes expert %d in rows [%d, %d)\n", group.expert, group.begin,
                    group.end);
      }
    }
  }
  auto const& plan = ranks[0].assignment();
  for (int i = 0; i < plan.report()->transfers; ++i) {
    std::printf("weights of expert %d: rank %d to %d\n", plan.transfers()[i].expert,
                plan.transfers()[i].from, plan.transfers()[i].to);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Spills the excess tokens of an overloaded rank, and sends each token to the rank that computes
// it.
#include <cstdio>
#include <plimsoll/plimsoll.hpp>
#include <vector>

int main() {
  // [plan]
  // Experts 0 and 1 on rank 0, experts 2 and 3 on rank 1; six tokens on each rank, one expert each.
  plimsoll::least_loaded planner(plimsoll::seq, {.on = {.ranks = 2},
                                                 .experts = 4,
                                                 .min_chunk = 1,
                                                 .expert_bytes = 1024,
                                                 .max_token_copies = 6});
  std::vector<int> const ids[2] = {{0, 0, 0, 2, 0, 0}, {0, 3, 0, 1, 1, 0}};

  std::vector<int> counts(2 * 4);  // [ranks, experts]: each rank counts its row; then an all-gather
  for (int rank = 0; rank < 2; ++rank) {
    planner.count(plimsoll::array_ref(ids[rank], 6, 1),
                  plimsoll::array_ref(counts.data() + 4 * rank, 4));
  }
  planner.add_up(plimsoll::array_ref(counts, 2, 4));
  planner.plan();
  planner.exchange();
  planner.check();
  for (int i = 0; i < planner.report()->segments; ++i) {
    plimsoll::spill_segment const& s = planner.segments()[i];
    std::printf("expert %d: tokens [%d, %d) on rank %d\n", s.expert, s.begin, s.end, s.rank);
  }
  for (int i = 0; i < planner.report()->transfers; ++i) {
    plimsoll::spill_transfer const& t = planner.transfers()[i];
    std::printf("expert %d: %lld bytes of weights from rank %d to %d\n", t.expert,
                static_cast<long long>(t.bytes), t.from, t.to);
  }
  // [end]

  for (int rank = 0; rank < 2; ++rank) {
    // [rows]
    plimsoll::array_ref const topk_ids(ids[rank], 6, 1);
    // `route` uses the last `count`: this process, which has two ranks, counts again.
    planner.count(topk_ids, plimsoll::array_ref(counts.data() + 4 * rank, 4));
    auto to = plimsoll::zeros<int>(plimsoll::seq, 6, 1);    // [tokens, k]
    auto rows = plimsoll::zeros<int>(plimsoll::seq, 6, 1);  // [tokens, k]
    plimsoll::spill_counters counters;
    planner.route(rank, topk_ids, to, rows, counters);
    auto arranged = plimsoll::zeros<int>(plimsoll::seq, planner.exchange_reports()[rank].received);
    std::vector<plimsoll::spill_segment> groups(4);
    planner.arrange(rank, arranged, groups);
    // [end]
    std::printf("rank %d\n  token's rank, row:", rank);
    for (int t = 0; t < 6; ++t) {
      std::printf("  %d, %d", to.view()(t, 0), rows.view()(t, 0));
    }
    std::printf("\n  sends %d %d, receives %d %d; computes them in rows",
                planner.send_counts()(rank, 0), planner.send_counts()(rank, 1),
                planner.receive_counts()(rank, 0), planner.receive_counts()(rank, 1));
    for (int const row : arranged.to_host()) {
      std::printf(" %d", row);
    }
    std::printf("\n");
  }
}

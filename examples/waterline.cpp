// SPDX-License-Identifier: Apache-2.0
// Three ranks of four tokens: rank 0 is busiest and sends rows of the shared expert to the others.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/waterline.hpp>
#include <vector>

int main() {
  // [example]
  // The slots that each rank's tokens chose, two a token. Every rank has one slot.
  std::vector<std::int32_t> const chosen[3] = {
      {0, 1, 0, 2, 0, 2, 0, 1}, {0, 1, 1, 0, 1, 2, 0, 1}, {0, 1, 2, 0, 2, 0, 0, 2}};
  plimsoll::waterline line(
      plimsoll::seq,
      {.on = {.ranks = 3}, .slots = 3, .top_k = 2, .max_tokens = 4, .min_tokens = 0});

  // Every rank counts its tokens; here a sum replaces the all-reduce of an engine.
  auto loads = plimsoll::zeros<std::int64_t>(plimsoll::seq, 2, 3);  // [2, ranks]
  auto own = plimsoll::zeros<std::int64_t>(plimsoll::seq, 2, 3);
  for (int rank = 0; rank < 3; ++rank) {
    plimsoll::array const topk_ids(plimsoll::seq, chosen[rank], 4, 2);
    line.count(topk_ids, rank, own);
    for (int r = 0; r < 3; ++r) {
      loads.view()(0, r) += own.view()(0, r);
      loads.view()(1, r) += own.view()(1, r);
    }
  }

  // Rank 0 places its rows.
  plimsoll::array const topk_ids(plimsoll::seq, chosen[0], 4, 2);
  auto ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4, 3);
  auto ranks = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4);
  line.plan(loads, 0);
  line.fill(topk_ids, 0, {}, ids, {.ranks = ranks.view()});
  line.check();
  // [end]

  auto const load = loads.to_host();
  auto const slack = line.slack();
  auto const& report = *line.report();
  std::printf("routed %d %d %d, level %g, peak at home %g\n", static_cast<int>(load[0]),
              static_cast<int>(load[1]), static_cast<int>(load[2]), report.level, report.home_peak);
  std::printf("slack  %d %d %d, rows that leave rank 0: %d\n", static_cast<int>(slack[0]),
              static_cast<int>(slack[1]), static_cast<int>(slack[2]),
              static_cast<int>(report.moved));
  auto const id = ids.to_host();
  auto const rank_of = ranks.to_host();
  for (std::size_t t = 0; t < 4; ++t) {
    std::printf("token %zu: ids %d %d, shared expert %d on rank %d\n", t, id[3 * t], id[3 * t + 1],
                id[3 * t + 2], rank_of[t]);
  }
}

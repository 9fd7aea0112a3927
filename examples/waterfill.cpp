// SPDX-License-Identifier: Apache-2.0
// Two ranks of two slots: rank 1 is busier and sends rows of the shared expert to rank 0.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <vector>

int main() {
  // [example]
  plimsoll::array const map(plimsoll::seq, std::vector<std::int32_t>{0, 1, 0, 2}, 1, 4);
  plimsoll::array const copies(plimsoll::seq, std::vector<std::int32_t>{2, 1, 1}, 1, 3);
  auto const placement = plimsoll::copy_placement(plimsoll::seq, map, copies, 2);

  // In an engine, each rank has one object, with its own number.
  plimsoll::waterline_options const line{.top_k = 2, .max_tokens = 4, .min_tokens = 0};
  plimsoll::waterfill first(plimsoll::seq, placement.ref(), {.rank = 0, .line = line});
  plimsoll::waterfill second(plimsoll::seq, placement.ref(), {.rank = 1, .line = line});

  // The slots that the tokens of each rank chose, two a token.
  std::vector<std::int32_t> const of_first{3, 2, 3, 1, 2, 3, 0, 2};
  std::vector<std::int32_t> const of_second{3, 0, 3, 2, 1, 3, 0, 2};
  plimsoll::array const first_slots(plimsoll::seq, of_first, 4, 2);
  plimsoll::array const second_slots(plimsoll::seq, of_second, 4, 2);
  first.count(first_slots);
  second.count(second_slots);
  for (int row = 0; row < 2; ++row) {  // in place of the all-reduce
    for (int rank = 0; rank < 2; ++rank) {
      second.loads()(row, rank) += first.loads()(row, rank);
      first.loads()(row, rank) = second.loads()(row, rank);
    }
  }

  auto ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4, 3);  // [tokens, top_k + 1]
  auto ranks = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4);
  second.fill(second_slots, {}, ids, {.ranks = ranks.view()});
  second.check();
  // [end]

  auto const loads = second.loads();
  std::printf("routed %d %d, at home %d %d, level %g, rows that leave rank 1: %d\n",
              static_cast<int>(loads(0, 0)), static_cast<int>(loads(0, 1)),
              static_cast<int>(loads(1, 0)), static_cast<int>(loads(1, 1)), second.report()->level,
              static_cast<int>(second.report()->moved));
  auto const id = ids.to_host();
  auto const rank_of = ranks.to_host();
  for (std::size_t t = 0; t < 4; ++t) {
    std::printf("token %zu: ids %d %d, shared expert %d on rank %d\n", t, id[3 * t], id[3 * t + 1],
                id[3 * t + 2], rank_of[t]);
  }
}

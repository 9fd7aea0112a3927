// SPDX-License-Identifier: Apache-2.0
#include "eplb.cases.hpp"

namespace plimsoll_test {

TEST_CASE("eplb: shapes are checked") {
  ints loads(6, 1);
  ints map(8);
  ints counts(6);
  auto const run = [&](index_t map_layers, index_t count_layers, index_t count_experts) {
    plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(loads.data(), 2, 3),
                   {.ranks = 2}, plimsoll::matrix_ref<std::int32_t>(map.data(), map_layers, 4),
                   plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, count_experts));
  };
  CHECK_NOTHROW(run(2, 2, 3));
  CHECK_THROWS_WITH_AS(run(1, 2, 3), "eplb: physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 1, 3), "eplb: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 2), "eplb: replica_count: expected 3 experts, got 2",
                       plimsoll::invalid_input);
}

}  // namespace plimsoll_test

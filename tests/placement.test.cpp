// SPDX-License-Identifier: Apache-2.0
#include "placement.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("placement: the same bits in every team") {
  for (auto const [experts, ranks, slots] :
       {std::array<index_t, 3>{1, 1, 1}, {40, 7, 45}, {40, 40, 40}, {30, 36, 36}, {5, 3, 9}}) {
    auto loads = as<float>(skewed_loads(4, experts, 9));
    loads.back() = -1;  // the last layer is refused
    ints counts(loads.size(), 1);
    counts[0] += static_cast<std::int32_t>(experts == 30 ? slots - experts : 0);
    ints map(static_cast<std::size_t>(4 * slots), -7);
    std::vector<plimsoll::detail::problem_report> reports(4);
    using view = plimsoll::matrix_ref<float const>;
    plimsoll::detail::placement_body<view> const body{
        view(loads.data(), 4, experts),
        plimsoll::matrix_ref<std::int32_t const>(counts.data(), 4, experts),
        {{}, slots, ranks},
        plimsoll::matrix_ref<std::int32_t>(map.data(), 4, slots),
        reports.data()};
    check_all_teams(body, 4, map, [&] { return report_values(reports); });
  }
}

TEST_CASE("placement: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  ints counts(6, 1);
  ints map(8);
  auto const run = [&](index_t count_layers, index_t count_experts, index_t map_layers) {
    plimsoll::place(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, count_experts),
                    {.ranks = 2}, plimsoll::matrix_ref<std::int32_t>(map.data(), map_layers, 4));
  };
  CHECK_NOTHROW(run(2, 3, 2));
  CHECK_THROWS_WITH_AS(run(1, 3, 2), "place: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 2), "place: replica_count: expected 3 experts, got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 3, 1), "place: physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);
}

TEST_CASE("placement: temporaries come from the policy and go back, also when it throws") {
  std::vector<float> loads(60, 1.0f);
  ints counts(60, 1);
  ints map(72);
  auto const run = [&](auto& resource) {
    plimsoll::place(plimsoll::seq(resource), plimsoll::matrix_ref<float>(loads.data(), 3, 20),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20), {.ranks = 8},
                    plimsoll::matrix_ref<std::int32_t>(map.data(), 3, 24));
  };
  check_temporaries(2, run);  // reports and one scratch area
}

}  // namespace plimsoll_test

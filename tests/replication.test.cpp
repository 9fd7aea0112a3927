// SPDX-License-Identifier: Apache-2.0
#include "replication.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("replication: the same bits in every team") {
  for (auto const [experts, slots, most] :
       {std::array<index_t, 3>{1, 3, 99}, {40, 40, 1}, {40, 67, 99}, {70, 131, 3}}) {
    auto loads = as<float>(skewed_loads(4, experts, 9));
    loads.back() = -1;  // the last layer is refused
    std::vector<std::int32_t> counts(loads.size(), -7);
    std::vector<plimsoll::detail::problem_report> reports(4);
    using view = plimsoll::matrix_ref<float const>;
    plimsoll::detail::replication_body<view> const body{
        view(loads.data(), 4, experts),
        slots,
        {1, {}},
        {static_cast<std::int32_t>(most), {}},
        plimsoll::matrix_ref<std::int32_t>(counts.data(), 4, experts),
        reports.data()};
    check_all_teams(body, 4, counts, [&] { return report_values(reports); });
  }
}

TEST_CASE("replication: loads count to 47 bits of their total") {
  replicated<plimsoll::seq_policy> const got(std::vector<double>{16, 16 + 0x1p-38, 1}, 1, 3, 4);
  CHECK(got.counts == std::vector<std::int32_t>{1, 2, 1});
}

TEST_CASE("replication: loads may be a function of the indices") {
  std::vector<std::int32_t> counts(4);
  plimsoll::replicate(plimsoll::seq,
                      plimsoll::generate([](index_t, index_t e) { return e == 2 ? 8 : 1; }, 1, 4),
                      7, {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 4));
  CHECK(counts == std::vector<std::int32_t>{1, 1, 4, 1});
}

TEST_CASE("replication: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  std::vector<std::int32_t> counts(8);
  auto const run = [&](index_t layers, index_t experts) {
    plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), 5, {},
                        plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
  };
  CHECK_THROWS_WITH_AS(run(1, 3), "replicate: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 4), "replicate: replica_count: expected 3 experts, got 4",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 0), 5, {},
                          plimsoll::matrix_ref<std::int32_t>(counts.data(), 2, 0)),
      "replicate: loads: expected 1 to 65535 experts, got 0", plimsoll::invalid_input);
}

TEST_CASE("replication: temporaries come from the policy and go back, also when it throws") {
  std::vector<float> loads(60, 1.0f);
  std::vector<std::int32_t> counts(60);
  auto const run = [&](auto& resource) {
    plimsoll::replicate(plimsoll::seq(resource), plimsoll::matrix_ref<float>(loads.data(), 3, 20),
                        25, {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20));
  };
  check_temporaries(2, run);  // reports and one scratch area
}

}  // namespace plimsoll_test

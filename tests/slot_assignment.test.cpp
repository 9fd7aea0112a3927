// SPDX-License-Identifier: Apache-2.0
// Tests of slot_assignment under the host's policies; every team, shapes, temporaries.
#include "slot_assignment.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("slot_assignment: the same bits in every team") {
  struct input {
    ints layer_slots;
    index_t ranks;
    flags active;
  };
  flags some_dead(70, 1);
  some_dead[0] = some_dead[33] = some_dead[69] = 0;
  for (input const& in :
       {input{{2, 2, 7, 5}, 4, {}}, input{{100, 3, 66, 40, 40, 67}, 70, some_dead},
        input{{1, 32, 31, 33}, 33, {}}, input{{5, -1}, 3, {}}, input{{5}, 2, {0, 0}}}) {
    for (bool const endpoints : {false, true}) {
      // The same layers as two problems; the second starts again with zero totals.
      auto const layers = static_cast<index_t>(in.layer_slots.size());
      ints twice = in.layer_slots;
      twice.insert(twice.end(), in.layer_slots.begin(), in.layer_slots.end());
      auto const half = static_cast<std::ptrdiff_t>(layers * (in.ranks + 1));
      ints offsets(static_cast<std::size_t>(2 * half), -7);
      std::vector<plimsoll::detail::problem_report> reports(2);
      plimsoll::vector_ref<std::uint8_t const> active;
      if (!in.active.empty()) {
        active = plimsoll::vector_ref<std::uint8_t const>(in.active.data(), in.ranks);
      }
      plimsoll::detail::slot_assignment_body const body{
          plimsoll::vector_ref<std::int32_t const>(twice.data(), 2 * layers),
          layers,
          active,
          in.ranks,
          endpoints,
          plimsoll::matrix_ref<std::int32_t>(offsets.data(), 2 * layers, in.ranks + 1),
          reports.data()};
      check_all_teams(body, 2, offsets, [&] { return report_values(reports); });
      CHECK(ints(offsets.begin(), offsets.begin() + half) ==
            ints(offsets.begin() + half, offsets.end()));
    }
  }
}

TEST_CASE("slot_assignment: any container of slots is accepted") {
  std::vector<std::int32_t> const slots{6, 6};
  ints offsets(6);
  plimsoll::assign_slots(plimsoll::seq, slots, {.on = {.ranks = 2}},
                         plimsoll::matrix_ref<std::int32_t>(offsets.data(), 2, 3));
  CHECK(offsets == ints{0, 3, 6, 0, 3, 6});
}

TEST_CASE("slot_assignment: shapes are checked") {
  ints const slots{6, 6};
  ints offsets(20);
  auto const run = [&](index_t layers, index_t columns) {
    plimsoll::assign_slots(plimsoll::seq, slots, {.on = {.ranks = 3}},
                           plimsoll::matrix_ref<std::int32_t>(offsets.data(), layers, columns));
  };
  CHECK_THROWS_WITH_AS(run(3, 4), "assign_slots: rank_offsets: expected 2 layers, got 3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 3),
                       "assign_slots: rank_offsets: expected 4 offsets (ranks + 1), got 3",
                       plimsoll::invalid_input);
}

TEST_CASE("slot_assignment: temporaries come from the policy and go back, also when it throws") {
  ints const slots{6, 6};
  ints offsets(10);
  auto const run = [&](auto& resource) {
    plimsoll::assign_slots(plimsoll::seq(resource), slots, {.on = {.ranks = 4}},
                           plimsoll::matrix_ref<std::int32_t>(offsets.data(), 2, 5));
  };
  check_temporaries(2, run);  // the report and one scratch area
}

}  // namespace plimsoll_test

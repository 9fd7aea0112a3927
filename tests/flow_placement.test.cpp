// SPDX-License-Identifier: Apache-2.0
// Tests of flow_placement under the host's policies; every team, shapes, temporaries.
#include "flow_placement.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("flow_placement: the same bits in every team") {
  auto const check = [](flow_case const& c) {
    index_t const plans = 2 * c.layers;  // with two bonuses
    ints map(static_cast<std::size_t>(plans * c.slots), -7);
    ints counts(static_cast<std::size_t>(plans * c.experts), -7);
    std::vector<plimsoll::detail::flow_outcome> outcomes(static_cast<std::size_t>(plans));
    options_in<plimsoll::seq_policy> const where(c.where, c.layers);
    using view = plimsoll::tensor_ref<std::int64_t const>;
    plimsoll::detail::flow_placement_body<view> const body{
        .loads = view(c.loads.data(), c.steps, c.layers, c.experts),
        .where = plimsoll::detail::topology_of(*where, c.slots),
        .split = c.split,
        .max_partners = c.max_partners,
        .in_use = c.in_use.empty() ? plimsoll::matrix_ref<std::int32_t const>{}
                                   : plimsoll::matrix_ref<std::int32_t const>(c.in_use.data(),
                                                                              c.layers, c.slots),
        .keep_bonuses = {2, {c.keep_bonus, 0.3}},
        .load_exponent = c.steps % 2 == 0 ? 0.8 : 1.0,
        .physical_to_logical = plimsoll::matrix_ref<std::int32_t>(map.data(), plans, c.slots),
        .replica_count = plimsoll::matrix_ref<std::int32_t>(counts.data(), plans, c.experts),
        .outcomes = outcomes.data()};
    check_all_teams(body, plans, map, counts, [&] {
      std::vector<double> values;
      for (auto const& [report, refused] : outcomes) {
        add_report(
            values,
            {static_cast<double>(report.idle_steps), static_cast<double>(report.empty_slots)},
            refused);
      }
      return values;
    });
  };
  for (std::uint64_t seed = 0; seed < cases_of(8); ++seed) {
    CAPTURE(seed);
    check(random_flow(seed));
    check(random_flow_in_use(seed));
  }
  draws draw(5);
  flow_case wide{.steps = 3, .experts = 50, .slots = 90};
  wide.where.ranks = 35;
  wide.loads = drifting_loads(draw, wide.steps, 1, wide.experts);
  check(wide);
}

TEST_CASE("flow_placement: the same bounds of steps in every team") {
  flow_case c = large_flow(16, 20);
  c.loads[c.loads.size() - 3] = -1;  // a refused step has no bound
  auto const steps = static_cast<std::size_t>(c.steps * c.layers);
  std::vector<double> bounds(steps, -7.0);
  std::vector<double> reach;
  for (int r = 0; r <= 16; ++r) {
    reach.push_back(r);
  }
  using view = plimsoll::tensor_ref<std::int64_t const>;
  plimsoll::detail::step_bound_body<view> const body{
      .loads = view(c.loads.data(), c.steps, c.layers, c.experts),
      .where = {{{}, c.slots, 16}},
      .reach = reach.data(),
      .bounds = bounds.data()};
  check_all_teams(body, c.steps * c.layers, bounds);
  CHECK(bounds.back() == 0);
}

TEST_CASE("flow_placement: loads may be a function of the indices") {
  ints map(4);
  ints counts(3);
  auto const loads = plimsoll::generate(
      [](index_t step, index_t, index_t e) { return e == step ? 8 : 1; }, 2, 1, 3);
  plimsoll::place_by_flow(plimsoll::seq, loads, {.on = {.ranks = 2}},
                          plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 4),
                          plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 3));
  flow_case c{.steps = 2, .experts = 3, .slots = 4, .loads = {8, 1, 1, 1, 8, 1}};
  c.where.ranks = 2;
  CHECK(map == slow_flow_of(c)->map);
}

TEST_CASE("flow_placement: shapes are checked") {
  longs const loads(12, 1);
  ints map(20);
  ints counts(20);
  auto const run = [&](index_t layers, index_t count_layers, index_t experts) {
    plimsoll::place_by_flow(
        plimsoll::seq, plimsoll::tensor_ref<std::int64_t const>(loads.data(), 2, 2, 3),
        {.on = {.ranks = 2}}, plimsoll::matrix_ref<std::int32_t>(map.data(), layers, 4),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, experts));
  };
  CHECK_THROWS_WITH_AS(run(3, 2, 3), "place_by_flow: physical_to_logical: expected 2 layers, got 3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 1, 3), "place_by_flow: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 4), "place_by_flow: replica_count: expected 3 experts, got 4",
                       plimsoll::invalid_input);
  ints const used{0, 1, 2, -1, 0, 3, 2, -1, 0, 1};
  auto const from = [&](plimsoll::flow_placement_options options) {
    options.on.ranks = 2;
    plimsoll::place_by_flow(plimsoll::seq,
                            plimsoll::tensor_ref<std::int64_t const>(loads.data(), 2, 2, 3),
                            options, plimsoll::matrix_ref<std::int32_t>(map.data(), 2, 4),
                            plimsoll::matrix_ref<std::int32_t>(counts.data(), 2, 3));
  };
  auto const in_use = [&](index_t layers, index_t slots) {
    return plimsoll::matrix_ref<std::int32_t const>(used.data(), layers, slots);
  };
  CHECK_THROWS_WITH_AS(from({.in_use = in_use(1, 4)}),
                       "place_by_flow: options.in_use: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(from({.in_use = in_use(2, 5)}),
                       "place_by_flow: options.in_use: expected 4 slots, got 5",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(from({.keep_bonus = -0.5}),
                       "place_by_flow: options.keep_bonus: expected 0 to 2^60, got -0.5",
                       plimsoll::invalid_input);
  for (double const bonus : {0.0, 1.0}) {
    CHECK_THROWS_WITH_AS(from({.in_use = in_use(2, 4), .keep_bonus = bonus}),
                         "place_by_flow: options.in_use: expected -1 or an expert of the layer, "
                         "got 3 in layer 1, slot 1",
                         plimsoll::invalid_input);
  }
  ints const ends{0, 2, 3, 0, 2, 3};
  CHECK_THROWS_WITH_AS(
      from({.rank_offsets = {ends.data(), 2, 3}, .in_use = {used.data() + 1, 2, 4}}),
      "place_by_flow: options.in_use: expected -1 in slots that belong to no rank, got 0 in layer "
      "0, slot 3",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      static_cast<void>(plimsoll::place_by_flow(
          plimsoll::seq, plimsoll::tensor_ref<std::int64_t const>(loads.data(), 2, 2, 3), 2,
          {.on = {.ranks = 2}})),
      "place_by_flow: slots: expected 3 to 65535 slots (at least one per expert), got 2",
      plimsoll::invalid_input);
}

TEST_CASE("flow_placement: temporaries come from the policy and go back, also when it throws") {
  plimsoll::array const loads(plimsoll::seq, std::vector<float>(120, 1.0f), 2, 3, 20);
  ints map(75);
  ints counts(60);
  check_temporaries(2, [&](auto& resource) {  // reports and one scratch area
    plimsoll::place_by_flow(plimsoll::seq(resource), loads, {.on = {.ranks = 4}},
                            plimsoll::matrix_ref<std::int32_t>(map.data(), 3, 25),
                            plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20));
  });
  check_temporaries(4, [&](auto& resource) {  // and map and counts
    static_cast<void>(
        plimsoll::place_by_flow(plimsoll::seq(resource), loads, 25, {.on = {.ranks = 4}}));
  });
}

}  // namespace plimsoll_test

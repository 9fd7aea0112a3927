// SPDX-License-Identifier: Apache-2.0
// Tests of refinement under the host's policies; every team, shapes, temporaries.
#include "refinement.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

/// Runs the body in all teams. The last two layers are refused, for an invalid expert id and for an
/// invalid load.
void check_teams(scene s, refinement_options const& options) {
  auto loads = as<float>(s.loads);
  loads.back() = -1;
  s.map[static_cast<std::size_t>((s.layers - 1) * s.slots - 1)] =
      static_cast<std::int32_t>(s.experts);
  ints map = s.map;
  ints counts(loads.size(), -7);
  std::vector<plimsoll::detail::problem_report> reports(static_cast<std::size_t>(s.layers));
  options_in<plimsoll::seq_policy> const where(s.where, s.layers);
  using view = plimsoll::matrix_ref<float const>;
  view const in(loads.data(), s.layers, s.experts);
  auto const shared = [&](auto body) {
    body.loads = in;
    body.where = plimsoll::detail::topology_of(*where, s.slots);
    body.rule = plimsoll::detail::rule_of(*where);
    body.load_exponent = where->load_exponent;
    body.tolerance = options.tolerance;
    body.physical_to_logical = plimsoll::matrix_ref<std::int32_t>(map.data(), s.layers, s.slots);
    body.replica_count = plimsoll::matrix_ref<std::int32_t>(counts.data(), s.layers, s.experts);
    body.reports = reports.data();
    check_all_teams(body, s.layers, map, counts, [&] { return report_values(reports); });
  };
  if (options.move_price > 0) {
    plimsoll::detail::priced_refinement_body<view> body{};
    body.price = options.move_price;
    body.keeps_counts = options.max_trials == 0;
    shared(body);
  } else {
    plimsoll::detail::refinement_body<view> body{};
    body.trials = options.max_trials;
    body.perturbations = options.max_perturbations;
    shared(body);
  }
  CHECK(!reports.front().refused);
  CHECK(reports[reports.size() - 2].refused.kind == plimsoll::fault_kind::expert_id);
  CHECK(reports.back().refused.kind == plimsoll::fault_kind::load);
}

TEST_CASE("refinement: the same bits in every team") {
  auto const check = [](index_t experts, index_t slots, host_options const& where,
                        refinement_options const& options) {
    scene s{3, experts, slots, where, skewed_loads(3, experts, 9)};
    REQUIRE(plan_greedily(s));
    generator random(4);
    spoil(s, random);
    check_teams(s, options);
    check_teams(
        s,
        {.tolerance = options.tolerance, .max_trials = slots % 3 == 0 ? 0 : 1, .move_price = 0.01});
  };
  check(1, 2, {.ranks = 2}, {});
  check(20, 30, {.ranks = 7}, {.tolerance = 0, .max_trials = 2, .max_perturbations = 4});
  check(20, 30, {.ranks = 7, .load_exponent = 0.85}, {.tolerance = 0, .max_trials = 2});
  check(20, 33,
        {.ranks = 4,
         .rank_offsets = {0, 9, 9, 20, 31, 0, 6, 13, 20, 33, 0, 9, 18, 27, 33},
         .active = {1, 1, 0, 1},
         .speeds = {1, 2, 1, 0.7}},
        {.tolerance = 0, .max_trials = 2, .max_perturbations = 4});
  check(12, 20,
        {.ranks = 5,
         .replica_anti_affinity = anti_affinity::rank,
         .anti_affinity_strength = strictness::required},
        {.tolerance = 0, .max_trials = 2, .max_perturbations = 4});
  check(12, 20, {.ranks = 6, .nodes = 3, .replica_anti_affinity = anti_affinity::node},
        {.tolerance = 0, .max_trials = 2, .max_perturbations = 4});
  ints lists;
  for (std::int32_t layer = 0; layer < 3; ++layer) {
    for (std::int32_t e = 0; e < 12; ++e) {
      lists.push_back((5 * e + layer) % 12);
    }
  }
  check(12, 20,
        {.ranks = 4,
         .nodes = 2,
         .speeds = {1, 2, 1, 1},
         .replica_anti_affinity = anti_affinity::rank,
         .node_experts = lists,
         .node_offsets = {0, 7, 12, 0, 6, 12, 0, 4, 12}},
        {.tolerance = 0, .max_trials = 2, .max_perturbations = 4});
}

TEST_CASE("refinement: with a price, the plan is the first within the tolerance on a path") {
  std::size_t steps = 0;
  for (std::uint64_t seed = 0; seed < cases_of(150); ++seed) {
    CAPTURE(seed);
    scene s;
    if (!draw(s, seed)) {
      continue;
    }
    for (double const tolerance : {0.0, 0.05}) {
      for (double const price : {1e-9, 0.03}) {
        refinement_options const options{
            .tolerance = tolerance, .max_trials = seed % 3 == 0 ? 0 : 1, .move_price = price};
        refined<plimsoll::seq_policy> const got(s.loads, s.map, s.layers, s.where, options);
        for (index_t layer = 0; layer < s.layers; ++layer) {
          certificate const& c = got.certificates[static_cast<std::size_t>(layer)];
          move_path_support::path_rule const rule{.split = plimsoll::split_rule::even,
                                                  .keeps_counts = options.max_trials == 0,
                                                  .price = price,
                                                  .target = 0,
                                                  .most_moves = plimsoll::unlimited};
          auto const all = move_path_support::follow_path(s, layer, rule);
          steps += move_path_support::check_path(s, layer, rule, all);
          auto const n = static_cast<std::size_t>(c.work);
          REQUIRE(n < all.points.size());
          ints map(s.map.begin() + layer * s.slots, s.map.begin() + (layer + 1) * s.slots);
          for (std::int32_t i = 0; i < all.points[n].changes; ++i) {
            map[static_cast<std::size_t>(all.changes[static_cast<std::size_t>(i)].slot)] =
                all.changes[static_cast<std::size_t>(i)].expert;
          }
          CHECK(std::equal(map.begin(), map.end(), got.map.begin() + layer * s.slots));
          double const target = c.lower_bound * (1 + tolerance);
          CHECK((n + 1 == all.points.size() || all.points[n].peak <= target * (1 + 1e-12)));
          CHECK((n == 0 || all.points[n - 1].peak > target * (1 - 1e-12)));
        }
      }
    }
  }
  CHECK(steps > 4 * cases_of(150));
}

TEST_CASE("refinement: loads may be a function of the indices") {
  ints map{0, 1, 2, 3};
  ints counts(4);
  plimsoll::refine(
      plimsoll::seq,
      plimsoll::generate([](index_t, index_t e) { return e < 2 ? 9 - 2 * e : e; }, 1, 4),
      {.on = {.ranks = 2}}, {}, plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 4),
      plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 4));
  CHECK(map == ints{0, 2, 1, 3});
  CHECK(counts == ints{1, 1, 1, 1});
}

TEST_CASE("refinement: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  ints map{0, 1, 2, -1, 0, 1, 2, -1};
  ints counts(8);
  auto const run = [&](index_t map_layers, index_t slots, index_t count_layers,
                       index_t count_experts) {
    plimsoll::refine(
        plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), {.on = {.ranks = 2}}, {},
        plimsoll::matrix_ref<std::int32_t>(map.data(), map_layers, slots),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, count_experts));
  };
  CHECK_NOTHROW(run(2, 4, 2, 3));
  CHECK_THROWS_WITH_AS(run(1, 4, 2, 3), "refine: physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 2, 3),
                       "refine: physical_to_logical: expected 3 to 2147483647 slots (at least one "
                       "per expert), got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 4, 1, 3), "refine: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 4, 2, 4), "refine: replica_count: expected 3 experts, got 4",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::refine(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 0),
                       {.on = {.ranks = 2}}, {},
                       plimsoll::matrix_ref<std::int32_t>(map.data(), 2, 4),
                       plimsoll::matrix_ref<std::int32_t>(counts.data(), 2, 0)),
      "refine: loads: expected 1 to 65535 experts, got 0", plimsoll::invalid_input);
}

TEST_CASE("refinement: temporaries come from the policy and go back, also when it throws") {
  scene s{3, 20, 28, {.ranks = 8}, skewed_loads(3, 20, 3)};
  REQUIRE(plan_greedily(s));
  ints counts(60);
  double price = 0;
  auto const run = [&](auto& resource) {
    plimsoll::refine(
        plimsoll::seq(resource), plimsoll::matrix_ref<std::int64_t>(s.loads.data(), 3, 20),
        {.on = {.ranks = 8}}, {.max_trials = 2, .max_perturbations = 4, .move_price = price},
        plimsoll::matrix_ref<std::int32_t>(s.map.data(), 3, 28),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20));
  };
  check_temporaries(2, run);  // reports and one scratch area
  price = 0.01;
  check_temporaries(3, run);  // and that of the certificates
}

TEST_CASE("refinement: owned placements check their arguments") {
  plimsoll::array const loads(plimsoll::seq, std::vector<float>(6, 1.0f), 2, 3);
  plimsoll::array const map(plimsoll::seq, ints{0, 1, 2, -1, 0, 1, 2, -1}, 2, 4);
  auto const refine = [&](plimsoll::placement_ref const& given, plimsoll::rank_set const& on) {
    static_cast<void>(plimsoll::refine(plimsoll::seq, loads, given, {.on = on}, {}));
  };
  CHECK_NOTHROW(refine({map.view(), {}, 2}, {}));
  CHECK_NOTHROW(refine({map.view(), {}, 2}, {.ranks = 2}));
  CHECK_THROWS_WITH_AS(refine({map.view(), {}, 2}, {.ranks = 4}),
                       "refine: where.on.ranks: expected 2 ranks, as in the placement, got 4",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(refine({map.view(), {}, 0}, {}),
                       "refine: where.on.ranks: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
  plimsoll::matrix_ref<std::int32_t const> const none(nullptr, 2, 4);
  CHECK_THROWS_WITH_AS(
      refine({none, {}, 2}, {}),
      "refine: given.physical_to_logical: expected a pointer to its elements, got a null pointer",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(refine({{map.data_handle(), 1, 4}, {}, 2}, {}),
                       "refine: given.physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);
}

}  // namespace plimsoll_test

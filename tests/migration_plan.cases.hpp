// SPDX-License-Identifier: Apache-2.0
// Tests of plan_within under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/migration_plan.hpp"
#include "support/plan_within_steps.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using namespace migration_plan_support;

/// Checks the result for a case of one layer with one step: the map, moves, the peaks and the
/// bound.
inline void check_one(plan_case const& c, plan_result const& got, ints const& map,
                      std::int64_t moves, double peak, double before, double bound) {
  CHECK(got.map == map);
  REQUIRE(got.reports.size() == 1);
  migration_report const& one = got.reports.front();
  CHECK(one.changes == plimsoll::slot_changes{moves, 0});
  double const mean = move_path_support::layer_costs(c, 0).mean_of_live_ranks();
  CHECK(one.imbalance.value == doctest::Approx(peak / mean).epsilon(1e-12));
  CHECK(one.imbalance_before == doctest::Approx(before / mean).epsilon(1e-12));
  CHECK(one.imbalance.lower_bound == doctest::Approx(bound / mean).epsilon(1e-12));
  CHECK(one.balancedness == doctest::Approx(mean / peak).epsilon(1e-11));
  CHECK(one.balancedness_before == doctest::Approx(mean / before).epsilon(1e-11));
  CHECK(one.imbalance.status ==
        (peak == bound ? certificate_status::optimal : certificate_status::feasible));
}

inline void check_steps_by_hand(plan_fn plan) {
  // Rank 0 has load 10, rank 1 has 2. A copy of expert 0 on rank 1 makes it 5 and 7 with the even
  // split, and 6 each with the optimal one. A copy of expert 1 on rank 0 evens the even split, too.
  plan_case c{{1, 2, 4, {.ranks = 2}, {10, 2}, {0, -1, 1, -1}}, {0, 1, 1, 0}};
  c.options.max_moves = 0;
  check_one(c, plan(c), {0, -1, 1, -1}, 0, 10, 10, 6);
  c.options.max_moves = 1;
  check_one(c, plan(c), {0, -1, 1, 0}, 1, 7, 10, 6);
  CHECK(plan(c).counts == ints{2, 1});
  CHECK(plan(c).reports[0].imbalance.work == 10);  // in use, 1 of the path, 7 of flow, to
  c.options.max_moves = 2;
  check_one(c, plan(c), {0, 1, 1, 0}, 2, 6, 10, 6);
  CHECK(plan(c).reports[0].imbalance.work == 11);
  c.options.split = split_rule::optimal;
  for (std::int64_t const limit : {std::int64_t{1}, std::int64_t{2}, plimsoll::unlimited}) {
    c.options.max_moves = limit;
    check_one(c, plan(c), {0, -1, 1, 0}, 1, 6, 10, 6);
  }
  c.options.max_moves = 0;
  check_one(c, plan(c), {0, -1, 1, -1}, 0, 10, 10, 6);
  // Two single experts change places: two moves. With one move there is no better plan.
  c = {{1, 4, 4, {.ranks = 2}, {9, 7, 1, 3}, {0, 1, 2, 3}}, {0, 1, 2, 3}};
  c.options.max_moves = 1;
  check_one(c, plan(c), {0, 1, 2, 3}, 0, 16, 16, 10);
  c.options.max_moves = 2;
  check_one(c, plan(c), {0, 2, 1, 3}, 2, 10, 16, 10);
  // Rank 1 is three times as fast. Expert 0 moves there: costs 8 and 4/3 become 4 and 8/3. A copy
  // would make them 6 and 2.
  c = {{1, 3, 4, {.ranks = 2, .speeds = {1, 3}}, {4, 4, 4}, {0, 1, 2, -1}}, {0, 1, 2, -1}};
  c.options.max_moves = 1;
  check_one(c, plan(c), {-1, 1, 2, 0}, 1, 4, 8, 3);
}

PLIMSOLL_TEST_CASE("plan_within: one and two moves, by hand", P, PLIMSOLL_POLICIES) {
  check_steps_by_hand(plan_of<P>);
}

inline void check_ranks_by_hand(plan_fn plan) {
  // Rank 1 is dead; what it holds is gone, and expert 1 lives on rank 2 only.
  host_options const ranks{.ranks = 3, .active = {1, 0, 1}};
  plan_case c{{1, 2, 6, ranks, {10, 2}, {0, -1, 1, 0, 1, -1}}, {0, 1, -1, -1, 1, 0}};
  c.options.max_moves = 0;
  check_one(c, plan(c), c.map, 0, 10, 10, 6);
  CHECK(plan(c).counts == ints{1, 1});
  c.options.max_moves = 1;
  check_one(c, plan(c), {0, -1, -1, -1, 1, 0}, 1, 7, 10, 6);
  c.options.max_moves = plimsoll::unlimited;
  check_one(c, plan(c), {0, 1, -1, -1, 1, 0}, 2, 6, 10, 6);
  // Experts of 10 10 20 against 13 6 8 11: no swap of two helps. The new placement exchanges 10 10
  // and 13 6, which is four moves; fewer do nothing.
  c = {{1,
        7,
        7,
        {.ranks = 2, .rank_offsets = {0, 3, 7}},
        {10, 10, 20, 13, 6, 8, 11},
        {0, 1, 2, 3, 4, 5, 6}},
       {3, 4, 2, 0, 1, 5, 6}};
  for (std::int64_t limit = 0; limit < 4; ++limit) {
    c.options.max_moves = limit;
    check_one(c, plan(c), c.map, 0, 40, 40, 39);
  }
  c.options.max_moves = 4;
  plan_result const got = plan(c);
  CHECK(got.reports[0].imbalance.value == 1);
  CHECK(got.reports[0].imbalance.status == certificate_status::optimal);
  CHECK(got.reports[0].changes == plimsoll::slot_changes{4, 0});
  CHECK(got.reports[0].imbalance.work == 9);
}

PLIMSOLL_TEST_CASE("plan_within: dead ranks, and the new placement, by hand", P,
                   PLIMSOLL_POLICIES) {
  check_ranks_by_hand(plan_of<P>);
}

inline void check_layers_by_hand(plan_fn plan) {
  // Balancedness after 0, 1 and 2 moves: 6/10, 6/7, 1 in layer 0, and 14/20, 14/18, 1 in layer 1.
  plan_case c{{2, 2, 4, {.ranks = 2}, {10, 2, 20, 8}, {0, -1, 1, -1, 0, -1, 1, -1}},
              {0, 1, 1, 0, 0, 1, 1, 0}};
  auto const check = [&](migration_options const& options, longs const& moves, reals const& peaks) {
    double const mean[] = {6, 14};
    c.options = options;
    plan_result const got = plan(c);
    REQUIRE(got.reports.size() == 2);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      CHECK(got.reports[layer].changes.moves == moves[layer]);
      CHECK(got.reports[layer].imbalance.value ==
            doctest::Approx(peaks[layer] / mean[layer]).epsilon(1e-12));
    }
  };
  check({.max_moves = 0}, {0, 0}, {10, 20});
  check({.max_moves = 1}, {1, 0}, {7, 20});
  check({.max_moves = 2}, {2, 0}, {6, 20});
  // A third move takes one from layer 0.
  check({.max_moves = 3}, {1, 2}, {7, 14});
  check({.max_moves = 4}, {2, 2}, {6, 14});
  check({.max_moves_per_layer = 1}, {1, 1}, {7, 18});
  check({.max_moves = 1, .max_moves_per_layer = 1}, {1, 0}, {7, 20});
  check({.max_moves_per_layer = 0}, {0, 0}, {10, 20});
  // Bytes are whole experts, and the smaller limit applies.
  check({.max_bytes = 29, .expert_bytes = 10}, {2, 0}, {6, 20});
  check({.max_bytes = 30, .expert_bytes = 10}, {1, 2}, {7, 14});
  check({.max_bytes = 9, .expert_bytes = 10}, {0, 0}, {10, 20});
  check({.max_bytes_per_layer = 19, .expert_bytes = 10}, {1, 1}, {7, 18});
  check({.max_bytes_per_layer = 9, .expert_bytes = 10}, {0, 0}, {10, 20});
  check({.max_moves = 2, .max_bytes = 19, .expert_bytes = 10}, {1, 0}, {7, 20});
  check({.max_moves_per_layer = 1, .max_bytes_per_layer = 29, .expert_bytes = 10}, {1, 1}, {7, 18});
  // No layers, and no load.
  CHECK(plan({{0, 1, 4, {.ranks = 2}, {}, {}}, {}}).reports.empty());
  c = {{1, 2, 4, {.ranks = 2}, {0, 0}, {0, -1, 1, -1}}, {0, 1, 1, 0}};
  CHECK(plan(c).map == c.map);
  CHECK(plan(c).reports[0].imbalance.value == 1);
  CHECK(plan(c).reports[0].balancedness == 1);
}

PLIMSOLL_TEST_CASE("plan_within: a limit is divided among layers, by hand", P, PLIMSOLL_POLICIES) {
  check_layers_by_hand(plan_of<P>);
}

inline void check_several_steps_by_hand(plan_fn plan) {
  // Rank 0 has 10 of 12 in both steps. Both halves agree, so that the copy on rank 1 is proven: it
  // makes 5 and 7 of 10 and 2. Steps without load do not count.
  plan_case c{{1, 2, 4, {.ranks = 2}, {10, 2, 10, 2}, {0, -1, 1, -1}}, {0, -1, 1, -1}};
  c.options.max_moves = 1;
  c.steps = 2;
  for (longs const& loads : {c.loads, {0, 0, 10, 2, 0, 0, 10, 2}, {10, 2, 0, 0, 0, 0, 10, 2}}) {
    c.loads = loads;
    c.steps = std::ssize(loads) / 2;
    plan_result const got = plan(c);
    CHECK(got.map == ints{0, -1, 1, 0});
    CHECK(got.counts == ints{2, 1});
    migration_report const& one = got.reports[0];
    CHECK(one.balancedness == doctest::Approx(6.0 / 7).epsilon(1e-11));
    CHECK(one.balancedness_before == doctest::Approx(0.6).epsilon(1e-11));
    CHECK(one.expected_gain == doctest::Approx(6.0 / 7 - 0.6).epsilon(1e-11));
    CHECK(one.imbalance.value == doctest::Approx(7.0 / 6).epsilon(1e-12));
    CHECK(one.imbalance_before == doctest::Approx(10.0 / 6).epsilon(1e-12));
    CHECK(one.imbalance.lower_bound == doctest::Approx(1).epsilon(1e-12));
  }
  // The second step is the opposite of the first: what one asks for makes the other worse.
  c = {{1, 2, 4, {.ranks = 2}, {10, 2, 2, 10}, {0, -1, 1, -1}}, {0, -1, 1, -1}};
  c.steps = 2;
  c.options = {.max_moves = 1, .judge_on = plimsoll::judged_steps::unseen};
  CHECK(plan(c).map == c.map);
  CHECK(plan(c).reports[0].expected_gain == 0);
  // Without validation, a copy that gains in the mean of both is made.
  c.options.judge_on = plimsoll::judged_steps::all;
  c.loads = {10, 2, 8, 4};
  plan_result const got = plan(c);
  CHECK(got.map == ints{0, -1, 1, 0});
  // 6/10 and 6/8 become 6/7 and 6/8.
  CHECK(got.reports[0].balancedness_before == doctest::Approx(0.675).epsilon(1e-11));
  CHECK(got.reports[0].balancedness == doctest::Approx((6.0 / 7 + 0.75) / 2).epsilon(1e-11));
  CHECK(got.reports[0].imbalance_before == doctest::Approx(1.5).epsilon(1e-12));
}

PLIMSOLL_TEST_CASE("plan_within: several steps, by hand", P, PLIMSOLL_POLICIES) {
  check_several_steps_by_hand(plan_of<P>);
}

/// Plans random cases of one step or of several, and reports a hash of all results.
inline void check_random(plan_fn plan, bool has_steps) {
  fnv1a hash;
  std::uint64_t const seeds = has_steps ? 60 : 150;
  std::uint64_t plans = 0;
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    std::optional<plan_case> c =
        random_plan(seed, {.layers = has_steps ? 4 : 3, .experts = 16, .ranks = 7});
    if (!c) {
      continue;
    }
    draws draw(seed);
    if (has_steps) {
      index_t const steps = draw.among(2, 5);
      add_steps(*c, steps, seed, draw.one_in(4));
    }
    c->options.max_moves = draw.any<std::int64_t>({0, 1, 3, 8, 20, plimsoll::unlimited});
    c->options.max_moves_per_layer = draw.any<std::int64_t>({1, 4, 8, plimsoll::unlimited});
    c->options.judge_on = !has_steps || !draw.one_in(3) ? plimsoll::judged_steps::unseen
                                                        : plimsoll::judged_steps::all;
    plan_result const got = plan(*c);
    if (!has_steps) {
      check_plan(*c, got);
    }
    ++plans;
    moved += got.moves() > 0 ? 1 : 0;
    hash.add(got.map);
    hash.add(got.counts);
    hash.add(got.balances());
    hash.add(got.numbers());
  }
  CHECK(plans > seeds * 2 / 3);
  CHECK(moved > seeds / 4);
  report_hash(has_steps ? "migration_plan.steps" : "migration_plan.random", hash.value());
}

PLIMSOLL_TEST_CASE("plan_within: random cases of several steps", P, PLIMSOLL_POLICIES) {
  check_random(plan_of<P>, true);
}

PLIMSOLL_TEST_CASE("plan_within: random cases keep limits and constraints, and report the truth", P,
                   PLIMSOLL_POLICIES) {
  check_random(plan_of<P>, false);
}

/// Returns a case that can be planned, of a size of which several moves help.
inline plan_case moved_case(split_rule split) {
  plan_case c{{3, 24, 30, {.ranks = 10}, skewed_loads(3, 24, 5), {}}, {}};
  REQUIRE(refinement_support::plan_greedily(c));
  c.to = c.map;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    auto const row = c.map.begin() + layer * c.slots;
    std::rotate(row, row + 3, row + c.slots);
  }
  c.options = {.split = split, .max_moves = 20, .max_moves_per_layer = 9};
  return c;
}

PLIMSOLL_TEST_CASE("plan_within: every type of loads and ids, and the call that returns a plan", P,
                   PLIMSOLL_POLICIES) {
  for (split_rule const split : both_splits) {
    plan_case const c = moved_case(split);
    plan_result const expected = plan_of<P>(c);
    CHECK(expected.moves() > 5);
    CHECK((expected.map != c.map));
    for_each_load_type([&]<class T>(T) { CHECK((plan_for<P>(c, as<T>(c.loads)) == expected)); });
    CHECK((plan_for<P, std::int64_t, std::int64_t>(c, c.loads) == expected));
    if constexpr (can_be_kept<P>) {
      plan_inputs<P, std::int64_t> const in(c, c.loads);
      auto const made = plimsoll::plan_within(make_policy<P>(), in.loads(), in.from(), in.to(),
                                              in.where(), c.options);
      CHECK((plan_result{made.physical_to_logical.to_host(), made.replica_count.to_host(),
                         made.reports} == expected));
      REQUIRE(made.certificates.size() == 3);
      CHECK(made.certificates[1].value == expected.reports[1].imbalance.value);
      CHECK(made.ref().ranks == 10);
    }
    report_hash(split == split_rule::even ? "migration_plan.even" : "migration_plan.optimal",
                expected.map, expected.balances(), expected.numbers());
  }
}

PLIMSOLL_TEST_CASE("plan_within: load_exponent plans as for powers of the loads", P,
                   PLIMSOLL_POLICIES) {
  for (split_rule const split : both_splits) {
    plan_case c = moved_case(split);
    reals powers;
    for (std::int64_t const load : c.loads) {
      powers.push_back(plimsoll::detail::power(static_cast<double>(load), 0.85));
    }
    plan_result const expected = plan_for<P>(c, powers);
    CHECK((expected.map != plan_of<P>(c).map));
    c.where.load_exponent = 0.85;
    CHECK((plan_of<P>(c) == expected));
    CHECK((plan_for<P>(c, as<double>(c.loads)) == expected));
  }
}

inline void check_plan_refusals(plan_fn plan) {
  auto const refused = [&](plan_case const& c, std::string const& message) {
    check_message(refusal_of([&] { plan(c); }), "plan_within: " + message);
  };
  plan_case const good{{2,
                        3,
                        8,
                        {.ranks = 4, .nodes = 2},
                        longs(6, 1),
                        {0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1}},
                       {1, 2, 0, -1, 1, 2, 0, -1, 1, 2, 0, -1, 1, 2, 0, -1}};
  CHECK(plan(good).reports.size() == 2);
  for (split_rule const split : both_splits) {
    plan_case c = good;
    c.options.split = split;
    plan_case const start = c;
    c.map[9] = 3;
    refused(c,
            "from.physical_to_logical: expected -1 or an expert of the layer, got 3 in layer 1, "
            "slot 1");
    c = start;
    c.to[10] = -2;
    refused(c,
            "to.physical_to_logical: expected -1 or an expert of the layer, got -2 in layer 1, "
            "slot 2");
    c = start;
    c.map[10] = c.map[14] = -1;
    refused(c,
            "from.physical_to_logical: expected 1 to 32767 copies of every expert on live ranks, "
            "got 0 in layer 1, expert 2");
    c = start;
    c.to[2] = c.to[6] = -1;
    refused(c,
            "to.physical_to_logical: expected every expert on a live rank, got none in layer 0, "
            "expert 0");
    c = start;
    c.where.active = {1, 1, 1, 0};
    c.to[7] = c.to[15] = -1;
    refused(c,
            "to.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 0 in "
            "layer 0, slot 6");
    // An expert that only dead ranks hold is missing.
    c.to[6] = c.to[14] = -1;
    c.map[2] = -1;
    refused(c,
            "from.physical_to_logical: expected 1 to 32767 copies of every expert on live ranks, "
            "got 0 in layer 0, expert 2");
    c = start;
    c.where.rank_offsets = {0, 2, 4, 6, 8, 0, 2, 4, 6, 7};
    c.map[15] = 0;
    refused(c,
            "from.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 0 in "
            "layer 1, slot 7");
    c = start;
    c.where.rank_offsets = {0, 2, 4, 6, 8, 0, 2, 4, 9, 8};
    refused(c,
            "from.rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
            "got 9 in layer 1, rank 2");
    c = start;
    c.where.active = {0, 0, 0, 0};
    refused(c, "on.active: expected at least 1 live rank, got 0");
    c = start;
    c.where.speeds = {1, 1, 0, 1};
    refused(c, "on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 2");
    c = start;
    c.loads[4] = -5;
    refused(c, "loads: expected values from 0 to below 2^47, got -5 in layer 1, expert 1");
    c.loads[4] = std::int64_t{1} << 47;
    refused(c,
            "loads: expected values from 0 to below 2^47, got 140737488355328 in layer 1, expert "
            "1");
    c.loads[3] = c.loads[4] = std::int64_t{1} << 46;
    refused(c, "loads: expected a total below 2^47 per layer, got 140737488355329 in layer 1");
    // Anti-affinity that must be kept holds for both placements.
    c = start;
    c.where.replica_anti_affinity = anti_affinity::rank;
    c.where.anti_affinity_strength = strictness::required;
    c.map[3] = 2;
    refused(c,
            "from.physical_to_logical: expected at most 1 replica of an expert on a rank, got 2 in "
            "layer 0, rank 1, expert 2");
    c.map[3] = -1;
    c.to[15] = 0;
    refused(c,
            "to.physical_to_logical: expected at most 1 replica of an expert on a rank, got 2 in "
            "layer 1, rank 3, expert 0");
    c.to[15] = -1;
    c.where.replica_anti_affinity = anti_affinity::node;
    c.map[3] = 0;
    refused(c,
            "from.physical_to_logical: expected at most 1 replica of an expert on a node, got 2 in "
            "layer 0, node 0, expert 0");
    c.map[3] = -1;
    c.to[15] = 1;
    refused(c,
            "to.physical_to_logical: expected at most 1 replica of an expert on a node, got 2 in "
            "layer 1, node 1, expert 1");
    // Node lists, too.
    c = start;
    c.where.node_experts = {0, 1, 2, 0, 1, 2};
    c.where.node_offsets = {0, 3, 3, 0, 3, 3};
    refused(c,
            "from.physical_to_logical: expected replicas on the node that lists their expert, node "
            "0, got another node in layer 0, expert 0");
    std::fill_n(c.map.begin() + 4, 4, -1);
    std::fill_n(c.map.begin() + 12, 4, -1);
    refused(c,
            "to.physical_to_logical: expected replicas on the node that lists their expert, node "
            "0, got another node in layer 0, expert 0");
    c.where.node_experts = {0, 1, 1, 0, 1, 2};
    refused(c, "node_experts: expected every expert once, got another list in layer 0, expert 2");
  }
}

PLIMSOLL_TEST_CASE("plan_within: bad values are named", P, PLIMSOLL_POLICIES) {
  check_plan_refusals(plan_of<P>);
  plan_case const c{{1, 2, 4, {.ranks = 2}, {10, 2}, {0, -1, 1, -1}}, {0, 1, 1, 0}};
  check_message(refusal_of([&] {
                  plan_for<P>(c, std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1});
                }),
                "plan_within: loads: expected values from 0 to below 2^47, got NaN in layer 0, "
                "expert 0");
  plan_case several = c;
  several.steps = 3;
  several.loads = {10, 2, 10, -1, 10, 2};
  check_message(
      refusal_of([&] { plan_of<P>(several); }),
      "plan_within: loads: expected values from 0 to below 2^47, got -1 in layer 0, expert "
      "1, step 1");
  // The total over the steps counts whatever plans are compared.
  several.loads = {1, 1, std::int64_t{1} << 46, 0, 0, std::int64_t{1} << 46};
  for (plimsoll::migration_options const& options :
       {plimsoll::migration_options{},
        {.candidates = plimsoll::migration_candidates::one_bonus},
        {.max_moves = 0}}) {
    several.options = options;
    check_message(refusal_of([&] { plan_of<P>(several); }),
                  "plan_within: loads: expected a total below 2^47 per layer, got 140737488355330 "
                  "in layer 0");
  }
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of flow_placement under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/flow_placement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/draws.hpp"
#include "support/flow_placement.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using namespace flow_placement_support;

PLIMSOLL_TEST_CASE("flow_placement: experts that are busy in the same steps, by hand", P,
                   PLIMSOLL_POLICIES) {
  // Sums are 55 50 50 55. Expert 0 goes to rank 0 and expert 3 to rank 1. Expert 1 is busy in step
  // 0, as expert 0 is, and goes to rank 1; expert 2 to rank 0.
  flow_case c{.steps = 2, .experts = 4, .slots = 4, .loads = {50, 40, 10, 5, 5, 10, 40, 50}};
  c.where.ranks = 2;
  flow_result const got = flow_of<P>(c);
  CHECK(got.map == ints{0, 2, 3, 1});
  CHECK(got.counts == ints{1, 1, 1, 1});
  CHECK(got.idle == longs{0});
  CHECK(got.empty == longs{0});
  // Of two more slots experts 0 and 3 get one each, since 55 is more than half of a rank's 105.
  // Copies of 27.5 are placed after experts 1 and 2. The seventh and eighth slot: 50 of experts 1
  // and 2 is the largest load of an expert with one copy.
  c.slots = 6;
  CHECK(flow_of<P>(c).map == ints{1, 0, 3, 2, 0, 3});
  CHECK(flow_of<P>(c).counts == ints{2, 1, 1, 2});
  c.slots = 8;
  CHECK(flow_of<P>(c).counts == ints{2, 2, 2, 2});
  // A third copy of an expert would share a rank with another one.
  c.slots = 11;
  CHECK(flow_of<P>(c).counts == ints{2, 2, 2, 2});
  CHECK(flow_of<P>(c).empty == longs{3});
}

PLIMSOLL_TEST_CASE("flow_placement: partners connect the ranks, by hand", P, PLIMSOLL_POLICIES) {
  // Two copies of each of four equal experts, and four ranks of two slots. Experts 0 and 1 connect
  // ranks 0 and 1, and 2 and 3; the even split repeats these pairs, the optimal split makes a ring.
  flow_case c{.experts = 4, .slots = 8, .loads = {10, 10, 10, 10}};
  c.where.ranks = 4;
  c.split = split_rule::even;
  CHECK(flow_of<P>(c).map == ints{0, 2, 0, 2, 1, 3, 1, 3});
  c.split = split_rule::optimal;
  CHECK(flow_of<P>(c).map == ints{0, 2, 0, 3, 1, 2, 1, 3});
  // With one partner for each rank, the second pair of copies may only go where the first is.
  c.max_partners = 1;
  CHECK(flow_of<P>(c).map == ints{0, 2, 0, 2, 1, 3, 1, 3});
  c.max_partners = 0;
  CHECK(flow_of<P>(c).counts == ints{1, 1, 1, 1});
  CHECK(flow_of<P>(c).empty == longs{4});
}

/// Checks that each rank has a copy of an expert at most once, that counts equal the map, and that
/// no rank has more partners than allowed.
inline void check_apart(flow_case const& c, flow_result const& got) {
  for (index_t layer = 0; layer < c.layers; ++layer) {
    oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
    std::vector<std::vector<std::size_t>> holders(static_cast<std::size_t>(c.experts));
    std::int64_t empty = 0;
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      for (std::int64_t slot = where.offsets[r]; slot < where.offsets[r + 1]; ++slot) {
        std::int32_t const e = got.map[static_cast<std::size_t>(layer * c.slots + slot)];
        empty += e < 0 && where.room(r) > 0 ? 1 : 0;
        if (e >= 0) {
          REQUIRE(where.room(r) > 0);
          auto& ranks = holders[static_cast<std::size_t>(e)];
          REQUIRE((ranks.empty() || ranks.back() != r));
          ranks.push_back(r);
        }
      }
    }
    CHECK(empty == got.empty[static_cast<std::size_t>(layer)]);
    std::vector<std::vector<bool>> partners(where.ranks(), std::vector<bool>(where.ranks()));
    for (std::size_t e = 0; e < holders.size(); ++e) {
      CHECK(std::ssize(holders[e]) == got.counts[static_cast<std::size_t>(layer * c.experts) + e]);
      CHECK_FALSE(holders[e].empty());
      for (std::size_t const a : holders[e]) {
        for (std::size_t const b : holders[e]) {
          partners[a][b] = partners[a][b] || a != b;
        }
      }
    }
    for (auto const& of_rank : partners) {
      CHECK(std::count(of_rank.begin(), of_rank.end(), true) <= c.max_partners);
    }
  }
}

inline void check_random(flow_fn flow, flow_case (*draw)(std::uint64_t), std::string const& name) {
  fnv1a hash;
  int refused = 0;
  int moves = 0;
  int with_empty = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    flow_case const c = draw(seed);
    auto const expected = slow_flow_of(c, &moves);
    if (!expected) {
      ++refused;
      CHECK_THROWS_AS(flow(c), plimsoll::invalid_input);
      continue;
    }
    flow_result const got = flow(c);
    CHECK(got.map == expected->map);
    CHECK(got.counts == expected->counts);
    CHECK(got.idle == expected->idle);
    CHECK(got.empty == expected->empty);
    for (index_t layer = 0; layer < c.layers && c.max_partners >= c.where.ranks - 1; ++layer) {
      CHECK(got.empty[static_cast<std::size_t>(layer)] == slow_flow(c, layer).unusable());
    }
    check_apart(c, got);
    with_empty += got.empty[0] > 0;
    hash.add(got.map);
    hash.add(got.counts);
  }
  CHECK(refused > 10);
  CHECK(moves > 10);
  CHECK(with_empty > 10);
  report_hash(name, hash.value());
}

PLIMSOLL_TEST_CASE("flow_placement: equals the definition on random histories", P,
                   PLIMSOLL_POLICIES) {
  check_random(flow_of<P>, random_flow, "flow_placement.random");
}

PLIMSOLL_TEST_CASE("flow_placement: equals the definition with plans in use", P,
                   PLIMSOLL_POLICIES) {
  check_random(flow_of<P>, random_flow_in_use, "flow_placement.in_use");
}

PLIMSOLL_TEST_CASE("flow_placement: load_exponent plans as for powers of the loads", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  int differs = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    flow_case const c = random_flow(seed);
    std::vector<double> powers;
    for (std::int64_t const load : c.loads) {
      powers.push_back(plimsoll::detail::power(static_cast<double>(load), 0.7));
    }
    array_in<std::int64_t, P> const loads(c.loads);
    array_in<double, P> const raised(powers);
    options_in<P> const where(c.where, c.layers);
    plimsoll::flow_placement_options options{.on = where->on,
                                             .rank_offsets = where->rank_offsets,
                                             .split = c.split,
                                             .max_partners = c.max_partners};
    auto const plan = [&](auto const& of, double exponent) {
      options.load_exponent = exponent;
      ints map;
      std::string const error = refusal_of([&] {
        auto const made = plimsoll::place_by_flow(
            make_policy<P>(), of.view3(c.steps, c.layers, c.experts), c.slots, options);
        map = made.physical_to_logical.to_host();
        for (auto const& report : made.reports) {
          map.push_back(static_cast<std::int32_t>(report.idle_steps));
        }
      });
      return std::pair(error, map);
    };
    CHECK(plan(loads, 0.7) == plan(raised, 1));
    differs += plan(loads, 0.7) != plan(loads, 1);
  }
  CHECK(differs > 5);
}

PLIMSOLL_TEST_CASE("flow_placement: a plan in use, by hand", P, PLIMSOLL_POLICIES) {
  // Without a plan in use, experts 0 and 1 go to ranks 0 and 1, and experts 2 and 3 to ranks 1 and
  // 0.
  flow_case c{.experts = 4, .slots = 4, .loads = {12, 10, 6, 4}};
  c.where.ranks = 2;
  CHECK(flow_of<P>(c).map == ints{0, 3, 1, 2});
  // Only labels and slots follow the plan in use if there is no bonus.
  c.in_use = {2, 1, 0, 3};
  CHECK(flow_of<P>(c).map == ints{2, 1, 0, 3});
  c.in_use = {3, 2, 0, 1};
  CHECK(flow_of<P>(c).map == ints{3, 0, 2, 1});
  // An average rank has 16. Expert 1 makes 22 on rank 1, which holds expert 0, and 10 on rank 0: a
  // difference of 0.75. With less, it leaves rank 1, as before, and expert 2 follows its bonus.
  c.keep_bonus = 0.7;
  CHECK(flow_of<P>(c).map == ints{1, 2, 0, 3});
  c.keep_bonus = 0.8;
  CHECK(flow_of<P>(c).map == ints{3, 2, 0, 1});
  // Experts 0 and 2 get the two superfluous slots: 10 and 6 are above half of a rank's 25 / 3.
  // Expert 1, with two copies in use, counts as 8 instead of 4, and comes before expert 2.
  c = {.experts = 4, .slots = 6, .loads = {10, 4, 6, 5}};
  c.where.ranks = 3;
  c.in_use = {1, 0, 1, 2, 3, -1};
  CHECK(flow_of<P>(c).counts == ints{2, 1, 2, 1});
  c.keep_bonus = 0.8;
  CHECK(flow_of<P>(c).counts == ints{2, 2, 1, 1});
}

PLIMSOLL_TEST_CASE("flow_placement: the output may be the array of the plan in use", P,
                   PLIMSOLL_POLICIES) {
  flow_case c{.experts = 4, .slots = 4, .loads = {12, 10, 6, 4}};
  c.where.ranks = 2;
  c.in_use = {3, 2, 0, 1};
  for (double const bonus : {0.0, 0.7}) {
    c.keep_bonus = bonus;
    array_in<std::int64_t, P> const loads(c.loads);
    array_in<std::int32_t, P> map(c.in_use);
    array_in<std::int32_t, P> counts(ints(4));
    plimsoll::place_by_flow(make_policy<P>(), loads.view3(1, 1, 4),
                            {.on = {.ranks = 2}, .in_use = map.view2(1, 4), .keep_bonus = bonus},
                            map.view2(1, 4), counts.view2(1, 4));
    CHECK(map.values() == flow_of<P>(c).map);
  }
}

/// Returns a case of the size of a model's layers: 2 layers of 128 experts, 4 steps.
inline flow_case large_flow(index_t ranks, index_t extra) {
  draws draw(7);
  flow_case c{.steps = 4, .layers = 2, .experts = 128, .slots = 128 + extra};
  c.where.ranks = ranks;
  c.loads = drifting_loads(draw, c.steps, c.layers, c.experts);
  return c;
}

inline void check_large(flow_fn flow) {
  fnv1a hash;
  for (index_t const ranks : {16, 33, 130}) {
    for (split_rule const split : {split_rule::even, split_rule::optimal}) {
      CAPTURE(ranks);
      flow_case c = large_flow(ranks, 2 * ranks);
      c.split = split;
      c.where.nodes = 4;
      flow_result const got = flow(c);
      CHECK((got == slow_flow_of(c)));
      check_apart(c, got);
      hash.add(got.map);
    }
  }
  report_hash("flow_placement.large", hash.value());
}

PLIMSOLL_TEST_CASE("flow_placement: many ranks, many experts", P, PLIMSOLL_POLICIES) {
  check_large(flow_of<P>);
}

PLIMSOLL_TEST_CASE("flow_placement: every type of loads and ids, and the call that returns a plan",
                   P, PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    flow_case const c = random_flow(seed);
    if (!slow_flow_of(c)) {
      continue;
    }
    flow_result const expected = flow_of<P>(c);
    for_each_load_type([&]<class T>(T) { CHECK((flow_of<P, T>(c) == expected)); });
    CHECK((flow_of<P, std::int64_t, std::int64_t>(c) == expected));
    if constexpr (can_be_kept<P>) {
      CHECK((returned_flow<P>(c) == expected));
    }
  }
}

inline void check_history(flow_fn flow) {
  // Steps without load are left out, and steps count the same whatever their totals.
  flow_case c{.steps = 3, .experts = 4, .slots = 6, .loads = {8, 4, 2, 2, 1, 3, 4, 8, 6, 1, 1, 8}};
  c.where.ranks = 3;
  flow_result const plain = flow(c);
  flow_case idle = c;
  idle.steps = 5;
  idle.loads = {0, 0, 0, 0, 8, 4, 2, 2, 10, 30, 40, 80, 0, 0, 0, 0, 6, 1, 1, 8};
  flow_result const got = flow(idle);
  CHECK(got.map == plain.map);
  CHECK(got.idle == longs{2});
  // Thirty-two steps are averaged in pairs.
  draws draw(3);
  flow_case sixteen{.steps = 16, .experts = 8, .slots = 12};
  sixteen.where.ranks = 4;
  flow_case pairs = sixteen;
  pairs.steps = 32;
  for (index_t step = 0; step < 16; ++step) {
    longs row(8, 0);
    for (int token = 0; token < 64; ++token) {
      ++row[static_cast<std::size_t>(draw.among(0, 7))];
    }
    sixteen.loads.insert(sixteen.loads.end(), row.begin(), row.end());
    pairs.loads.insert(pairs.loads.end(), row.begin(), row.end());
    pairs.loads.insert(pairs.loads.end(), row.begin(), row.end());
  }
  CHECK(flow(pairs).map == flow(sixteen).map);
  // No load at all.
  flow_case none{.steps = 2, .experts = 3, .slots = 4, .loads = longs(6, 0)};
  none.where.ranks = 2;
  CHECK(flow(none).map == ints{0, 1, 2, 0});
  CHECK(flow(none).counts == ints{2, 1, 1});
  CHECK(flow(none).idle == longs{2});
  // No layers.
  CHECK(flow({.steps = 2, .layers = 0, .experts = 3, .slots = 4}).map.empty());
}

PLIMSOLL_TEST_CASE("flow_placement: steps without load, blocks of steps, no load, no layers", P,
                   PLIMSOLL_POLICIES) {
  check_history(flow_of<P>);
}

inline void check_ranks(flow_fn flow) {
  // A rank of three times the speed takes the two heaviest experts.
  flow_case c{.experts = 4, .slots = 4, .loads = {30, 30, 10, 10}};
  c.where = {.ranks = 2, .rank_offsets = {0, 1, 4}, .speeds = {1, 3}};
  CHECK(flow(c).map == ints{2, 0, 1, 3});
  // Slots of dead ranks and those of no rank stay empty. Rank 2 has a slot more than experts, which
  // alone is counted.
  c.where = {.ranks = 3, .rank_offsets = {0, 2, 4, 9}, .active = {1, 0, 1}};
  c.slots = 10;
  flow_result const got = flow(c);
  CHECK(ints(got.map.begin() + 2, got.map.begin() + 4) == ints{-1, -1});
  CHECK(got.map.back() == -1);
  CHECK(got.empty == longs{1});
  // Copies stay on a node, where ranks are equally loaded otherwise.
  flow_case nodes{.experts = 8, .slots = 12, .loads = {40, 40, 1, 1, 1, 1, 1, 1}};
  nodes.where = {.ranks = 4, .nodes = 2};
  ints const map = flow(nodes).map;
  for (std::int32_t const e : {0, 1}) {
    auto const copies_on = [&](index_t first) {
      return std::count(map.begin() + first, map.begin() + first + 6, e);
    };
    CHECK((copies_on(0) >= 2 || copies_on(6) >= 2));
  }
}

PLIMSOLL_TEST_CASE("flow_placement: speeds, dead ranks, slots of no rank, nodes", P,
                   PLIMSOLL_POLICIES) {
  check_ranks(flow_of<P>);
}

inline void check_certificates(certify_fn certify) {
  // Rank 0 holds experts 0 and 2, rank 1 the others: 60 of 105 tokens in step 0, and 60 in step 1.
  flow_case c{.steps = 2, .experts = 4, .slots = 4, .loads = {50, 40, 10, 5, 5, 10, 40, 50}};
  c.where.ranks = 2;
  plimsoll::certificate proof = certify(c, {0, 2, 3, 1})[0];
  CHECK(proof.value == 120);
  CHECK(proof.lower_bound == 105);  // the mean
  CHECK(proof.status == plimsoll::certificate_status::feasible);
  // A second copy of expert 0 evens step 0; in step 1 experts 3 and 1 keep rank 1 at 60. With a
  // second copy of expert 3 too, the split reaches the mean in both steps.
  c.slots = 6;
  proof = certify(c, {0, 2, -1, 3, 1, 0})[0];
  CHECK(proof.value == 112.5);
  proof = certify(c, {0, 2, 3, 3, 1, 0})[0];
  CHECK(proof.value == 105);
  CHECK(proof.status == plimsoll::certificate_status::optimal);
  // Expert 0 can have two copies on ranks of two and one times the speed: 90 / 3.
  flow_case hot{.experts = 3, .slots = 4, .loads = {90, 1, 1}};
  hot.where = {.ranks = 4, .speeds = {1, 2, 1, 1}};
  CHECK(certify(hot, {0, 0, 1, 2})[0].value == 30);
  CHECK(certify(hot, {0, 0, 1, 2})[0].status == plimsoll::certificate_status::optimal);
  CHECK(certify(hot, {0, 1, 0, 2})[0].lower_bound == 30);
  CHECK(certify(hot, {0, 1, 0, 2})[0].value == 45);
}

PLIMSOLL_TEST_CASE("flow_placement: certificates by hand", P, PLIMSOLL_POLICIES) {
  check_certificates(certified<P>);
}

inline void check_bounds(certify_fn certify) {
  int optimal = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    draws draw(seed);
    flow_case c{.steps = draw.among(1, 3), .experts = draw.among(1, 4)};
    c.where.ranks = draw.among(1, 3);
    c.slots = c.experts + draw.among(0, 2);
    if (draw.one_in(3)) {
      for (index_t r = 0; r < c.where.ranks; ++r) {
        c.where.speeds.push_back(draw.any({0.5, 1.0, 2.0}));
      }
    }
    c.loads = drifting_loads(draw, c.steps, 1, c.experts);
    auto const plan = slow_flow_of(c);
    if (!plan) {
      continue;
    }
    plimsoll::certificate const proof = certify(c, plan->map)[0];
    double value = 0;
    for (index_t step = 0; step < c.steps; ++step) {
      value += smallest_peak(c, step, plan->map);
    }
    CHECK(proof.value == doctest::Approx(value).epsilon(1e-12));
    ints any(static_cast<std::size_t>(c.slots));
    double const best = best_of_all_maps(c, any);
    CHECK(proof.lower_bound <= best * (1 + 1e-12));
    CHECK(proof.lower_bound <= proof.value);
    if (proof.status == plimsoll::certificate_status::optimal) {
      ++optimal;
      CHECK(proof.value == doctest::Approx(best).epsilon(1e-12));
    }
  }
  CHECK(optimal > 5);
}

PLIMSOLL_TEST_CASE("flow_placement: certificates hold against every plan", P, PLIMSOLL_POLICIES) {
  check_bounds(certified<P>);
}

PLIMSOLL_TEST_CASE("flow_placement: certificates of every type of loads, and bad plans", P,
                   PLIMSOLL_POLICIES) {
  flow_case c = large_flow(16, 16);
  ints const map = flow_of<P>(c).map;
  auto const expected = certified<P>(c, map);
  CHECK(expected[1].lower_bound <= expected[1].value);
  for_each_load_type([&]<class T>(T) {
    auto const got = certified<P, T>(c, map);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      CHECK(got[layer].value == expected[layer].value);
      CHECK(got[layer].lower_bound == expected[layer].lower_bound);
    }
  });
  auto const refused = [&](ints const& plan, std::string const& message) {
    check_message(refusal_of([&] { certified<P>(c, plan); }), "certify: " + message);
  };
  c.loads[130] = -5;
  refused(map, "loads: expected values from 0 to below 2^47, got -5 in layer 1, expert 2");
  c.loads[130] = 5;
  ints missing = map;
  std::replace(missing.begin(), missing.end(), 2, -1);
  refused(
      missing,
      "placement.physical_to_logical: expected every expert on a live rank, got none in layer 0, "
      "expert 2");
  // Also without load: the bound is one for plans that leave no expert out.
  flow_case idle{.experts = 2, .slots = 2, .loads = {10, 0}, .where = {.ranks = 2}};
  CHECK(certified<P>(idle, {0, 1})[0].lower_bound == 10);
  check_message(
      refusal_of([&] {
        certified<P>(idle, {0, 0});
      }),
      "certify: placement.physical_to_logical: expected every expert on a live rank, got none in "
      "layer 0, expert 1");
  idle.where.active = {1, 0};
  check_message(
      refusal_of([&] {
        certified<P>(idle, {0, 1});
      }),
      "certify: placement.physical_to_logical: expected every expert on a live rank, got none in "
      "layer 0, expert 1");
  c.where.ranks = 0;
  refused(map, "placement.ranks: expected 1 to 32767 ranks, got 0");
}

inline void check_flow_refusals(flow_fn flow) {
  auto const refused = [&](flow_case const& c, std::string const& message) {
    check_message(refusal_of([&] { flow(c); }), "place_by_flow: " + message);
  };
  flow_case const good{
      .steps = 2, .layers = 2, .experts = 3, .slots = 4, .loads = longs(12, 1), .where = {2}};
  flow_case c = good;
  c.loads[9] = -1;
  refused(c, "loads: expected values from 0 to below 2^47, got -1 in layer 1, expert 0, step 1");
  c.loads[9] = std::int64_t{1} << 47;
  refused(c,
          "loads: expected values from 0 to below 2^47, got 140737488355328 in layer 1, expert 0, "
          "step 1");
  c.loads[9] = c.loads[10] = std::int64_t{1} << 46;
  refused(c,
          "loads: expected a total below 2^47 per layer, got 140737488355329 in layer 1, step 1");
  c = good;
  c.where.active = {0, 1};
  refused(c, "slots: expected at least 3 on live ranks, for all required copies, got 2 in layer 0");
  c = good;
  c.where.rank_offsets = {0, 2, 4, 0, 3, 2};
  refused(
      c,
      "rank_offsets: expected offsets that rise from 0 to at most the number of slots, got 2 in "
      "layer 1, rank 1");
  c = good;
  c.where.speeds = {1, 0};
  refused(c, "on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
  c = good;
  c.slots = 2;
  refused(c, "physical_to_logical: expected 3 to 65535 slots (at least one per expert), got 2");
  c = good;
  c.max_partners = -1;
  refused(c, "options.max_partners: expected 0 to 32767 partners, got -1");
  c = good;
  c.where.ranks = 0;
  refused(c, "options.on.ranks: expected 1 to 32767 ranks, got 0");
  c = good;
  c.steps = 0;
  c.loads.clear();
  refused(c, "loads: expected 1 to 2147483647 steps, got 0");
}

PLIMSOLL_TEST_CASE("flow_placement: bad values are named", P, PLIMSOLL_POLICIES) {
  check_flow_refusals(flow_of<P>);
}

}  // namespace plimsoll_test

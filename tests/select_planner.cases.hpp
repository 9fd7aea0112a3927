// SPDX-License-Identifier: Apache-2.0
// Tests of select_planner under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/select_planner.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/select_planner.hpp"

namespace plimsoll_test {

using namespace select_planner_support;

PLIMSOLL_TEST_CASE("select_planner: two candidates by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  // EPLB pairs expert 0 with the lightest expert of the half that it knows, which is the second
  // heaviest of the other half: 90 tokens on one rank and 30 on the other. A plan that pairs
  // experts 0 and 2 has 80 and 40 in both halves.
  history_case c{.steps = 2, .experts = 4, .slots = 4, .loads = {60, 30, 20, 10, 60, 10, 20, 30}};
  c.where.ranks = 2;
  c.split = split_rule::even;
  c.candidates = {planner::eplb};
  selection const got = select<P>(c, fixed_planner<P>(c, "middle", {0, 2, 1, 3}),
                                  fixed_planner<P>(c, "the same", {1, 3, 0, 2}));
  REQUIRE(got.candidates.size() == 3);
  CHECK(got.candidates[0].name == "eplb");
  CHECK(got.candidates[0].balancedness == doctest::Approx(60.0 / 90));
  CHECK(got.candidates[1].name == "middle");
  CHECK(got.candidates[1].balancedness == doctest::Approx(60.0 / 80));
  CHECK(got.candidates[1].standard_error == 0);
  CHECK(got.candidates[2].balancedness == got.candidates[1].balancedness);
  CHECK(got.chosen == 1);
  CHECK(got.map == ints{0, 2, 1, 3});
  // With steps like each other EPLB is as good, and comes first.
  c.loads = {60, 30, 20, 20, 60, 30, 20, 20};
  CHECK(select<P>(c, fixed_planner<P>(c, "middle", {0, 2, 1, 3})).chosen == 0);
}

/// A history in which experts are busy in bursts, some in the same steps.
inline history_case random_history(std::uint64_t seed) {
  generator random(seed);
  history_case c{.steps = random.between(2, 9),
                 .layers = random.between(1, 4),
                 .experts = random.between(4, 20)};
  c.where.ranks = random.between(2, 6);
  c.slots = c.experts + random.between(0, 8) + c.where.ranks;
  for (index_t i = 0; i < c.steps * c.layers; ++i) {
    bool const idle = random.between(0, 7) == 0;
    std::int64_t const burst = random.between(0, 3);
    for (index_t e = 0; e < c.experts; ++e) {
      std::int64_t const load = random.between(0, 40) * (e % 4 == burst ? 5 : 1) / (1 + e % 3);
      c.loads.push_back(idle ? 0 : load);
    }
  }
  if (seed % 4 == 1) {
    c.where.active.assign(static_cast<std::size_t>(c.where.ranks), 1);
    c.where.active[0] = 0;
    c.slots = 2 * c.experts + c.where.ranks;
  }
  if (seed % 4 == 2) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (index_t r = 0; r < c.where.ranks; ++r) {
        c.where.rank_offsets.push_back(
            static_cast<std::int32_t>((r * c.slots + layer) / c.where.ranks * (r > 0)));
      }
      c.where.rank_offsets.push_back(static_cast<std::int32_t>(c.slots));
    }
  }
  c.split = seed % 2 == 0 ? split_rule::optimal : split_rule::even;
  if (seed % 3 == 0) {
    c.candidates = {planner::eplb_spread, planner::eplb_joint, planner::flow_even};
  }
  return c;
}

PLIMSOLL_TEST_CASE("select_planner: equals the definition", P, PLIMSOLL_PREPARED_POLICIES) {
  int later = 0;
  ints maps;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    history_case const c = random_history(seed);
    selection const got = select<P>(c);
    std::vector<planner> kinds = c.candidates;
    if (kinds.empty()) {
      bool const even = c.split == split_rule::even;
      kinds = {even ? planner::flow_even : planner::flow_optimal,
               even ? planner::flow_optimal : planner::flow_even, planner::eplb,
               planner::eplb_shrunk, planner::eplb_spread};
    }
    REQUIRE(got.candidates.size() == kinds.size());
    std::vector<reals> all;
    std::size_t best = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      CAPTURE(i);
      all.push_back(judged(c, kinds[i]));
      CHECK(got.candidates[i].error.empty());
      CHECK(got.candidates[i].balancedness == doctest::Approx(mean_of(all[i])));
      best = got.candidates[i].balancedness > got.candidates[best].balancedness ? i : best;
    }
    index_t first = -1;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      double const error = error_of(all[best], all[i]);
      CHECK(got.candidates[i].standard_error == doctest::Approx(error).epsilon(1e-6));
      double const behind = got.candidates[best].balancedness - got.candidates[i].balancedness;
      if (first < 0 && behind <= error * (1 + 1e-11)) {
        first = static_cast<index_t>(i);
      }
    }
    CHECK(got.chosen == first);
    later += first > 0;
    definition_plan const whole(c, kinds[static_cast<std::size_t>(first)], c.loads);
    CHECK(got.map == whole.map);
    CHECK(got.counts == whole.counts);
    maps.insert(maps.end(), got.map.begin(), got.map.end());
    maps.push_back(static_cast<std::int32_t>(first));
  }
  CHECK(later > 10);
  report_hash("select_planner.random", maps);
}

PLIMSOLL_TEST_CASE("select_planner: exponents of the loads, by the definition", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    history_case c = random_history(seed);
    bool const even = c.split == split_rule::even;
    planner const flow = even ? planner::flow_even : planner::flow_optimal;
    planner const other = even ? planner::flow_optimal : planner::flow_even;
    c.candidates = {other, flow, planner::eplb};
    c.exponents = {0.9, 0.5};
    selection const got = select<P>(c);
    std::string const name = even ? "flow_even" : "flow_optimal";
    REQUIRE(got.candidates.size() == 5);
    CHECK(got.candidates[1].name == name);
    CHECK(got.candidates[2].name == name + "^0.9");
    CHECK(got.candidates[3].name == name + "^0.5");
    CHECK(got.candidates[4].name == "eplb");
    for (std::size_t i = 1; i < 4; ++i) {
      double const exponent = i == 1 ? 1 : c.exponents[i - 2];
      CHECK(got.candidates[i].balancedness == doctest::Approx(mean_of(judged(c, flow, exponent))));
      CHECK(got.candidates[i].steps == c.steps);
      CHECK(got.candidates[i].moves == 0);
      if (got.chosen == static_cast<index_t>(i)) {
        CHECK(got.map == definition_plan(c, flow, c.loads, exponent).map);
      }
    }
  }
}

PLIMSOLL_TEST_CASE("select_planner: the plan in use, by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  // All steps are alike. Experts 0 and 1 are as heavy as 2 and 3 together are twice.
  history_case c{.steps = 4, .experts = 4, .slots = 4, .split = split_rule::even};
  for (index_t step = 0; step < c.steps; ++step) {
    c.loads.insert(c.loads.end(), {60, 50, 20, 10});
  }
  c.where.ranks = 2;
  c.candidates = {planner::eplb};
  // In use is what EPLB makes, with other labels.
  c.in_use = {1, 2, 3, 0};
  selection const same = select<P>(c);
  CHECK(same.candidates[0].name == "in_use");
  CHECK(same.candidates[0].balancedness == 1);
  CHECK(same.candidates[0].steps == 4);
  CHECK(same.candidates[1].moves == 0);
  CHECK(same.chosen == 0);
  CHECK(same.map == c.in_use);
  CHECK(same.counts == ints{1, 1, 1, 1});
  // 110 and 30: experts 1 and 3, or 0 and 2, change places. Slots of experts that stay are kept.
  c.in_use = {1, 0, 3, 2};
  selection const other = select<P>(c);
  CHECK(other.candidates[0].balancedness == doctest::Approx(70.0 / 110));
  CHECK(other.candidates[1].balancedness == 1);
  CHECK(other.candidates[1].moves == 2);
  CHECK(other.chosen == 1);
  bool const keeps_0 = other.map == ints{3, 0, 1, 2};
  CHECK((keeps_0 || other.map == ints{1, 2, 3, 0}));
  // Two moves gain 0.36.
  c.move_price = 0.18;
  CHECK(select<P>(c).chosen == 1);
  c.move_price = 0.19;
  CHECK(select<P>(c).chosen == 0);
  CHECK(select<P>(c).candidates[1].balancedness == 1);
  // With one step nothing can be judged, and the first candidate that can plan is taken.
  c.steps = 1;
  c.loads.resize(4);
  CHECK(select<P>(c).chosen == 0);
  // Expert 2 has no slot in the plan in use, which is no candidate then.
  c.in_use = {1, 0, 3, 3};
  selection const missing = select<P>(c);
  CHECK(missing.chosen == 1);
  CHECK(missing.candidates[0].error.ends_with("got none in layer 0, expert 2"));
}

PLIMSOLL_TEST_CASE("select_planner: the plan in use stays where loads stay", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  int kept = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    history_case c{.steps = 8, .layers = 6, .experts = 16, .slots = 20};
    c.where.ranks = 4;
    generator random(seed + 400);
    std::vector<std::int64_t> popularity;
    for (index_t i = 0; i < c.layers * c.experts; ++i) {
      popularity.push_back(random.between(10, 60));
    }
    auto const window = [&] {
      longs loads;
      for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
        loads.push_back(popularity[static_cast<std::size_t>(i % (c.layers * c.experts))] *
                        random.between(5, 15));
      }
      return loads;
    };
    c.loads = window();
    c.in_use = definition_plan(c, planner::flow_optimal, c.loads).map;
    c.loads = window();
    kept += select<P>(c).chosen == 0;
    // Not if what is in use knows nothing of the loads.
    for (std::size_t i = 0; i < c.in_use.size(); ++i) {
      c.in_use[i] = static_cast<std::int32_t>(i % 20 % 16);
    }
    CHECK(select<P>(c).chosen > 0);
  }
  CHECK(kept > 5);
}

PLIMSOLL_TEST_CASE("select_planner: candidates far behind are not judged on all steps", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  history_case c{.steps = 401, .layers = 8, .experts = 8, .slots = 8, .split = split_rule::even};
  c.where.ranks = 2;
  generator random(77);
  for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
    c.loads.push_back((i % 8 < 4 ? 100 : 10) + random.between(0, 20));
  }
  c.candidates = {planner::eplb};
  ints bad;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    bad.insert(bad.end(), {0, 1, 2, 3, 4, 5, 6, 7});
  }
  selection const got = select<P>(c, fixed_planner<P>(c, "bad", bad));
  CHECK(got.chosen == 0);
  CHECK(got.candidates[0].steps == 401);
  // Blocks of the halves, of 200 and 201 steps: 66 and 67.
  CHECK(got.candidates[1].steps == 133);
  CHECK(got.candidates[1].balancedness < 0.7);
  CHECK(got.candidates[0].balancedness ==
        doctest::Approx(mean_of(judged(c, planner::eplb))).epsilon(1e-3));
  // A history of fewer steps is one block.
  c.steps = 255;
  c.loads.resize(static_cast<std::size_t>(c.steps * c.layers * c.experts));
  CHECK(select<P>(c, fixed_planner<P>(c, "bad", bad)).candidates[1].steps == 255);
}

PLIMSOLL_TEST_CASE("select_planner: a dropped candidate plans if all others fail", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  // As in the first case by hand: EPLB has 90 and 30 tokens in the steps that it has not seen.
  history_case c{.steps = 512, .layers = 8, .experts = 4, .slots = 4, .split = split_rule::even};
  c.where.ranks = 2;
  c.candidates = {planner::eplb};
  ints middle;
  for (index_t i = 0; i < c.steps * c.layers; ++i) {
    bool const is_late = i >= c.steps * c.layers / 2;
    c.loads.insert(c.loads.end(), {60, is_late ? 10 : 30, 20, is_late ? 30 : 10});
  }
  for (index_t layer = 0; layer < c.layers; ++layer) {
    middle.insert(middle.end(), {0, 2, 1, 3});
  }
  auto const better = fixed_planner<P>(c, "", middle);
  auto const fails = plimsoll::candidate("fails", [=](auto const& policy, auto const& history) {
    if (history.extent(0) == 512) {
      throw plimsoll::invalid_input("too long");
    }
    return better.plan(policy, history);
  });
  selection const got = select<P>(c, fails);
  CHECK(got.candidates[0].steps == 128);  // one of four blocks of either half
  CHECK(got.candidates[1].error == "too long");
  CHECK(got.chosen == 0);
  CHECK(got.map == definition_plan(c, planner::eplb, c.loads).map);
}

PLIMSOLL_TEST_CASE("select_planner: histories too short to judge", P, PLIMSOLL_PREPARED_POLICIES) {
  history_case c{.steps = 1, .experts = 4, .slots = 6, .loads = {50, 20, 10, 5}};
  c.where.ranks = 2;
  selection const one = select<P>(c);
  CHECK(one.chosen == 0);
  CHECK(one.candidates[0].balancedness == 0);
  CHECK(one.map == definition_plan(c, planner::flow_optimal, c.loads).map);
  // Without load there is nothing to compare.
  c.steps = 4;
  c.loads.assign(16, 0);
  selection const none = select<P>(c);
  CHECK(none.chosen == 0);
  CHECK(none.candidates[4].balancedness == 0);
  c.loads = {0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 1, 1, 0, 0, 0, 0};
  CHECK(select<P>(c).candidates[0].balancedness == 0);
  // A second layer with load in one half only changes nothing.
  history_case two{
      .steps = 2, .layers = 2, .experts = 2, .slots = 2, .loads = {5, 5, 0, 0, 5, 5, 9, 1}};
  two.where.ranks = 2;
  CHECK(select<P>(two).candidates[0].balancedness == 1);
  c.layers = 0;
  c.loads.clear();
  CHECK(select<P>(c).map.empty());
}

PLIMSOLL_TEST_CASE("select_planner: the empty rows of a window that is not full are no half", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  history_case full{.steps = 4,
                    .experts = 4,
                    .slots = 6,
                    .loads = {50, 20, 10, 5, 5, 50, 20, 10, 40, 10, 10, 30, 10, 40, 10, 30}};
  full.where.ranks = 2;
  selection const expected = select<P>(full);
  CHECK(expected.candidates[0].steps == 4);
  history_case window = full;
  window.steps = 11;
  window.loads.resize(44, 0);
  selection const behind = select<P>(window);
  window.loads.insert(window.loads.begin(), 8, 0);
  window.loads.resize(44);
  selection const around = select<P>(window);
  for (selection const& got : {behind, around}) {
    CHECK(got.chosen == expected.chosen);
    CHECK(got.map == expected.map);
    for (std::size_t i = 0; i < expected.candidates.size(); ++i) {
      CHECK(got.candidates[i].balancedness == expected.candidates[i].balancedness);
      CHECK(got.candidates[i].steps == expected.candidates[i].steps);
    }
  }
}

PLIMSOLL_TEST_CASE("select_planner: candidates that fail are reported", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  history_case c{.steps = 3, .experts = 3, .slots = 4, .loads = {5, 2, 1, 4, 3, 1, 6, 2, 2}};
  c.where.ranks = 2;
  auto const refuses = plimsoll::candidate(
      "refuses",
      [](auto const& policy,
         auto const&) -> plimsoll::placement<std::remove_cvref_t<decltype(policy)>> {
        throw plimsoll::invalid_input("no such shape");
      });
  selection const got = select<P>(c, refuses, fixed_planner<P>(c, "too few slots", {0, 1, 2}),
                                  fixed_planner<P>(c, "no expert 2", {0, 1, 0, 1}));
  REQUIRE(got.candidates.size() == 8);
  CHECK(got.chosen < 5);
  CHECK(got.candidates[5].error == "no such shape");
  CHECK(got.candidates[5].balancedness == 0);
  CHECK(got.candidates[6].error ==
        "select_planner: plan.physical_to_logical: expected 4 slots, got 3");
  CHECK(got.candidates[7].error ==
        "validate: physical_to_logical: expected every expert on a live rank, got none in layer 0, "
        "expert 2");
  // A planner that needs more than two steps is not judged, and one that fails on all steps only is
  // not chosen although it was the best.
  history_case const late{.steps = 3,
                          .experts = 4,
                          .slots = 4,
                          .loads = {60, 30, 20, 10, 60, 10, 20, 30, 60, 10, 20, 30},
                          .where = c.where,
                          .split = split_rule::even,
                          .candidates = {planner::eplb}};
  auto const needs = [&](std::string const& name, index_t least, index_t most) {
    auto const fixed = fixed_planner<P>(late, "", {0, 2, 1, 3});
    return plimsoll::candidate(name, [=](auto const& policy, auto const& history) {
      if (history.extent(0) < least || history.extent(0) > most) {
        throw plimsoll::invalid_input("steps");
      }
      return fixed.plan(policy, history);
    });
  };
  selection const other = select<P>(late, needs("three steps", 3, 9), needs("two steps", 1, 2));
  CHECK(other.candidates[1].error == "steps");
  CHECK(other.candidates[2].balancedness == 0.75);
  CHECK(other.candidates[2].error == "steps");
  CHECK(other.chosen == 0);
  CHECK(other.map == definition_plan(late, planner::eplb, late.loads).map);
}

PLIMSOLL_TEST_CASE("select_planner: the plan of all steps is checked, too", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  history_case c{.steps = 2,
                 .experts = 5,
                 .slots = 6,
                 .loads = {3, 3, 2, 2, 2, 3, 3, 2, 2, 2},
                 .split = split_rule::even,
                 .candidates = {planner::eplb}};
  c.where.ranks = 2;
  ints const good{1, 0, 0, 2, 3, 4};
  auto const mine = [&](index_t steps_of_fault, ints const& faulty) {
    auto const sound = fixed_planner<P>(c, "", good);
    auto const wrong = fixed_planner<P>(c, "", faulty);
    return plimsoll::candidate("mine", [=](auto const& policy, auto const& history) {
      return history.extent(0) == steps_of_fault ? wrong.plan(policy, history)
                                                 : sound.plan(policy, history);
    });
  };
  CHECK(select<P>(c, mine(2, good)).chosen == 1);
  std::vector<std::pair<ints, std::string>> const faults = {
      {{1, 0, 0, 2, 3, 3},
       "validate: physical_to_logical: expected every expert on a live rank, got none in layer 0, "
       "expert 4"},
      {{1, 0, 0, 2, 3, 4, 0, 0},
       "select_planner: plan.physical_to_logical: expected 6 slots, got 8"}};
  for (auto const& [faulty, message] : faults) {
    for (index_t const steps : {2, 1}) {  // of a history of several steps, and of one
      c.steps = steps;
      c.loads.resize(static_cast<std::size_t>(5 * steps));
      selection const got = select<P>(c, mine(steps, faulty));
      CHECK(got.chosen == 0);
      CHECK(got.candidates[1].error == (steps == 2 ? message : ""));  // not tried with one step
      CHECK(got.map == definition_plan(c, planner::eplb, c.loads).map);
      c.candidates = {};
    }
    c.steps = 2;
    c.loads = {3, 3, 2, 2, 2, 3, 3, 2, 2, 2};
    c.candidates = {planner::eplb};
  }
}

PLIMSOLL_TEST_CASE("select_planner: bad input is named", P, PLIMSOLL_PREPARED_POLICIES) {
  history_case good{.steps = 2, .experts = 3, .slots = 4, .loads = {5, 2, 1, 4, 3, 1}};
  good.where.ranks = 2;
  auto const message = [&](auto change) {
    history_case c = good;
    change(c);
    return refusal_of([&] { select<P>(c); });
  };
  CHECK(message([](history_case&) {}) == "no error");
  CHECK(message([](history_case& c) { c.loads[4] = -3; }) ==
        "select_planner: loads: expected values from 0 to below 2^47, got -3 in layer 0, expert 1, "
        "step 1");
  // A sum over the steps that is a load does not hide one that is none, nor the reverse.
  CHECK(message([](history_case& c) {
          c.steps = 3;
          c.loads = {5, 2, 1, 0, -1, 0, 4, 3, 1};
        }) ==
        "select_planner: loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 1, "
        "step 1");
  CHECK(message([](history_case& c) {
          c.loads = {1, 1, std::int64_t{1} << 46, 0, 0, std::int64_t{1} << 46};
        }) ==
        "select_planner: loads: expected a total below 2^47 per layer, got 140737488355330 in "
        "layer 0");
  CHECK(message([](history_case& c) { c.slots = 2; }) ==
        "select_planner: slots: expected 3 to 65535 slots (at least one per expert), got 2");
  CHECK(message([](history_case& c) { c.where.ranks = 0; }) ==
        "select_planner: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(message([](history_case& c) { c.where.nodes = 3; }) ==
        "select_planner: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(message([](history_case& c) {
          c.where.speeds = {1, 1};
        }) ==
        "select_planner: options.on.speeds: expected none, since balancedness counts tokens, got "
        "speeds");
  CHECK(message([](history_case& c) { c.where.active = {1}; }) ==
        "select_planner: options.on.active: expected 2 ranks, got 1");
  CHECK(message([](history_case& c) {
          c.where.rank_offsets = {0, 4};
        }) == "select_planner: options.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK(message([](history_case& c) { c.candidates = {static_cast<planner>(6)}; }) ==
        "select_planner: options.candidates: expected 0 to 5 (an enumerator), got 6");
  CHECK(message([](history_case& c) {
          c.exponents = {0.9, 1.5};
        }) ==
        "select_planner: options.flow_exponents: expected values above 0 and at most 1, got 1.5");
  CHECK(message([](history_case& c) { c.move_price = -1; }) ==
        "select_planner: options.move_price: expected 0 to 1, got -1");
  CHECK(message([](history_case& c) {
          c.in_use = {0, 1, 2, 0};
          c.slots = 5;
        }) == "select_planner: options.in_use.physical_to_logical: expected 5 slots, got 4");
  CHECK(message([](history_case& c) {
          c.steps = 0;
          c.loads.clear();
        }) == "select_planner: loads: expected 1 to 2147483647 steps, got 0");
  CHECK(refusal_of([&] {
          array_in<std::int64_t, P> const loads(good.loads);
          static_cast<void>(plimsoll::select_planner(make_policy<P>(), loads.view3(2, 1, 3), 4,
                                                     {.on = {.ranks = 2}, .load_exponent = 0}));
        }) == "select_planner: options.load_exponent: expected above 0 and at most 1, got 0");
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of replan_gate under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/replan_gate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/replan_gate.hpp"

namespace plimsoll_test {

using namespace replan_support;

/// Four alike steps in which experts 0 and 1 are busy, on one rank now and on two in the candidate.
/// A move takes a second.
inline gate_case hot_rank() {
  gate_case c{.loads = {30, 30, 10, 10, 30, 30, 10, 10, 30, 30, 10, 10, 30, 30, 10, 10},
              .in_use = {0, 1, 2, 3},
              .candidates = {{{0, 2, 1, 3}}}};
  return c;
}

PLIMSOLL_TEST_CASE("replan_gate: a gain against the cost of moving, by hand", P,
                   PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  replan_decision got = decide<P>(c);
  REQUIRE(got.candidates.size() == 1);
  CHECK(got.answer == replan_answer::move);
  CHECK(got.chosen == 0);
  CHECK(got.steps == 4);
  CHECK(got.balancedness == doctest::Approx(40.0 / 60));
  CHECK(got.step_seconds == 60);
  CHECK(got.possible_seconds == 20);
  replan_judgment const& all = got.candidates[0];
  CHECK(all.gain == doctest::Approx(1 - 40.0 / 60));
  CHECK(all.gain_seconds == 20);
  CHECK(all.standard_error == 0);
  CHECK(all.move_seconds == 1);
  CHECK(all.break_even_steps == 1);
  CHECK(all.changes.moves == 2);
  REQUIRE(got.candidates[0].layers.size() == 1);
  CHECK(got.candidates[0].layers[0].answer == replan_answer::move);
  CHECK(got.candidates[0].layers[0].gain_seconds == 20);

  c.options.layer_stall = 99;  // 100 s in all: five steps
  c.options.horizon = 5;
  got = decide<P>(c);
  CHECK(got.answer == replan_answer::keep);
  CHECK(got.chosen == -1);
  CHECK(got.candidates[0].break_even_steps == 5);
  c.options.horizon = 6;
  CHECK(decide<P>(c).answer == replan_answer::move);
  c.options.transfer_share = 0.5;
  CHECK(decide<P>(c).candidates[0].move_seconds == 99.5);

  c.options.least_steps = 5;
  CHECK(decide<P>(c).answer == replan_answer::insufficient_evidence);
  c.options.least_steps = 4;
  c.options.enough_balancedness = 0.66;
  CHECK(decide<P>(c).answer == replan_answer::keep);
  c.options.enough_balancedness = 0.67;
  CHECK(decide<P>(c).answer == replan_answer::move);
}

PLIMSOLL_TEST_CASE("replan_gate: where tokens cost nothing, balance gains nothing", P,
                   PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  c.options.cost = {.launch = 5, .per_token = 1, .per_expert = 2, .flat_below = 60};
  replan_decision const got = decide<P>(c);
  CHECK(got.answer == replan_answer::keep);
  CHECK(got.step_seconds == 9);  // a launch and two experts
  CHECK(got.possible_seconds == 0);
  CHECK(got.candidates[0].gain_seconds == 0);
  CHECK(got.candidates[0].gain > 0.3);
  CHECK(got.candidates[0].break_even_steps == std::numeric_limits<double>::infinity());
  c.options.cost.flat_below = 50;
  CHECK(decide<P>(c).candidates[0].gain_seconds == 10);
}

PLIMSOLL_TEST_CASE("replan_gate: a gain within its standard error is no evidence", P,
                   PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  // The candidate gains 20 s in every other step, and loses 16 s in the steps between.
  c.loads = {30, 30, 10, 10, 28, 12, 28, 12, 30, 30, 10, 10, 28, 12, 28, 12};
  c.options.horizon = 100;
  replan_decision const got = decide<P>(c);
  CHECK(got.candidates[0].gain_seconds == 2);
  CHECK(got.candidates[0].standard_error == doctest::Approx(18 / std::sqrt(3.0)));
  CHECK(got.answer == replan_answer::insufficient_evidence);
  CHECK(got.chosen == -1);
  c.options.standard_errors = 0.1;
  CHECK(decide<P>(c).answer == replan_answer::move);
  c.options.layer_stall = 990;  // if the gain is one standard error larger, it pays
  c.options.standard_errors = 1;
  CHECK(decide<P>(c).answer == replan_answer::insufficient_evidence);
  c.options.layer_stall = 1300;  // not even then
  CHECK(decide<P>(c).answer == replan_answer::keep);
}

PLIMSOLL_TEST_CASE("replan_gate: plans of halves are judged on the other half", P,
                   PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  // Experts 0 and 1 are busy first, then 0 and 2: each half's plan is bad in the other.
  c.loads = {30, 30, 10, 10, 30, 30, 10, 10, 30, 10, 30, 10, 30, 10, 30, 10};
  c.in_use = {0, 3, 1, 2};
  c.candidates = {
      {.plan = {0, 3, 1, 2}},
      {.plan = {1, 3, 0, 2}, .of_first_half = {0, 2, 1, 3}, .of_second_half = {0, 1, 2, 3}}};
  c.options.horizon = 100;
  replan_decision const got = decide<P>(c);
  REQUIRE(got.candidates.size() == 2);
  CHECK(got.balancedness == 1);
  CHECK(got.candidates[0].answer == replan_answer::keep);  // nothing changes
  CHECK(got.candidates[0].break_even_steps == 0);
  CHECK(got.candidates[1].gain_seconds == -20);
  CHECK(got.candidates[1].answer == replan_answer::keep);
}

PLIMSOLL_TEST_CASE("replan_gate: the candidate that gains most is chosen", P, PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  c.loads = {30, 20, 20, 10, 30, 20, 20, 10, 30, 20, 20, 10, 30, 20, 20, 10};
  c.in_use = {0, 1, 2, 3};
  c.candidates = {{{1, 0, 3, 2}}, {{2, 1, 0, 3}}, {{0, 3, 2, 1}}};
  c.options.horizon = 100;
  replan_decision const got = decide<P>(c);
  CHECK(got.candidates[0].answer == replan_answer::keep);  // slots of one rank change
  CHECK(got.candidates[0].changes.local_copies == 4);
  CHECK(got.candidates[2].gain_seconds == 10);
  CHECK(got.chosen == 1);  // of candidates that gain as much, the first
  CHECK(got.answer == replan_answer::move);
}

PLIMSOLL_TEST_CASE("replan_gate: steps without load do not count", P, PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  c.loads.insert(c.loads.begin() + 4, 8, 0);
  replan_decision got = decide<P>(c);
  CHECK(got.steps == 4);
  CHECK(got.step_seconds == 60);
  CHECK(got.candidates[0].gain_seconds == 20);
  CHECK(got.answer == replan_answer::move);
  c.loads.assign(16, 0);
  got = decide<P>(c);
  CHECK(got.steps == 0);
  CHECK(got.balancedness == 1);
  CHECK(got.answer == replan_answer::insufficient_evidence);
  c.candidates.clear();
  CHECK(decide<P>(c).answer == replan_answer::keep);
}

PLIMSOLL_TEST_CASE("replan: a window that is not full yet says what its steps say", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  gate_case c = hot_rank();
  c.loads[5] = 25;  // steps differ
  c.options.horizon = 100;
  auto const planner = [&](auto const& where, auto const& history) {
    return plimsoll::place_by_flow(where, history, 4, {.on = {.ranks = 2}});
  };
  std::vector<replan_decision> found;
  for (index_t const empty : {0, 4, 100}) {
    gate_case window = c;
    window.loads.resize(c.loads.size() + static_cast<std::size_t>(4 * empty), 0);
    array_in<std::int32_t, P> const loads(window.loads);
    plan_in<P> const in_use(c, c.in_use);
    found.push_back(plimsoll::replan(make_policy<P>(), loads.view3(4 + empty, 1, 4), in_use.ref(),
                                     planner, c.options)
                        .decision);
  }
  for (replan_decision const& one : found) {
    CHECK(one.answer == replan_answer::move);
    CHECK(one.steps == 4);
    CHECK(one.candidates[0].gain_seconds == found[0].candidates[0].gain_seconds);
    CHECK(one.candidates[0].standard_error == found[0].candidates[0].standard_error);
  }
}

/// Steps in which some experts are busy in bursts, a plan in use, and random plans.
inline gate_case random_gate(std::uint64_t seed) {
  generator random(seed);
  gate_case c{.layers = random.between(1, 3),
              .experts = random.between(2, 12),
              .ranks = random.between(1, 4)};
  index_t const steps = random.between(2, 40);
  for (index_t i = 0; i < steps * c.layers; ++i) {
    bool const is_idle = random.between(0, 9) == 0;
    std::int64_t const burst = random.between(0, 2);
    for (index_t e = 0; e < c.experts; ++e) {
      std::int64_t const load = random.between(0, 60) * (e % 3 == burst ? 4 : 1);
      c.loads.push_back(is_idle ? 0 : static_cast<std::int32_t>(load));
    }
  }
  if (seed % 3 == 0 && c.ranks > 1) {
    c.active.assign(static_cast<std::size_t>(c.ranks), 1);
    c.active[0] = 0;
  }
  index_t const each = c.experts + random.between(0, 2);  // slots of a rank: any rank fits all
  auto const map = [&] {
    ints result;
    for (index_t l = 0; l < c.layers; ++l) {
      for (index_t r = 0; r < c.ranks; ++r) {
        bool const is_dead = !c.active.empty() && r == 0;
        ints row(static_cast<std::size_t>(each), -1);
        for (index_t e = 0; e < c.experts && !is_dead; ++e) {
          // The last rank holds all experts, so that none is missing.
          row[static_cast<std::size_t>(e)] =
              r == c.ranks - 1 || random.between(0, 2) == 0 ? static_cast<std::int32_t>(e) : -1;
        }
        result.insert(result.end(), row.begin(), row.end());
      }
    }
    return result;
  };
  c.in_use = map();
  c.candidates = {{map()}, {map(), map(), map()}};
  c.options.split = seed % 2 == 0 ? split_rule::optimal : split_rule::even;
  if (c.options.split == split_rule::optimal && seed % 4 == 0) {
    for (index_t r = 0; r < c.ranks; ++r) {
      c.speeds.push_back(static_cast<double>(random.between(1, 4)));
    }
  }
  c.options.cost = {.launch = static_cast<double>(random.between(0, 20)),
                    .per_token = static_cast<double>(random.between(1, 3)),
                    .per_expert = static_cast<double>(random.between(0, 2)),
                    .flat_below = static_cast<double>(random.between(0, 20))};
  c.options.horizon = random.between(1, 20);
  c.options.layer_stall = static_cast<double>(random.between(0, 50));
  return c;
}

/// Mean seconds of a step that perfect balance would gain, in one layer or in all.
inline double layer_bound(gate_case const& c, index_t layer) {
  gate_case one = c;
  one.candidates.clear();
  if (layer >= 0) {
    auto const cut = [&](ints const& from, index_t width) {
      ints result;
      for (index_t row = layer; row < std::ssize(from) / width; row += c.layers) {
        result.insert(result.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
      }
      return result;
    };
    one.in_use = cut(c.in_use, c.slots());
    one.loads = cut(c.loads, c.experts);
    one.layers = 1;
  }
  return decide<plimsoll::seq_policy>(one).possible_seconds;
}

PLIMSOLL_TEST_CASE("replan_gate: equals the definition", P, PLIMSOLL_POLICIES) {
  ints answers;
  reals bits;
  int seen[3] = {};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    gate_case const c = random_gate(seed);
    replan_decision const got = seed % 5 == 1 ? decide<P, double>(c) : decide<P>(c);
    REQUIRE(got.candidates.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CAPTURE(i);
      plimsoll::candidate_judgment const& one = got.candidates[i];
      REQUIRE(std::ssize(one.layers) == c.layers);
      plan_in<plimsoll::seq_policy> const from(c, c.in_use);
      plan_in<plimsoll::seq_policy> const to(c, c.candidates[i].plan);
      plimsoll::transfer_plan const moves = plimsoll::plan_transfers(
          plimsoll::seq, from.ref(), to.ref(),
          {.on = {.active = c.active}, .bandwidths = c.options.bandwidths});
      double all_moves = 0;
      for (index_t layer = -1; layer < c.layers; ++layer) {
        CAPTURE(layer);
        auto const at = static_cast<std::size_t>(layer);
        replan_judgment const& of = layer < 0 ? one : one.layers[at];
        defined_gains const expected(c, c.candidates[i], layer);
        CHECK(of.gain_seconds == doctest::Approx(mean_of(expected.seconds)));
        CHECK(of.gain == doctest::Approx(mean_of(expected.points)));
        CHECK(of.standard_error == doctest::Approx(defined_error(c, c.candidates[i], layer)));
        if (layer >= 0) {
          bool const changes = moves.layers[at].changes != plimsoll::slot_changes{};
          double const cost = moves.layers[at].seconds + (changes ? c.options.layer_stall : 0.0);
          CHECK(of.move_seconds == doctest::Approx(cost));
          all_moves += cost;
        }
        auto const n = static_cast<double>(c.options.horizon);
        bool const is_clear = of.gain_seconds > of.standard_error;
        bool const pays = n * of.gain_seconds > of.move_seconds;
        bool const may_pay = n * (of.gain_seconds + of.standard_error) > of.move_seconds;
        if (of.answer == replan_answer::move) {
          CHECK((is_clear && pays));
        } else if (of.answer == replan_answer::insufficient_evidence) {
          CHECK((std::ssize(expected.seconds) < 4 || (may_pay && !(is_clear && pays))));
        } else {
          bool const changes = of.changes != plimsoll::slot_changes{};
          CHECK(
              (!changes || !may_pay || n * layer_bound(c, layer) <= of.move_seconds * (1 + 1e-9)));
        }
        ++seen[static_cast<int>(of.answer)];
        answers.push_back(static_cast<std::int32_t>(of.answer));
        bits.insert(bits.end(), {of.gain, of.gain_seconds, of.standard_error, of.move_seconds});
      }
      CHECK(one.move_seconds == doctest::Approx(all_moves));
    }
  }
  for (int const count : seen) {
    CHECK(count > 10);
  }
  report_hash("replan_gate.answers", answers);
  report_hash("replan_gate.random", bits);
}

/// Costs of a caller.
struct slow_second_rank {
  PLIMSOLL_HD double operator()(index_t rank, double tokens) const {
    return rank == 1 ? 2 * tokens : tokens;
  }
};
struct cost_below_zero {
  PLIMSOLL_HD double operator()(index_t, double tokens) const { return 30 - tokens; }
};

PLIMSOLL_TEST_CASE("replan_gate: any cost of a rank", P, PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  replan_decision const got = decide<P>(c, slow_second_rank{});
  CHECK(got.step_seconds == 60);
  CHECK(got.candidates[0].gain_seconds == -20);
  CHECK(got.answer == replan_answer::keep);
  CHECK(decide<P>(c, plimsoll::token_cost{}).candidates[0].gain_seconds == 20);
  check_message(
      refusal_of([&] { decide<P>(c, cost_below_zero{}); }),
      "decide_replan: options.cost: expected numbers from 0 to below 2^960 that do not fall "
      "as tokens rise, got -30 in layer 0, rank 0, step 0");
}

PLIMSOLL_TEST_CASE("replan_gate: bad loads and plans are refused", P, PLIMSOLL_POLICIES) {
  gate_case c = hot_rank();
  c.loads[9] = -4;
  for (split_rule const split : {split_rule::even, split_rule::optimal}) {
    c.options.split = split;
    check_message(refusal_of([&] { decide<P>(c); }),
                  "decide_replan: loads: expected values from 0 to below 2^47, got -4 in layer 0, "
                  "expert 1, step 2");
  }
  c = hot_rank();
  c.in_use[2] = 4;
  check_message(refusal_of([&] { decide<P>(c); }),
                "decide_replan: in_use.physical_to_logical: expected -1 or an expert of the layer, "
                "got 4 in layer 0, rank 1, slot 2");
  c = hot_rank();
  c.candidates[0].plan[3] = 1;
  check_message(refusal_of([&] { decide<P>(c); }),
                "decide_replan: candidates[0].plan.physical_to_logical: expected every expert on a "
                "live rank, got none in layer 0, expert 3");
}

PLIMSOLL_TEST_CASE("replan: plans of the halves, and the plan of all steps, aligned", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  gate_case c{.layers = 2, .experts = 6, .ranks = 3};
  generator random(7);
  for (index_t i = 0; i < 9 * c.layers * c.experts; ++i) {
    c.loads.push_back(static_cast<std::int32_t>(random.between(0, 30)) * (i % 6 == 2 ? 9 : 1));
  }
  for (index_t l = 0; l < c.layers; ++l) {
    c.in_use.insert(c.in_use.end(), {0, 1, 2, 3, 4, 5, 0, 1, 2});
  }
  c.options.horizon = 50;
  array_in<std::int32_t, P> const loads(c.loads);
  plan_in<P> const in_use(c, c.in_use);
  auto const policy = make_policy<P>();
  auto const planner = [&](auto const& where, auto const& history) {
    return plimsoll::place_by_flow(where, history, c.slots(), {.on = {.ranks = c.ranks}});
  };
  plimsoll::replan_options<moe_cost> options = c.options;
  auto const got =
      plimsoll::replan(policy, loads.view3(9, c.layers, c.experts), in_use.ref(), planner, options);
  auto const planned = [&](index_t first, index_t count) {
    auto const fresh = planner(
        policy, plimsoll::detail::part_of(
                    plimsoll::tensor_ref<std::int32_t const>(loads.view3(9, c.layers, c.experts)),
                    {first, count}));
    auto const aligned = plimsoll::align(policy, in_use.ref(), fresh.ref());
    return aligned.physical_to_logical.to_host();
  };
  c.candidates = {{planned(0, 9), planned(0, 4), planned(4, 5)}};
  CHECK(got.physical_to_logical.to_host() == c.candidates[0].plan);
  replan_decision const expected = decide<P>(c);
  CHECK(got.decision.answer == expected.answer);
  REQUIRE(got.decision.candidates.size() == 1);
  CHECK(got.decision.candidates[0].gain_seconds == expected.candidates[0].gain_seconds);
  CHECK(got.decision.candidates[0].standard_error == expected.candidates[0].standard_error);
  CHECK(got.decision.answer == replan_answer::move);
}

}  // namespace plimsoll_test

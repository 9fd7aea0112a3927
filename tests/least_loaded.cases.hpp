// SPDX-License-Identifier: Apache-2.0
// Tests of least_loaded under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/memory.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/least_loaded.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/spread.hpp"
#include "support/update_sequences.hpp"
#include "support/updated_homes.hpp"

namespace plimsoll_test {

using namespace least_loaded_support;

// ----- by hand -----------------------------------------------------------------------------------

inline spill_case spill_of(longs loads, index_t ranks, std::int64_t min_chunk = 1) {
  spill_case c;
  c.options.experts = std::ssize(loads);
  c.options.on.ranks = ranks;
  c.options.min_chunk = min_chunk;
  c.loads = std::move(loads);
  return c;
}

inline void check_by_hand(plan_fn plan) {
  // The paper's algorithms give expert 0 to ranks 0, 3, 2 and 1; all others stay.
  for (std::int64_t const min_chunk : {1, 100}) {
    CAPTURE(min_chunk);
    spilled const one = plan(spill_of({800, 100, 50, 50, 40, 30, 20, 10}, 4, min_chunk));
    CHECK(numbers_in(one.segments) ==
          longs{0, 0, 0, 175, 0, 3, 175, 420, 0, 2, 420, 625, 0, 1, 625, 800,  //
                1, 0, 0, 100, 2, 1, 0,   50,  3, 1, 0,   50,  4, 2, 0,   40,   //
                5, 2, 0, 30,  6, 3, 0,   20,  7, 3, 0,   10});
    CHECK(numbers_in(one.transfers) == longs{0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0});
    CHECK(one.offsets == ints{0, 4, 5, 6, 7, 8, 9, 10, 11});
    CHECK(one.transfer_offsets == ints{0, 3, 3, 3, 3, 3, 3, 3, 3});
    CHECK(one.loads == ints{275, 275, 275, 275});
    CHECK(numbers_in(one.report) == longs{4, 0, 1100, 0, 0, 0, 1, 11, 3, 0, -1});
    CHECK(reals_in(one.report) == reals{275, 275, 275, 275, 900.0 * 4 / 1100, 900, 0, 0, 0});
  }
  // The experts that are visited first leave; two of them are enough.
  spilled const two = plan(spill_of({300, 300, 300, 300, 0, 0, 0, 0}, 2, 64));
  CHECK(numbers_in(two.segments) == longs{0, 1, 0, 300, 1, 1, 0, 300, 2, 0, 0, 300, 3, 0, 0, 300});
  CHECK(numbers_in(two.transfers) == longs{0, 0, 1, 0, 1, 0, 1, 0});
  CHECK(two.loads == ints{600, 600});
  CHECK(two.report.result.status == certificate_status::optimal);
  report_hash("least_loaded.by_hand", numbers_in(two.segments), numbers_in(two.transfers));
}

PLIMSOLL_TEST_CASE("least_loaded: plans computed by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  check_by_hand(plan_with<P>);
}

// ----- random steps ------------------------------------------------------------------------------

inline void check_random(plan_fn plan) {
  fnv1a hash;
  tally happened;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    spill_case const c = plain_spill(seed);
    check_spilled(c, plan(c), happened, hash);
    spill_case const any = random_spill(seed);
    check_spilled(any, plan(any), happened, hash);
  }
  report_hash("least_loaded.random", hash.value());
}

PLIMSOLL_TEST_CASE("least_loaded: random steps", P, PLIMSOLL_PREPARED_POLICIES) {
  check_random(plan_with<P>);
}

// ----- routing of tokens -------------------------------------------------------------------------

inline spill_case traveling(std::uint64_t seed) {
  spill_case c = random_spill(seed);
  draws draw(seed);
  c.price = pricing::none;
  std::int64_t const most = draw.any({1, 20, 120});
  int const skew = draw.any({1, 3, 8});
  draw_ids(c, draw, most, skew, 12);
  return c;
}

inline void check_travels(travel_fn travel) {
  fnv1a hash;
  for (std::uint64_t seed = 200; seed < 212; ++seed) {
    CAPTURE(seed);
    spill_case const c = traveling(seed);
    check_traveled(c, travel(c), hash);
  }
  // More copies than one tile.
  spill_case c = spill_of(longs(20, 0), 3);
  draws draw(5);
  draw_ids(c, draw, 900, 3, 60);
  check_traveled(c, travel(c), hash);
  report_hash("least_loaded.travels", hash.value());
}

PLIMSOLL_TEST_CASE("least_loaded: every token copy arrives once", P, PLIMSOLL_PREPARED_POLICIES) {
  check_travels(travel_with<P>);
}

inline void check_types_and_strides(plan_fn plan, travel_fn travel, travel_fn travel_longs) {
  for (std::uint64_t seed = 300; seed < 304; ++seed) {
    CAPTURE(seed);
    spill_case c = random_spill(seed);
    spilled const expected = plan(c);
    c.step = 3;
    CHECK(difference(plan(c), expected) == "");
    fnv1a dense;
    fnv1a spread;
    fnv1a wide;
    c = traveling(seed);
    add_to(dense, travel(c));
    c.step = 3;
    add_to(spread, travel(c));
    // Not an expert, although its lower 32 bits are one.
    for (longs& ids : c.ids) {
      std::replace(ids.begin(), ids.end(), std::int64_t{-2}, std::int64_t{1} << 32);
    }
    add_to(wide, travel_longs(c));
    CHECK(spread.value() == dense.value());
    CHECK(wide.value() == dense.value());
  }
}

PLIMSOLL_TEST_CASE("least_loaded: types and strides", P, PLIMSOLL_PREPARED_POLICIES) {
  check_types_and_strides(plan_with<P>, travel_with<P>, travel_with<P, std::int64_t>);
}

// ----- sizes -------------------------------------------------------------------------------------

/// Draws loads of many experts, a few of them hot.
inline spill_case large_spill(std::uint64_t seed, index_t experts, index_t ranks) {
  draws draw(seed);
  spill_case c = spill_of({}, ranks, 16);
  c.options.experts = experts;
  draw_loads(c, draw, 3000, 6);
  return c;
}

inline void check_sizes(plan_fn plan) {
  fnv1a hash;
  tally happened;
  auto const check = [&](spill_case const& c) {
    CAPTURE(c.experts());
    CAPTURE(c.ranks());
    check_spilled(c, plan(c), happened, hash);
  };
  check(spill_of({7}, 1));
  check(spill_of({0}, 1));
  check(spill_of({0, 0, 0}, 2));
  check(spill_of({9}, 3));
  check(spill_of({5, 5, 5}, 1));
  check(spill_of({1, 30, 2}, 40));  // more ranks than experts
  check(large_spill(1, 1024, 512));
  check(large_spill(2, 130, 66));
  spill_case many = large_spill(3, 65535, 5);
  many.loads[65534] = 1000000;
  check(many);
  // The largest number of tokens, on one expert and on two: rounding errors would be whole tokens.
  constexpr std::int64_t most = 0x7fffffff;
  for (std::int32_t const percent : {50, 100, 110, 200}) {
    for (rounding_mode const round : {rounding_mode::up, rounding_mode::down}) {
      spill_case c = spill_of({0, most, 0, 0}, 4, 1024);
      c.percent = percent;
      c.options.round = round;
      check(c);
      c.loads = {most / 2, 0, 3, most / 2 - 2};
      check(c);
      c.paces = {8, 3, 1, 7};
      check(c);
    }
  }
  report_hash("least_loaded.sizes", hash.value());
}

PLIMSOLL_TEST_CASE("least_loaded: sizes", P, PLIMSOLL_PREPARED_POLICIES) {
  check_sizes(plan_with<P>);
}

// ----- invalid input -----------------------------------------------------------------------------

struct refused_loads {
  longs loads;  ///< [3]
  std::string message;
};

inline std::vector<refused_loads> refusals_of_loads() {
  constexpr std::int64_t most = 0x7fffffff;
  std::string const loads = "least_loaded::plan: loads: expected ";
  return {{{8, -1, -5}, loads + "values from 0 to below 2^47, got -1, expert 1"},
          {{8, 0, std::int64_t{1} << 47},
           loads + "values from 0 to below 2^47, got 140737488355328, expert 2"},
          {{most, 1, 0}, loads + "at most 2^31 - 1 tokens, got 2147483648"},
          {{most, most, most}, loads + "at most 2^31 - 1 tokens, got 6442450941"},
          {{std::int64_t{1} << 46, std::int64_t{1} << 46, 0},
           loads + "a total below 2^47 per layer, got 140737488355328"},
          {{most - 1, 0, 1}, "no error"},
          {{0, 0, 0}, "no error"}};
}

PLIMSOLL_TEST_CASE("least_loaded: invalid loads", P, PLIMSOLL_PREPARED_POLICIES) {
  spill_in<P> const in(spill_of({0, 0, 0}, 2));
  auto planner = in.make();
  planner.check();  // nothing has been refused yet
  for (refused_loads const& bad : refusals_of_loads()) {
    in.only_plan(planner, {5, 6, 7});
    in.only_plan(planner, bad.loads);
    check_message(refusal_of([&] { planner.check(); }), bad.message);
    // Refused loads leave an empty plan.
    spilled const got = in.read_plan(planner);
    bool const is_empty = got.offsets == ints(4, 0) && got.transfer_offsets == ints(4, 0) &&
                          got.loads == ints(2, 0) && got.bytes == longs(2, 0) &&
                          got.report.segments == 0 && got.report.tokens == 0;
    bool const is_none = bad.message != "no error" || bad.loads == longs(3, 0);
    check_message(is_empty ? "empty" : "planned", is_none ? "empty" : "planned");
  }
}

/// Counts that may differ from the planned loads, and the expected outputs.
struct odd_counts {
  ints counts;          ///< [2, 2]: of both ranks
  longs loads;          ///< the planned loads
  std::string message;  ///< of `check`
  longs counters;       ///< of rank 1
  ints destinations;    ///< of rank 1, whose ids are 0, 0, 1, 0
  ints arranged;        ///< of rank 1
};

/// Cases of two ranks and two experts, with all tokens at home.
inline std::vector<odd_counts> all_odd_counts() {
  constexpr std::int32_t most = 0x7fffffff;
  std::string const counts = "least_loaded::exchange: counts: expected the planned load, ";
  return {{{4, 0, 3, 1}, {7, 1}, "no error", {4, 0, 0, 0}, {0, 0, 1, 0}, {0, -1, -1}},
          // More tokens than planned: the last ones get no rank.
          {{4, 0, 3, 1},
           {5, 1},
           counts + "5 tokens, got 7, expert 0",
           {2, 2, 0, 0},
           {0, -1, 1, -1},
           {0, -1, -1}},
          {{4, 0, 3, 1},
           {7, 0},
           counts + "0 tokens, got 1, expert 1",
           {3, 1, 0, 0},
           {0, 0, -1, 0},
           {-1, -1, -1}},
          // Fewer tokens than planned: some rows stay empty.
          {{4, 0, 3, 1},
           {7, 3},
           counts + "3 tokens, got 1, expert 1",
           {4, 0, 0, 0},
           {0, 0, 1, 0},
           {0, -1, -1}},
          // A count below 0 counts as 0.
          {{-4, 0, 3, 1},
           {3, 1},
           counts + "3 tokens, got -4, expert 0",
           {4, 0, 0, 0},
           {0, 0, 1, 0},
           {0, -1, -1}},
          // More tokens than a step may have.
          {{most, 0, 3, 1},
           {7, 1},
           counts + "7 tokens, got 2147483650, expert 0",
           {1, 3, 0, 0},
           {-1, -1, 1, -1},
           {0, -1, -1}},
          {{most - 1, 0, most, 1},
           {0, 1},
           counts + "0 tokens, got 4294967293, expert 0",
           {1, 3, 0, 0},
           {-1, -1, 1, -1},
           {0, -1, -1}}};
}

inline void check_odd_counts(odd_counts const& odd, spill_counters const& counters,
                             ints const& destinations, ints rows, ints const& arranged) {
  CAPTURE(odd.message);
  CHECK(numbers_in(counters) == odd.counters);
  CHECK(destinations == odd.destinations);
  // Each row is used once, and only copies with a destination have one.
  ints expected(destinations.size(), -1);
  std::iota(expected.end() - counters.routed, expected.end(), 0);
  std::sort(rows.begin(), rows.end());
  CHECK(rows == expected);
  CHECK(arranged == odd.arranged);
}

PLIMSOLL_TEST_CASE("least_loaded: counts of another step than the plan's", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  spill_case c = spill_of({0, 0}, 2);
  c.options.lambda = 2.5;
  c.ids = {{}, {0, 0, 1, 0}};
  spill_in<P> const in(c);
  auto planner = in.make();
  array_in<std::int32_t, P> const ids(ints{0, 0, 1, 0});
  array_in<spill_segment, P> groups(2);
  for (odd_counts const& odd : all_odd_counts()) {
    array_in<std::int32_t, P> const counts(odd.counts);
    array_in<std::int32_t, P> unused(2);
    array_in<std::int32_t, P> destinations(4, gap_value);
    array_in<std::int32_t, P> rows(4, gap_value);
    array_in<std::int32_t, P> arranged(3, gap_value);
    array_in<spill_counters, P> counters(1);
    in.only_plan(planner, odd.loads);
    planner.count(ids.view2(4, 1), unused.view1());
    planner.add_up(counts.view2(2, 2));
    planner.exchange();
    planner.route(1, ids.view2(4, 1), destinations.view2(4, 1), rows.view2(4, 1), counters.view1());
    planner.arrange(1, arranged.view1(), groups.view1());
    check_message(refusal_of([&] { planner.check(); }), odd.message);
    check_odd_counts(odd, counters.values()[0], destinations.values(), rows.values(),
                     arranged.values());
  }
}

/// Takes other homes and ranks, some of them refused, and compares each plan with that of a new
/// object. `run_of(step)` returns a function that repeats `step`: itself, or a replay of its CUDA
/// graph. Returns the transfers of steps with dead ranks.
template <class P, class RunOf>
std::int64_t check_updates(std::uint64_t seed, RunOf const& run_of) {
  auto const policy = make_policy<P>();
  generator draw(seed);
  index_t const experts = draw.between(1, 20);
  index_t const ranks = draw.between(1, 6);
  index_t const most = experts + draw.between(0, 2 * ranks);
  updated_homes<P> model(draw, experts, ranks, most);
  least_loaded_options options{.experts = experts,
                               .max_slots = most,
                               .min_chunk = 1 + static_cast<std::int64_t>(seed % 3),
                               .lambda = 0,
                               .max_imports = seed % 4 == 0 ? index_t{2} : plimsoll::expert_limit,
                               .expert_bytes = 8,
                               .max_token_copies = 8};
  auto const planner_for = [&](home_arrays<P> const& of) {
    of.give(options);
    return plimsoll::least_loaded(policy, options);
  };
  array_in<std::int32_t, P> counts(ranks * experts);
  auto const step_of = [&](auto& planner) {
    planner.add_up(counts.view2(ranks, experts));
    planner.plan();
    planner.exchange();
  };
  auto const written_by = [&](auto const& planner) {
    std::vector<longs> result;
    auto const add = [&](auto const& view, index_t count) {
      auto list = plimsoll::read(policy, view);
      list.resize(static_cast<std::size_t>(count));
      if constexpr (std::is_integral_v<typename decltype(list)::value_type>) {
        result.push_back(longs(list.begin(), list.end()));
      } else {
        result.push_back(numbers_in(list));
      }
      return list;
    };
    add(planner.segments(), add(planner.offsets(), experts + 1).back());
    add(planner.transfers(), add(planner.transfer_offsets(), experts + 1).back());
    add(planner.rank_loads(), ranks);
    add(planner.rank_bytes(), ranks);
    result.push_back(numbers_in(plimsoll::read(policy, planner.report())));
    add(plimsoll::vector_ref<std::int32_t const>(planner.send_counts().data, ranks * ranks),
        ranks * ranks);
    return result;
  };

  std::vector<plimsoll::least_loaded<policy_of<P>>> planners;
  planners.push_back(planner_for(model.in_use()));  // copies the arrays, which are freed here
  auto& planner = planners.front();
  auto const run = run_of([&] { step_of(planner); });
  std::int64_t transfers = 0;
  for (int turn = 0; turn < 5; ++turn) {
    CAPTURE(turn);
    if (turn > 0) {
      model.step(planners, "least_loaded");
    }
    ints drawn;
    for (index_t i = 0; i < ranks * experts; ++i) {
      drawn.push_back(static_cast<std::int32_t>(draw.between(0, draw.between(0, 40))));
    }
    counts.assign(drawn);
    run();
    auto const got = written_by(planner);
    auto fresh = planner_for(model.in_use());
    step_of(fresh);
    bool const same = got == written_by(fresh);
    CHECK(same);
    transfers += model.all_live() ? 0 : plimsoll::read(policy, fresh.report()).transfers;
    model.check_current(planner, "least_loaded");
  }
  return transfers;
}

PLIMSOLL_TEST_CASE("least_loaded: updated objects plan as new ones do", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  std::int64_t transfers = 0;
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    transfers += check_updates<P>(seed, [](auto const& step) { return step; });
  }
  CHECK((transfers > 0 || array_in<int, P>::on_device));
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of waterline under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/memory.hpp>
#include <plimsoll/waterline.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/spread.hpp"
#include "support/update_sequences.hpp"
#include "support/updated_slots.hpp"
#include "support/waterline.hpp"

namespace plimsoll_test {

using namespace waterline_support;

// ----- by hand -----------------------------------------------------------------------------------

/// Returns a case of four ranks with one slot each, in which rank 0 holds all tokens.
inline line_case four_ranks(longs ids) {
  line_case c;
  c.options = {.on = {.ranks = 4}, .slots = 4, .top_k = 1, .max_tokens = 8, .min_tokens = 0};
  c.ids = {std::move(ids), {}, {}, {}};
  return c;
}

inline void check_by_hand(pour_fn pour_all) {
  // Rank 0 has a load of 12, and the level is 4; four rows must stay, as they visit rank 0 alone.
  line_case c = four_ranks({0, 0, 0, 0, 1, 1, 2, 3});
  poured const along = pour_all(c).of[0];
  CHECK(along.ranks == ints{0, 0, 0, 0, 1, 1, 2, 3});
  CHECK(along.ids == longs{0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7});
  CHECK(numbers_in(along.report) == longs{8, 8, 4, 4, 0, 0, 0, 0, 0, -1, -1});
  CHECK(along.report.level == 4);
  CHECK(along.report.home_peak == 12);
  CHECK(along.slack == longs{0, 2, 3, 3});
  // With `all`, the other rows go to any rank, lower ranks first.
  c.options.candidates = candidate_ranks::all;
  poured const alone = pour_all(c).of[0];
  CHECK(alone.ranks == ints{2, 2, 3, 3, 1, 1, 2, 3});
  CHECK(alone.ids == longs{0, 5, 0, 5, 0, 7, 0, 7, 2, 3, 2, 3, 4, 5, 6, 7});
  CHECK(numbers_in(alone.report) == longs{8, 8, 8, 0, 4, 0, 0, 0, 0, -1, -1});
  // A batch that is one row too small, and one that is just large enough.
  c.options.min_tokens = 9;
  CHECK(pour_all(c).of[0].ranks == ints(8, 0));
  CHECK(pour_all(c).of[0].report.level == 12);
  c.options.min_tokens = 8;
  CHECK(difference(pour_all(c).of[0], alone) == "");
  // A rank of twice the speed takes twice the load: 8 of 16 tokens, 2 of them routed to it.
  c = four_ranks({0, 0, 0, 0, 1, 1, 2, 3});
  c.options.candidates = candidate_ranks::all;
  c.paces = {4, 8, 4, 4};
  poured const fast = pour_all(c).of[0];
  CHECK(fast.slack == longs{0, 6, 3, 3});
  CHECK(fast.report.level == 4);
  CHECK(fast.report.moved == 8);
  // Slots of no rank, invalid ids, and a dead rank.
  line_case odd = four_ranks({0, 5, -1, 2, -7, 0, 4, 2});
  odd.options.slots = 6;
  odd.offsets = {0, 2, 2, 3, 5};
  odd.active = {1, 0, 1, 1};
  odd.options.weight = 0.5f;
  poured const some = pour_all(odd).of[0];
  CHECK(some.ids == longs{0, 2, -1, -1, -1, -1, 4, 5, -1, -1, 0, 2, 7, 8, 4, 5});
  CHECK(some.weights ==
        floats{0.25f, 0.5f, 0, 0, 0, 0, 0.625f, 0.5f, 0, 0, 0.875f, 0.5f, 1, 0.5f, 1.125f, 0.5f});
  report_hash("waterline.by_hand", along.ids, alone.ids, fast.ids, some.ids);
}

PLIMSOLL_TEST_CASE("waterline: by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  check_by_hand(pour_all<P>);
}

// ----- random steps ------------------------------------------------------------------------------

inline void check_random(pour_fn pour_all) {
  fnv1a hash;
  tally happened;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    line_case const c =
        random_line(seed, seed % 3 == 0 ? fill_method::sampled : fill_method::surplus);
    check_outcome(c, pour_all(c), happened, hash);
  }
  report_hash("waterline.random", hash.value());
}

PLIMSOLL_TEST_CASE("waterline: random steps", P, PLIMSOLL_PREPARED_POLICIES) {
  check_random(pour_all<P>);
}

// ----- many ranks, many tiles, types, strides ----------------------------------------------------

inline line_case large_line(std::uint64_t seed, index_t ranks, index_t nodes, index_t k,
                            std::int64_t tokens, int skew) {
  draws draw(seed);
  line_case c;
  c.options = {
      .on = {.ranks = ranks, .nodes = nodes}, .slots = 3 * ranks, .top_k = k, .min_tokens = 0};
  draw_tokens(c, draw, tokens, skew, 60);
  return c;
}

inline void check_large(pour_fn pour_all) {
  fnv1a hash;
  tally happened;
  auto const check = [&](line_case c, candidate_ranks candidates, fill_method rule) {
    c.options.candidates = candidates;
    c.options.method = rule;
    check_outcome(c, pour_all(c), happened, hash);
  };
  line_case const tiles = large_line(1, 3, 2, 3, 1600, 3);
  check(tiles, candidate_ranks::visited, fill_method::surplus);
  check(tiles, candidate_ranks::all, fill_method::surplus);
  check(tiles, candidate_ranks::visited, fill_method::sampled);
  line_case const ranks = large_line(2, 66, 9, 8, 40, 6);
  check(ranks, candidate_ranks::visited, fill_method::surplus);
  check(ranks, candidate_ranks::all, fill_method::sampled);
  report_hash("waterline.large", hash.value());
}

PLIMSOLL_TEST_CASE("waterline: many ranks, many tiles", P, PLIMSOLL_PREPARED_POLICIES) {
  check_large(pour_all<P>);
}

inline void check_types_and_strides(pour_fn pour_all, pour_fn pour_longs) {
  for (std::uint64_t seed = 100; seed < 105; ++seed) {
    CAPTURE(seed);
    line_case c = random_line(seed, seed % 2 == 0 ? fill_method::sampled : fill_method::surplus);
    outcome const expected = pour_all(c);
    c.step = 3;
    CHECK(difference(pour_all(c), expected) == "");
    // Not a slot's id, though its lower half is one.
    for (longs& ids : c.ids) {
      std::replace(ids.begin(), ids.end(), std::int64_t{-2}, std::int64_t{1} << 32);
    }
    CHECK(difference(pour_longs(c), expected) == "");
  }
}

PLIMSOLL_TEST_CASE("waterline: types and strides", P, PLIMSOLL_PREPARED_POLICIES) {
  check_types_and_strides(pour_all<P>, pour_all<P, std::int64_t>);
}

// ----- refused loads -----------------------------------------------------------------------------

// One object serves all sources, in any order, if each fill follows the plan for its source.
PLIMSOLL_TEST_CASE("waterline: fill refuses a source for which plan was not called", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  for (fill_method const rule : {fill_method::surplus, fill_method::sampled}) {
    line_case c = four_ranks({0, 0, 0, 0, 2, 2, 2, 3});
    c.options.method = rule;
    c.options.candidates = candidate_ranks::all;
    c.ids[1] = c.ids[0];
    longs const loads{8, 2, 1, 1, 8, 8, 0, 0};
    line_in<P> const in(c);
    auto line = in.make();
    array_in<std::int32_t, P> const ids(ints(c.ids[0].begin(), c.ids[0].end()));
    array_in<std::int64_t, P> const summed(loads);
    array_in<std::int64_t, P> out(16);
    array_in<std::int32_t, P> ranks(8);
    auto const fill = [&](index_t source) {  // int32 ids in, int64 ids out
      line.fill(ids.view2(8, 1), source, {}, out.view2(8, 2), {.ranks = ranks.view1()});
    };
    auto const stays_home = [&](std::int32_t source) {
      return ranks.values() == ints(8, source) &&
             plimsoll::read(make_policy<P>(), line.report()).moved == 0;
    };
    CHECK_NOTHROW(line.check());
    fill(0);
    check_message(
        refusal_of([&] { line.check(); }),
        "waterline::fill: source: expected the source for which plan was called last, got 0");
    CHECK(stays_home(0));
    for (index_t const source : {0, 1, 0}) {
      poured const expected = in.pour(loads, source);
      line.plan(summed.view2(2, 4), source);
      fill(source);
      CHECK_NOTHROW(line.check());
      CHECK(ranks.values() == expected.ranks);
      CHECK(out.values() == expected.ids);
      CHECK(expected.report.moved > 0);
      line.plan(summed.view2(2, 4), source);
      fill(3);
      check_message(
          refusal_of([&] { line.check(); }),
          "waterline::fill: source: expected the source for which plan was called last, " +
              std::to_string(source) + ", got 3");
      CHECK(stays_home(3));
    }
    // A fault of plan is reported first.
    array_in<std::int64_t, P> const bad(longs{8, -1, 0, 0, 8, 0, 0, 0});
    line.plan(bad.view2(2, 4), 0);
    fill(1);
    check_message(refusal_of([&] { line.check(); }),
                  "waterline::plan: loads: expected values from 0 to 2^31 - 1, got -1 in row 0, "
                  "rank 1");
  }
}

struct refused_loads {
  longs loads;  ///< [2, 4]
  std::string message;
};

inline std::vector<refused_loads> refusals_of_loads() {
  constexpr std::int64_t most = 0x7fffffff;
  auto const values = [](char const* got) {
    return std::string("waterline::plan: loads: expected values from 0 to 2^31 - 1, got ") + got;
  };
  return {{{8, -1, 0, 0, 8, 0, 0, -5}, values("-1 in row 0, rank 1")},
          {{8, 0, 0, 0, 8, 0, 0, -5}, values("-5 in row 1, rank 3")},
          {{8, 0, most + 1, -1, 8, 0, 0, 0}, values("2147483648 in row 0, rank 2")},
          {{8, 0, 0, 0, 8, 0, most + 1, 0}, values("2147483648 in row 1, rank 2")},
          {{8, 0, 0, 0, 8, 3, 0, 0},
           "waterline::plan: loads: expected 0 of a rank that is not active, got 3 in row 1, rank "
           "1"},
          {{8, 9, -1, 0, 8, 0, 0, 0},
           "waterline::plan: loads: expected 0 of a rank that is not active, got 9 in row 0, rank "
           "1"},
          {{most - 8, 0, 0, 1, 8, 0, 0, 0},
           "waterline::plan: loads: expected at most 2^31 - 1 tokens, got 2147483648"},
          {{most, 0, most, most, most, 0, most, most},
           "waterline::plan: loads: expected at most 2^31 - 1 tokens, got 12884901882"},
          {{most - 8, 0, 0, 0, 8, 0, 0, 0}, "no error"}};
}

PLIMSOLL_TEST_CASE("waterline: refuses invalid loads", P, PLIMSOLL_PREPARED_POLICIES) {
  for (fill_method const rule : {fill_method::surplus, fill_method::sampled}) {
    line_case c = four_ranks({0, 0, 0, 0, 2, 2, 2, 3});
    c.active = {1, 0, 1, 1};
    c.options.method = rule;
    c.options.candidates = candidate_ranks::all;
    line_in<P> const in(c);
    auto line = in.make();
    for (refused_loads const& bad : refusals_of_loads()) {
      poured const got = in.pour(line, bad.loads, 0);
      check_message(refusal_of([&] { line.check(); }), bad.message);
      bool const refused = bad.message != "no error";
      bool const stayed = got.ranks == ints(8, 0) && got.slack == longs(4, 0) &&
                          got.report.moved == 0 && got.report.unplaced == 0 &&
                          got.report.rows == 8 && got.report.level == 0;
      check_message(stayed ? "stayed" : "moved", refused ? "stayed" : "moved");
    }
  }
}

/// Takes other slots and ranks, some of them refused, and compares each step with that of a new
/// object. `run_of(step)` returns a function that repeats `step`: itself, or a replay of its CUDA
/// graph. Returns the rows that moved in steps with dead ranks.
template <class P, class RunOf>
std::int64_t check_updates(std::uint64_t seed, RunOf const& run_of) {
  constexpr index_t tokens = 60;
  constexpr index_t k = 3;
  auto const policy = make_policy<P>();
  generator draw(seed);
  index_t const ranks = draw.between(1, 6);
  index_t const slots = draw.between(2 * ranks, 5 * ranks);
  index_t const source = draw.between(0, ranks - 1);
  updated_slots<P> model(draw, ranks, slots, source);
  waterline_options options{
      .slots = slots,
      .top_k = k,
      .max_tokens = tokens,
      .method = seed % 3 == 0 ? fill_method::sampled : fill_method::surplus,
      .candidates = seed % 2 == 0 ? candidate_ranks::all : candidate_ranks::visited,
      .min_tokens = 1};
  array_in<std::int32_t, P> ids(tokens * k);
  array_in<std::int64_t, P> loads(2 * ranks);
  array_in<std::int32_t, P> out_ids(tokens * (k + 1));
  array_in<std::int32_t, P> out_ranks(tokens);
  auto const line_for = [&](slot_arrays<P> const& of) {
    options.rank_offsets = of.rank_offsets();
    options.on = of.on();
    return plimsoll::waterline(policy, options);
  };
  auto const step_of = [&](auto& line) {
    line.count(ids.view2(tokens, k), source, loads.view2(2, ranks));
    line.plan(loads.view2(2, ranks), source);
    line.fill(ids.view2(tokens, k), source, {}, out_ids.view2(tokens, k + 1),
              {.ranks = out_ranks.view1()});
  };
  struct written {
    ints ids;
    ints ranks;
    longs loads;
    longs slack;
    longs report;
    bool operator==(written const&) const = default;
  };
  auto const written_by = [&](auto const& line) {
    return written{out_ids.values(), out_ranks.values(), loads.values(),
                   plimsoll::read(policy, line.slack()),
                   numbers_in(plimsoll::read(policy, line.report()))};
  };

  auto line = line_for(model.in_use());  // copies the arrays, which are freed here
  auto const run = run_of([&] { step_of(line); });
  std::int64_t moved = 0;
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    if (turn > 0) {
      model.step(line, "waterline");
    }
    ids.assign(model.ids(tokens * k));
    run();
    written const got = written_by(line);
    auto fresh = line_for(model.in_use());
    step_of(fresh);
    bool const same = got == written_by(fresh);
    CHECK(same);
    moved += model.all_live() ? 0 : plimsoll::read(policy, fresh.report()).moved;
    model.check_current(line, "waterline");
  }
  return moved;
}

PLIMSOLL_TEST_CASE("waterline: updated objects fill as new ones do", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  std::int64_t moved = 0;
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    moved += check_updates<P>(seed, [](auto const& step) { return step; });
  }
  CHECK((moved > 0 || array_in<int, P>::on_device));
}

PLIMSOLL_TEST_CASE("waterline: refused updates", P, PLIMSOLL_PREPARED_POLICIES) {
  array_in<std::int32_t, P> const offsets(ints{0, 2, 2, 4});
  plimsoll::waterline line(make_policy<P>(),
                           {.on = {.ranks = 2}, .slots = 4, .top_k = 1, .max_tokens = 4});
  auto const refusal = [&](index_t count, plimsoll::rank_set const& on = {}) {
    return refusal_of([&] {
      line.update({offsets.data(), count}, on);
      line.check();
    });
  };
  check_message(refusal(2),
                "waterline::update: rank_offsets: expected 3 offsets (ranks + 1), got 2");
  check_message(refusal(3, {.ranks = 3}),
                "waterline::update: on.ranks: expected 2 ranks, as in the placement, got 3");
  check_message(
      refusal(3),
      "waterline::update: rank_offsets: expected at least 1 slot for every live rank, got "
      "0, rank 1");
  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{1, 0});
  check_message(refusal(3, {.active = active.view1()}), "no error");
  check_message(
      refusal_of([&] { line.expect_current({}); }),
      "waterline::expect_current: rank_offsets: expected 2, as in the slots in use, got 4 "
      "at 2");
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of llep under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/llep.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/llep.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/update_sequences.hpp"
#include "support/updated_homes.hpp"

namespace plimsoll_test {

using namespace llep_support;

// ----- steps -------------------------------------------------------------------------------------

/// Returns a case of four ranks with two experts each. Of 60 tokens on each rank, `hot` are for
/// expert 6, and the others for all experts in turn.
inline llep_case make_even_case(index_t hot) {
  llep_case c;
  c.options.on.ranks = 4;
  c.options.experts = 8;
  c.options.min_chunk = 1;
  c.options.expert_bytes = 1000;
  for (index_t r = 0; r < 4; ++r) {
    ints ids(static_cast<std::size_t>(hot), 6);
    for (std::int32_t i = 0; std::ssize(ids) < 60; ++i) {
      ids.push_back(i % 8);
    }
    c.ids.push_back(ids);
  }
  return c;
}

inline void check_threshold(step_fn step_of) {
  auto const at_home = [](llep_case const& c, std::vector<rank_result> const& got) {
    bool all = true;
    for (std::size_t r = 0; r < got.size(); ++r) {
      for (std::size_t i = 0; i < c.ids[r].size(); ++i) {
        all = all && got[r].destinations[i] == c.ids[r][i] / 2;
      }
    }
    return all;
  };
  // Each rank has 9 tokens for expert 6, and 51 for all in turn: the last rank gets 84, its share
  // is 60.
  llep_case c = make_even_case(9);
  for (double const lambda : {1.3, 1.41, 1.4, 0.0}) {
    CAPTURE(lambda);
    c.options.lambda = lambda;
    auto const got = step_of(c);
    bool const spills = lambda <= 1.4;
    CHECK(got[0].report.imbalance == 1.4);
    CHECK((got[0].report.spills != 0) == spills);
    CHECK(got[0].plan.transfers.empty() == !spills);
    CHECK(at_home(c, got) == !spills);
    CHECK(got[0].report.result.value == (spills ? 60 : 84));
    CHECK(got[0].report.home_peak == 84);
    CHECK(moved_layer(c, got) == expected_layer(c));
  }
  // The paper uses the imbalance of experts.
  c.options.trigger = plimsoll::spill_trigger::expert_imbalance;
  c.options.lambda = 1.41;
  auto const got = step_of(c);
  CHECK(got[0].report.imbalance == 2);
  CHECK(got[0].report.spills == 1);
}

PLIMSOLL_TEST_CASE("llep: plain expert parallelism below lambda", P, PLIMSOLL_PREPARED_POLICIES) {
  check_threshold(step_of<P>);
}

inline void check_steps(step_fn step_of, step_fn by_hand_of) {
  fnv1a all;
  llep_ways seen;
  for (std::uint64_t seed = 0; seed < cases_of(200); ++seed) {
    CAPTURE(seed);
    llep_case const c = make_llep_case(seed);
    auto const got = step_of(c);
    auto const expected = by_hand_of(c);
    for (std::size_t r = 0; r < got.size(); ++r) {
      CAPTURE(r);
      CHECK(got[r].plan == got[0].plan);
      CHECK(difference(got[r], expected[r]) == "");
      ints const& ids = c.ids[r];
      auto const routed =
          std::count_if(ids.begin(), ids.end(), [&c](std::int32_t id) { return c.is_expert(id); });
      auto const unrouted = std::count(ids.begin(), ids.end(), -1);
      CHECK(got[r].counters == longs{routed, 0, unrouted, std::ssize(ids) - routed - unrouted});
      all.add(got[r].destinations);
      all.add(got[r].rows);
      all.add(got[r].arranged);
    }
    all.add(got[0].plan.segments);
    all.add(got[0].plan.transfers);
    CHECK(moved_layer(c, got) == expected_layer(c));
    spill_report const& report = got[0].report;
    bool const sends = report.transfers > 0;
    ++(sends ? seen.spilled : seen.stayed);
    seen.moved += sends && !c.slots.empty();
    seen.priced += sends && c.is_priced();
    seen.forced += report.forced > 0;
  }
  for (std::int64_t const way : seen.counts()) {
    CHECK(way >= static_cast<std::int64_t>(cases_of(16)));
  }
  report_hash("llep.steps", all.value());
}

PLIMSOLL_TEST_CASE("llep: all ranks make one plan with the results of plain expert parallelism", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_steps(step_of<P>, by_hand_of<P>);
}

inline void check_price(step_fn step_of) {
  llep_case c = make_even_case(30);
  c.options.on.nodes = 2;
  auto const free = step_of(c);
  CHECK(free[0].report.transfers == 3);
  CHECK(free[0].report.home_time == 0);
  auto const check = [&](double within_node, double between_nodes) {
    CAPTURE(between_nodes);
    c.price = {{1, 1, 1}, within_node, between_nodes};
    auto const got = step_of(c);
    spill_report const& report = got[0].report;
    // The time with all tokens at home is a launch, two experts, and the tokens.
    CHECK(report.home_time == 3 + report.home_peak);
    CHECK((report.time < report.home_time) == (report.transfers > 0));
    CHECK(moved_layer(c, got) == expected_layer(c));
    return got[0].plan;
  };
  CHECK(check(1e9, 1e9).segments == free[0].plan.segments);
  longs const in_node = check(1e9, 20).transfers;
  CHECK(!in_node.empty());
  for (std::size_t i = 0; i < in_node.size(); i += 4) {
    CHECK(in_node[i + 1] == 3);
    CHECK(in_node[i + 2] == 2);
  }
  CHECK(check(20, 20).transfers.empty());
}

PLIMSOLL_TEST_CASE("llep: weights move only if that saves time", P, PLIMSOLL_PREPARED_POLICIES) {
  check_price(step_of<P>);
}

// ----- invalid input -----------------------------------------------------------------------------

struct refused_llep {
  llep_options options;
  std::string message;
};

inline std::vector<refused_llep> refusals() {
  std::vector<refused_llep> all;
  auto const next = [&](std::string message) -> llep_options& {
    all.push_back({{1, make_even_case(30).options}, std::move(message)});
    return all.back().options;
  };
  next("no error");
  next("llep: options.rank: expected 0 to 3 as rank, got 4").rank = 4;
  next("llep: options.rank: expected 0 to 3 as rank, got -1").rank = -1;
  next("llep: options.assignment.experts: expected 1 to 65535 experts, got 0").assignment.experts =
      0;
  next("llep: options.assignment.on.ranks: expected 1 to 32767 ranks, got 0").assignment.on.ranks =
      0;
  next("llep: options.assignment.alpha: expected a number above 0, at most 32768, got 0")
      .assignment.alpha = 0;
  next("llep: options.assignment.min_chunk: expected 1 to 2147483647 tokens, got 0")
      .assignment.min_chunk = 0;
  next("llep: options.assignment.lambda: expected a number from 0, got -1").assignment.lambda = -1;
  return all;
}

/// Counts of one rank, and the message of `check`.
struct refused_counts {
  ints row;  ///< of rank 2
  std::string message;
};

inline std::vector<refused_counts> count_refusals() {
  return {{{0, 0, 0, 0, 0, -3, 0, 0},
           "llep::plan: loads: expected values from 0 to below 2^47, got -3, expert 5"},
          {{0, 0, 0, 0x7fffffff, 0, 0, 0, 0},
           "llep::plan: loads: expected at most 2^31 - 1 tokens, got 2147483707"},
          {{0, 0, 0, 0x7fffffff - 60, 0, 0, 0, 0}, "no error"},
          {{0, 0, 0, 0, 0, 0, 0, 0}, "no error"}};
}

PLIMSOLL_TEST_CASE("llep: invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (refused_llep const& bad : refusals()) {
    check_message(refusal_of([&] { plimsoll::llep const rank(policy, bad.options); }), bad.message);
  }
  llep_case c = make_even_case(30);
  llep_options priced{0, c.options};
  check_message(refusal_of([&] {
                  plimsoll::llep const rank(policy, priced, spill_price<moe_cost>{{1, 1, 1}, 5, 0});
                }),
                "llep: price.between_nodes: expected a number of bytes from 2^-900 to "
                "below 2^960, got 0");

  llep_group<P> group(c, {});
  llep_options const options{1, group.options()};
  plimsoll::llep rank(policy, options);
  array_in<std::int32_t, P> const zeros(8);
  for (index_t r = 0; r < 4; ++r) {
    group.gather(zeros.data(), r, rank);
  }
  rank.count(group.ids(1));
  for (refused_counts const& bad : count_refusals()) {
    array_in<std::int32_t, P> const row(bad.row);
    group.gather(row.data(), 2, rank);
    rank.plan();
    check_message(refusal_of([&] { rank.check(); }), bad.message);
  }

  array_in<std::int32_t, P> ids(200);
  array_in<std::int32_t, P> out(200);
  array_in<plimsoll::spill_counters, P> counters(2);
  check_message(refusal_of([&] { rank.count(ids.view2(31, 2)); }),
                "llep::count: topk_ids: expected 0 to 30 tokens "
                "(options.assignment.max_token_copies), got 31");
  auto const routed = [&](index_t tokens, index_t columns, index_t count) {
    return refusal_of([&] {
      rank.route(ids.view2(30, 2), out.view2(30, 2), out.view2(tokens, columns),
                 plimsoll::vector_ref<plimsoll::spill_counters>(counters.data(), count));
    });
  };
  check_message(routed(30, 2, 1), "no error");
  check_message(routed(29, 2, 1), "llep::route: rows: expected 30 tokens, got 29");
  check_message(routed(30, 1, 1), "llep::route: rows: expected 2 ids per token, got 1");
  check_message(routed(30, 2, 2), "llep::route: counters: expected 1 element, got 2");
}

inline void check_impossible(step_fn step_of) {
  llep_case c = make_even_case(30);
  c.options.max_imports = 0;
  auto const got = step_of(c);
  // No plan within the limits has a lower peak, but the peak is above the capacity.
  CHECK(got[0].report.result.status == certificate_status::infeasible);
  CHECK(got[0].report.result.lower_bound == got[0].report.home_peak);
  CHECK(got[0].report.transfers == 0);
  CHECK(got[0].report.result.value == got[0].report.home_peak);
  CHECK(static_cast<double>(got[0].report.overload) == got[0].report.home_peak - 60);
  CHECK(moved_layer(c, got) == expected_layer(c));
  // A single rank cannot send; and a step without tokens.
  llep_case alone = make_even_case(30);
  alone.options.on.ranks = 1;
  alone.ids.resize(1);
  auto const by_one = step_of(alone);
  CHECK(by_one[0].report.result.status == certificate_status::optimal);
  CHECK(by_one[0].sends == ints{60});
  CHECK(moved_layer(alone, by_one) == expected_layer(alone));
  llep_case idle = make_even_case(30);
  idle.ids.assign(4, ints{});
  for (rank_result const& of : step_of(idle)) {
    CHECK(of.plan.segments.empty());
    CHECK(of.report.imbalance == 1);
    CHECK(of.sends == ints{0, 0, 0, 0});
    CHECK(of.groups.empty());
  }
}

PLIMSOLL_TEST_CASE("llep: infeasible limits, one rank, no tokens", P, PLIMSOLL_PREPARED_POLICIES) {
  check_impossible(step_of<P>);
}

// ----- updates -----------------------------------------------------------------------------------

/// Takes other homes and ranks, some of them refused, on all ranks of a group, and compares each
/// step with that of a new group. `run_of(step)` returns a function that repeats `step`: itself, or
/// a replay of its CUDA graph. Returns the transfers of steps with dead ranks.
template <class P, class Cost, class RunOf>
std::int64_t check_updates(std::uint64_t seed, spill_price<Cost> const& price,
                           RunOf const& run_of) {
  constexpr index_t tokens = 20;
  generator draw(seed);
  index_t const ranks = draw.between(1, 4);
  index_t const experts = draw.between(1, 12);
  index_t const most = experts + draw.between(0, 2 * ranks);
  updated_homes<P> model(draw, experts, ranks, most);
  llep_case c;
  c.k = draw.between(1, 2);
  c.options = {.experts = experts,
               .max_slots = most,
               .min_chunk = 1 + static_cast<std::int64_t>(seed % 3),
               .lambda = 0,
               .max_imports = seed % 4 == 0 ? index_t{2} : experts,
               .expert_bytes = 8};
  auto const next_batch = [&] {
    auto const hot = draw.between(0, experts - 1);
    c.ids.clear();
    for (index_t r = 0; r < ranks; ++r) {
      c.ids.push_back(make_ids(draw, tokens * c.k, experts, hot));
    }
  };
  struct planners {
    std::unique_ptr<llep_group<P, Cost>> group;
    std::vector<typename llep_group<P, Cost>::rank_type> ranks;
  };
  auto const planners_for = [&](home_arrays<P> const& homes) {
    llep_case given = c;
    homes.give(given.options);
    auto group = std::make_unique<llep_group<P, Cost>>(given, price);
    auto of_ranks = group->make_ranks();
    return planners{std::move(group), std::move(of_ranks)};
  };
  next_batch();
  planners all = planners_for(model.in_use());  // copies the arrays, which are freed here
  auto const run = run_of([&] { all.group->step(all.ranks); });
  std::int64_t transfers = 0;
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    if (turn > 0) {
      model.step(all.ranks, "llep");
    }
    next_batch();
    all.group->assign(c);
    run();
    auto const got = all.group->written(all.ranks);
    planners fresh = planners_for(model.in_use());
    fresh.group->step(fresh.ranks);
    auto const expected = fresh.group->results(fresh.ranks);
    for (std::size_t r = 0; r < got.size(); ++r) {
      CHECK(difference(got[r], expected[r]) == "");
    }
    transfers += model.all_live() ? 0 : expected[0].report.transfers;
    model.check_current(all.ranks.front(), "llep");
  }
  return transfers;
}

template <class P, class RunOf>
std::int64_t check_updates(std::uint64_t seed, RunOf const& run_of) {
  return seed % 4 == 3 ? check_updates<P>(seed, spill_price<moe_cost>{{5, 1, 2}, 200, 50}, run_of)
                       : check_updates<P>(seed, spill_price<void>{}, run_of);
}

PLIMSOLL_TEST_CASE("llep: updated objects plan as new ones do", P, PLIMSOLL_PREPARED_POLICIES) {
  std::int64_t transfers = 0;
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    transfers += check_updates<P>(seed, [](auto const& step) { return step; });
  }
  CHECK((transfers > 0 || array_in<int, P>::on_device));
}

PLIMSOLL_TEST_CASE("llep: refused updates", P, PLIMSOLL_PREPARED_POLICIES) {
  llep_case const c = make_even_case(9);
  llep_group<P> const group(c, {});
  plimsoll::llep rank(make_policy<P>(), {1, group.options()});
  auto const refusal = [&](plimsoll::expert_homes const& homes, plimsoll::rank_set const& on = {}) {
    return refusal_of([&] {
      rank.update(homes, on);
      rank.check();
    });
  };
  array_in<std::int32_t, P> homes(ints{0, 1, 2, 3, 0, 1, 2, 3, 0});
  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{1, 1, 1, 0});
  array_in<double, P> const speeds(std::vector<double>{1, 1, -1, 1});
  plimsoll::expert_homes const eight{.home_rank = {homes.data(), 8}};
  check_message(refusal(eight), "no error");
  check_message(refusal({.home_rank = homes.view1()}),
                "llep::update: homes.home_rank: expected 8 experts, got 9");
  check_message(refusal(eight, {.ranks = 3}),
                "llep::update: on.ranks: expected 4 ranks, as in the placement, got 3");
  check_message(refusal(eight, {.active = active.view1()}),
                "llep::update: homes: expected every expert on a live rank, got "
                "none, expert 3");
  check_message(refusal(eight, {.speeds = speeds.view1()}),
                "llep::update: on.speeds: expected values from 2^-64 to 2^64, got -1, rank 2");
  plimsoll::placement_ref const residents{.physical_to_logical = homes.view2(1, 9), .ranks = 4};
  check_message(refusal({.residents = residents}),
                "llep::update: homes.residents.physical_to_logical: expected 1 to 8 slots, got 9");
  homes.assign(ints{0, 1, 2, 3, 0, 1, 2, 4, 0});
  check_message(refusal(eight),
                "llep::update: homes.home_rank: expected ranks from 0 to 3, got 4, expert 7");
}

}  // namespace plimsoll_test

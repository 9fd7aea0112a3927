// SPDX-License-Identifier: Apache-2.0
// Tests of craft under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/craft.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/policies.hpp"
#include "support/replay_case.hpp"
#include "support/slot_oracle.hpp"

namespace plimsoll_test {

using namespace craft_support;

// ----- estimates ---------------------------------------------------------------------------------

PLIMSOLL_TEST_CASE("craft: default replica counts", P, PLIMSOLL_POLICIES) {
  auto const counts = [](index_t ranks, flags const& active = {}) {
    craft_case c{.experts = 4, .loads = {1, 2, 3, 4}};
    c.options.on.ranks = ranks;
    c.active = active;
    return craft_in<P>(c).estimate().replica_counts;
  };
  CHECK(counts(1) == ints{1});
  CHECK(counts(2) == ints{1, 2});
  CHECK(counts(6) == ints{1, 2, 4, 6});
  CHECK(counts(8) == ints{1, 2, 4, 8});
  CHECK(counts(48) == ints{1, 2, 4, 8, 16, 32, 48});
  CHECK(counts(8, {1, 1, 1, 0, 1, 0, 0, 1}) == ints{1, 2, 4, 5});  // five live ranks
}

/// Checks an estimate bit for bit, and returns base and gains.
template <class P>
reals check_estimate(craft_case const& c) {
  gain_estimate const got = craft_in<P>(c).estimate();
  auto const width = got.replica_counts.size();
  auto const layers = static_cast<std::size_t>(c.layers);
  if (!c.options.replica_counts.empty()) {
    CHECK(got.replica_counts == c.options.replica_counts);
  }
  reals const base = balancedness_with<P>(c, 0);
  CHECK(got.base == base);
  reals expected(layers * width);
  for (std::size_t k = 0; k < width; ++k) {
    reals const with = balancedness_with<P>(c, got.replica_counts[k]);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      expected[layer * width + k] = with[layer] - base[layer];
    }
  }
  CHECK(got.gain == expected);
  reals numbers = got.base;
  numbers.insert(numbers.end(), got.gain.begin(), got.gain.end());
  return numbers;
}

PLIMSOLL_TEST_CASE("craft: an estimate equals separate calls of eplb and replay", P,
                   PLIMSOLL_POLICIES) {
  auto const cases = craft_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    report_hash("craft.estimate." + std::to_string(i), check_estimate<P>(cases[i]));
  }
}

// ----- allocations -------------------------------------------------------------------------------

template <class P>
replica_allocation allocated(gain_estimate const& estimate, craft_options const& options) {
  return plimsoll::allocate_replicas(make_policy<P>(), estimate, options);
}

/// Gains `[layers, counts]`.
inline gain_estimate estimate_of(ints const& counts, reals const& gain) {
  return {counts, reals(gain.size() / counts.size(), 0.5), gain};
}

PLIMSOLL_TEST_CASE("craft: an allocation equals exhaustive search", P, PLIMSOLL_POLICIES) {
  ints all;
  reals curves;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    generator random(seed);
    index_t const layers = random.between(1, 5);
    index_t const ranks = random.between(1, 6);
    ints counts;
    for (std::int64_t n = random.between(1, 2); std::ssize(counts) < 1 + index_t(seed % 3);
         n += random.between(1, 4)) {
      counts.push_back(static_cast<std::int32_t>(n));
    }
    reals gain;
    for (index_t i = 0; i < layers * std::ssize(counts); ++i) {
      gain.push_back(static_cast<double>(random.between(-16, 48)) / 64);  // sums are exact
    }
    gain_estimate const estimate = estimate_of(counts, gain);
    index_t const most = layers * counts.back();
    for (index_t const budget :
         {index_t{0}, random.between(0, most), random.between(0, most), most, most + ranks + 9}) {
      CAPTURE(budget);
      for (knapsack_fill const fill : {knapsack_fill::at_most, knapsack_fill::exactly}) {
        for (craft_objective const value :
             {craft_objective::gain, craft_objective::replicas_times_gain}) {
          craft_case const c{
              .layers = layers,
              .options = {
                  .on = {.ranks = ranks}, .budget = budget, .objective = value, .fill = fill}};
          every_allocation const oracle(estimate, budget, fill, value);
          if (!oracle.feasible()) {
            CHECK_THROWS_AS(allocated<P>(estimate, c.options), plimsoll::invalid_input);
            continue;
          }
          replica_allocation const got = allocated<P>(estimate, c.options);
          crafted<P>::check_allocation(c, estimate, got);
          double sum = 0;
          for (std::size_t layer = 0; layer < got.gain.size(); ++layer) {
            sum += got.gain[layer] * (value == craft_objective::gain ? 1 : got.replicas[layer]);
            CHECK((fill == knapsack_fill::exactly || got.gain[layer] >= 0));
            // Replicas without gain are not chosen.
            CHECK((fill == knapsack_fill::exactly || got.gain[layer] > 0 ||
                   got.replicas[layer] == 0));
          }
          CHECK(sum == oracle.best);
          REQUIRE(std::ssize(got.curve) == (most + ranks - 1) / ranks + 1);
          for (std::size_t r = 0; r < got.curve.size(); ++r) {
            CHECK(got.curve[r] == every_allocation(estimate, static_cast<index_t>(r) * ranks,
                                                   knapsack_fill::at_most, craft_objective::gain)
                                      .best);
          }
          all.insert(all.end(), got.replicas.begin(), got.replicas.end());
          curves.insert(curves.end(), got.curve.begin(), got.curve.end());
        }
      }
    }
  }
  report_hash("craft.allocations", all, curves);
}

PLIMSOLL_TEST_CASE("craft: algorithm 2 as printed, and as in the text", P, PLIMSOLL_POLICIES) {
  gain_estimate const estimate =
      estimate_of({1, 2, 4}, {.20, .30, .33, .10, .18, .22, .05, .08, .10, 0, .01, .01});
  replica_allocation const text = allocated<P>(estimate, {.on = {.ranks = 4}, .budget = 8});
  CHECK(text.replicas == ints{2, 4, 2, 0});
  CHECK(text.gain == reals{.30, .22, .08, 0});
  CHECK(text.used == 8);
  CHECK(text.budget == 8);
  replica_allocation const coded =
      allocated<P>(estimate, {.on = {.ranks = 4},
                              .budget = 8,
                              .objective = craft_objective::replicas_times_gain,
                              .fill = knapsack_fill::exactly});
  CHECK(coded.replicas == ints{4, 4, 0, 0});
  CHECK(coded.gain == reals{.33, .22, 0, 0});
  // In both cases the curve is that of the gain: with 0, 4, 8, 12 and 16 replicas.
  CHECK(coded.curve == text.curve);
  REQUIRE(text.curve.size() == 5);
  CHECK(text.curve[1] == doctest::Approx(.48));
  CHECK(text.curve[2] == doctest::Approx(.60));
  CHECK(text.curve[3] == doctest::Approx(.65));
  CHECK(text.curve[4] == doctest::Approx(.66));

  // A budget above the largest counts of all layers: algorithm 2 as printed returns no replicas.
  gain_estimate const two = estimate_of({1, 2, 4}, {.1, .2, .3, .1, .2, .3});
  CHECK(allocated<P>(two, {.on = {.ranks = 6}, .budget = 12}).replicas == ints{4, 4});
  CHECK_THROWS_WITH_AS(
      allocated<P>(two, {.on = {.ranks = 6}, .budget = 12, .fill = knapsack_fill::exactly}),
      "allocate_replicas: options.budget: expected a sum of at most one replica count per layer, "
      "got 12",
      plimsoll::invalid_input);
  constexpr index_t all = std::numeric_limits<index_t>::max();
  CHECK(allocated<P>(two, {.on = {.ranks = 6}, .budget = all}).replicas == ints{4, 4});
  CHECK(allocated<P>(two, {.on = {.ranks = 6}, .budget = all}).budget == all);
  CHECK_THROWS_WITH_AS(
      allocated<P>(two, {.on = {.ranks = 6}, .budget = all, .fill = knapsack_fill::exactly}),
      "allocate_replicas: options.budget: expected a sum of at most one replica count per layer, "
      "got 9223372036854775807",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      allocated<P>(two, {.on = {.ranks = 6}, .budget = 7, .fill = knapsack_fill::exactly}),
      "allocate_replicas: options.budget: expected a sum of at most one replica count per layer, "
      "got 7",
      plimsoll::invalid_input);
  CHECK(allocated<P>(two, {.on = {.ranks = 6}, .budget = 7}).used == 6);
}

PLIMSOLL_TEST_CASE("craft: replicas without gain are not chosen", P, PLIMSOLL_POLICIES) {
  gain_estimate const estimate = estimate_of({1, 2}, {-.1, -.3, .2, .1, 0, 0});
  CHECK(allocated<P>(estimate, {.on = {.ranks = 2}, .budget = 6}).replicas == ints{0, 1, 0});
  CHECK(allocated<P>(estimate, {.on = {.ranks = 2}, .budget = 0}).replicas == ints{0, 0, 0});
  // They are chosen if the budget must be used up.
  replica_allocation const full =
      allocated<P>(estimate, {.on = {.ranks = 2}, .budget = 6, .fill = knapsack_fill::exactly});
  CHECK(full.replicas == ints{2, 2, 2});
  CHECK(full.gain == reals{-.3, .1, 0});
  // Of equal layers, the first ones get replicas.
  CHECK(allocated<P>(estimate_of({2}, {.1, .1, .1}), {.on = {.ranks = 2}, .budget = 4}).replicas ==
        ints{2, 2, 0});
}

PLIMSOLL_TEST_CASE("craft: the automatic budget is the knee", P, PLIMSOLL_POLICIES) {
  auto const budget = [](ints const& counts, reals const& gain, index_t ranks) {
    return allocated<P>(estimate_of(counts, gain), {.on = {.ranks = ranks}}).budget;
  };
  // The curve 0, .4, .7, .72, .73 is .335 above the line at 2 replicas per rank.
  replica_allocation const got =
      allocated<P>(estimate_of({3}, {.02, .3, .4, .01}), {.on = {.ranks = 3}});
  CHECK(got.knee == 2);
  CHECK(got.budget == 6);
  CHECK(got.used == 6);
  CHECK(got.replicas == ints{0, 3, 3, 0});
  CHECK(
      allocated<P>(estimate_of({3}, {.02, .3, .4, .01}), {.on = {.ranks = 3}, .budget = 3}).knee ==
      2);
  // Straight and flat lines have no knee.
  CHECK(budget({2}, {0, 0, 0}, 2) == 0);
  CHECK(budget({2}, {-.5, -.1, -.2}, 2) == 0);
  CHECK(budget({2}, {.25, .25, .25, .25}, 2) == 0);
  CHECK(budget({2}, {.5, 0, 0, 0}, 2) == 2);
  // Of two points at equal height, the first is the knee: 0, .5, .75, 1, 1.
  CHECK(budget({1}, {.5, .25, .25, 0}, 1) == 1);
  // The automatic budget is a multiple of the live ranks.
  array_in<std::uint8_t, P> const active(flags{1, 0, 1, 1});
  auto const alive = allocated<P>(estimate_of({3}, {.02, .3, .4, .01}),
                                  {.on = {.ranks = 4, .active = active.view1()}});
  CHECK(alive.budget == 6);
  CHECK(alive.curve == got.curve);
}

// ----- plans -------------------------------------------------------------------------------------

PLIMSOLL_TEST_CASE("craft: plans with every option", P, PLIMSOLL_POLICIES) {
  auto const cases = craft_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    craft_case c = cases[i];
    c.options.budget = 11;  // not a multiple of the ranks
    crafted<P> const got(c, static_cast<index_t>(i % 3));
    gain_estimate const estimate = craft_in<P>(c).estimate();
    CHECK(got.plan.estimate.base == estimate.base);
    CHECK(got.plan.estimate.gain == estimate.gain);
    CHECK(got.plan.allocation.replicas == allocated<P>(estimate, c.options).replicas);

    // All slots are filled, unless an option keeps some empty.
    if (c.options.anti_affinity_strength == plimsoll::strictness::preferred) {
      for (index_t layer = 0; layer < c.layers; ++layer) {
        auto const row = got.counts.begin() + layer * c.experts;
        CHECK(std::accumulate(row, row + c.experts, index_t{0}) ==
              c.experts + got.plan.allocation.replicas[static_cast<std::size_t>(layer)]);
      }
    }
    // The placement equals that of eplb in the same slots.
    craft_in<P> const in(c);
    array_in<double, P> const sums(c.summed());
    array_in<std::int32_t, P> const offsets(got.offsets);
    array_in<std::int32_t, P> map(std::ssize(got.map));
    array_in<std::int32_t, P> counts(std::ssize(got.counts));
    plimsoll::eplb_options placing{.on = {.ranks = c.options.on.ranks,
                                          .nodes = c.options.on.nodes,
                                          .active = in.options().on.active},
                                   .rank_offsets = offsets.view2(c.layers, c.options.on.ranks + 1),
                                   .groups = c.options.groups,
                                   .policy = c.options.policy,
                                   .refine = c.options.refine,
                                   .load_exponent = c.options.load_exponent,
                                   .replica_anti_affinity = c.options.replica_anti_affinity,
                                   .anti_affinity_strength = c.options.anti_affinity_strength};
    auto const place = [&] {
      return plimsoll::eplb(make_policy<P>(), sums.view2(c.layers, c.experts), placing,
                            map.view2(c.layers, got.slots), counts.view2(c.layers, c.experts));
    };
    auto const proofs = place();
    CHECK(got.map == map.values());
    CHECK(got.counts == counts.values());
    placing.refine = plimsoll::eplb_refinement::none;
    auto const unrefined = place();
    for (std::size_t layer = 0; layer < proofs.size(); ++layer) {
      CHECK(got.plan.certificates[layer].value == proofs[layer].value);
      CHECK(got.plan.certificates[layer].lower_bound == proofs[layer].lower_bound);
      CHECK(proofs[layer].value <= unrefined[layer].value);
    }
    report_hash("craft.plan." + std::to_string(i), got.map, got.offsets, got.counts,
                got.plan.allocation.replicas, got.plan.allocation.gain, got.plan.allocation.curve);
  }
}

/// Calls `craft` with int64 outputs, and the `craft` that returns them; compares with `expected`.
template <class P>
void check_other_outputs(craft_case const& c, crafted<P> const& expected) {
  craft_in<P> const in(c);
  index_t const ends = c.options.on.ranks + 1;
  array_in<std::int64_t, P> map(std::ssize(expected.map), -7);
  array_in<std::int64_t, P> offsets(std::ssize(expected.offsets), -7);
  array_in<std::int64_t, P> counts(std::ssize(expected.counts), -7);
  auto const plan = plimsoll::craft(
      make_policy<P>(), in.loads(), in.options(), map.view2(c.layers, expected.slots),
      offsets.view2(c.layers, ends), counts.view2(c.layers, c.experts));
  CHECK(as_int32(map.values()) == expected.map);
  CHECK(as_int32(offsets.values()) == expected.offsets);
  CHECK(as_int32(counts.values()) == expected.counts);
  CHECK(same(plan.certificates, expected.plan.certificates));

  if constexpr (can_be_kept<P>) {
    auto const made = plimsoll::craft(make_policy<P>(), in.loads(), in.options());
    CHECK(made.allocation.replicas == expected.plan.allocation.replicas);
    CHECK(made.allocation.curve == expected.plan.allocation.curve);
    CHECK(made.estimate.gain == expected.plan.estimate.gain);
    CHECK(made.ranks == c.options.on.ranks);
    CHECK(made.physical_to_logical.extent(1) == expected.slots);
    CHECK(made.physical_to_logical.to_host() == expected.map);
    CHECK(made.rank_offsets.to_host() == expected.offsets);
    CHECK(made.replica_count.to_host() == expected.counts);
    CHECK(same(made.certificates, expected.plan.certificates));
  }
}

PLIMSOLL_TEST_CASE("craft: int64 outputs and a returned placement equal int32 outputs", P,
                   PLIMSOLL_POLICIES) {
  auto const cases = craft_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    craft_case c = cases[i];
    c.options.budget = i % 2 == 0 ? 11 : plimsoll::automatic_budget;
    check_other_outputs<P>(c, crafted<P>(c));
  }
}

PLIMSOLL_TEST_CASE("craft: any budget", P, PLIMSOLL_POLICIES) {
  craft_case c = craft_cases()[0];
  double last = 0;
  ints used;
  for (index_t const budget : {0, 1, 2, 5, 6, 7, 12, 18, 29, 30, 31, 1000000}) {
    CAPTURE(budget);
    c.options.budget = budget;
    crafted<P> const got(c);
    double const gain = sum_of(got.plan.allocation.gain);
    CHECK(gain >= last);
    last = gain;
    used.push_back(static_cast<std::int32_t>(got.plan.allocation.used));
    auto const& curve = got.plan.allocation.curve;
    auto const at = static_cast<std::size_t>(budget / c.options.on.ranks);
    if (budget % c.options.on.ranks == 0 && at < curve.size()) {
      CHECK(gain == doctest::Approx(curve[at]).epsilon(1e-12));
    }
  }
  CHECK(used[0] == 0);
  CHECK(used[2] > 0);
  CHECK(used.back() <= 30);
  c.options.budget = plimsoll::automatic_budget;
  crafted<P> const automatic(c);
  CHECK(automatic.plan.allocation.budget % c.options.on.ranks == 0);
  CHECK(automatic.plan.allocation.budget > 0);
  CHECK(automatic.plan.allocation.budget < 30);
  CHECK(sum_of(automatic.plan.allocation.gain) > last / 2);
  // An exact budget is used up even without gain.
  c.options.fill = knapsack_fill::exactly;
  for (index_t const budget : {0, 1, 17, 28, 30}) {
    c.options.budget = budget;
    CHECK(crafted<P>(c).plan.allocation.used == budget);
  }
  // If every layer gets the same count, the placement is that of the estimate, and so is the gain.
  crafted<P> const most(c);
  CHECK(most.plan.allocation.replicas == ints(5, 6));
  replay_case const recorded{.steps = c.steps,
                             .layers = c.layers,
                             .experts = c.experts,
                             .slots = most.slots,
                             .ranks = c.options.on.ranks,
                             .plans = 1,
                             .loads = c.loads,
                             .map = most.map,
                             .counts = most.counts,
                             .offsets = most.offsets};
  reals const balancedness = replay_in<P>(recorded).replay(craft_in<P>(c).loads());
  for (std::size_t layer = 0; layer < 5; ++layer) {
    CHECK(most.plan.allocation.gain[layer] == balancedness[layer] - most.plan.estimate.base[layer]);
  }
  report_hash("craft.budgets", used, automatic.map);
}

PLIMSOLL_TEST_CASE("craft: layers without load get nothing", P, PLIMSOLL_POLICIES) {
  craft_case c = craft_cases()[0];
  for (index_t step = 0; step < c.steps; ++step) {
    for (index_t const layer : {0, 3}) {
      std::fill_n(c.loads.begin() + (step * c.layers + layer) * c.experts, c.experts, 0);
    }
  }
  c.options.budget = 100;
  crafted<P> const got(c);
  for (std::size_t const layer : {std::size_t{0}, std::size_t{3}}) {
    CHECK(got.plan.estimate.base[layer] == 1);
    CHECK(reals(got.plan.estimate.gain.begin() + static_cast<std::ptrdiff_t>(layer * 4),
                got.plan.estimate.gain.begin() + static_cast<std::ptrdiff_t>(layer * 4 + 4)) ==
          reals(4, 0.0));
    CHECK(got.plan.allocation.replicas[layer] == 0);
  }
  CHECK(got.plan.allocation.replicas[1] > 0);
}

PLIMSOLL_TEST_CASE("craft: groups stay on a node, dead ranks stay empty", P, PLIMSOLL_POLICIES) {
  craft_case c = craft_cases()[0];
  c.options.on.ranks = 8;
  c.options.on.nodes = 2;
  c.options.groups = 4;
  c.options.budget = 29;
  c.active = {0, 1, 0, 1, 1, 0, 0, 1};
  crafted<P> const got(c);
  CHECK(got.plan.allocation.used > 0);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CAPTURE(layer);
    auto const* const begin = got.offsets.data() + layer * 9;
    auto const* const map = got.map.data() + layer * got.slots;
    ints node_of(16, -1);
    for (index_t r = 0; r < 8; ++r) {
      for (std::int32_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
        if (map[slot] >= 0) {
          std::int32_t& node = node_of[static_cast<std::size_t>(map[slot] / 4 * 4)];
          node = node == -1 ? static_cast<std::int32_t>(r / 4) : node;
          CHECK(node == r / 4);
        }
      }
    }
  }
}

PLIMSOLL_TEST_CASE("craft: no layers", P, PLIMSOLL_POLICIES) {
  craft_case c{.steps = 4, .layers = 0, .experts = 8, .options = {.on = {.ranks = 2}}};
  crafted<P> const got(c);
  CHECK(got.plan.estimate.base.empty());
  CHECK(got.plan.allocation.curve == reals{0});
  CHECK(got.plan.allocation.budget == 0);
}

// ----- bad input ---------------------------------------------------------------------------------

template <class Run>
std::string craft_refusal(Run run) {
  try {
    run();
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

PLIMSOLL_TEST_CASE("craft: a bad load is named", P, PLIMSOLL_POLICIES) {
  craft_case const plain{.steps = 10,
                         .layers = 2,
                         .experts = 3,
                         .loads = longs(60, 5),
                         .options = {.on = {.ranks = 2}}};
  constexpr std::int64_t limit = std::int64_t{1} << 47;
  struct change {
    std::size_t at;
    std::int64_t load;
  };
  auto const refusal = [&](std::vector<change> const& changes) {
    craft_case c = plain;
    for (change const& what : changes) {
      c.loads[what.at] = what.load;
    }
    std::string const message =
        craft_refusal([&] { static_cast<void>(craft_in<P>(c).estimate()); });
    if (message != "no error") {
      CHECK(message.substr(0, 14) == "estimate_gains");
      craft_in<P> const in(c);
      array_in<std::int32_t, P> map(2 * 5);
      array_in<std::int32_t, P> offsets(2 * 3);
      array_in<std::int32_t, P> counts(2 * 3);
      CHECK(craft_refusal([&] {
              plimsoll::craft(make_policy<P>(), in.loads(), in.options(), map.view2(2, 5),
                              offsets.view2(2, 3), counts.view2(2, 3));
            }) == "craft" + message.substr(14));
    }
    return message;
  };
  CHECK(refusal({}) == "no error");
  CHECK(refusal({{59, -3}}) ==
        "estimate_gains: loads: expected values from 0 to below 2^47, got -3 in layer 1, expert 2, "
        "step 9");
  // Neither a negative sum nor one that other loads hide is accepted.
  CHECK(refusal({{0, -1}, {6, 1000}}) ==
        "estimate_gains: loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 0, "
        "step 0");
  CHECK(refusal({{10, limit}}) ==
        "estimate_gains: loads: expected values from 0 to below 2^47, got 140737488355328 in layer "
        "1, expert 1, step 1");
  CHECK(refusal({{15, limit / 2}, {16, limit / 2}, {17, 0}}) ==
        "estimate_gains: loads: expected a total below 2^47 per layer, got 140737488355328 in "
        "layer 1, step 2");
  // Every step is valid, but their sum is not.
  CHECK(refusal({{3, limit / 2}, {9, limit / 2 - 28 * 5}}) ==
        "estimate_gains: loads: expected a total below 2^47 per layer, got 140737488355328 in "
        "layer 1");
  CHECK(refusal({{3, limit / 2}, {9, limit / 2 - 28 * 5 - 1}}) == "no error");
}

PLIMSOLL_TEST_CASE("craft: bad options are named", P, PLIMSOLL_POLICIES) {
  auto const refusal = [](auto change) {
    craft_case c{.steps = 2,
                 .layers = 2,
                 .experts = 8,
                 .loads = longs(32, 5),
                 .options = {.on = {.ranks = 4}}};
    change(c);
    return craft_refusal([&] { static_cast<void>(craft_in<P>(c).estimate()); });
  };
  CHECK(refusal([](craft_case&) {}) == "no error");
  CHECK(refusal([](craft_case& c) { c.options.on.ranks = 0; }) ==
        "estimate_gains: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal([](craft_case& c) { c.options.on.ranks = 32768; }) ==
        "estimate_gains: options.on.ranks: expected 1 to 32767 ranks, got 32768");
  CHECK(refusal([](craft_case& c) { c.steps = 0; }) ==
        "estimate_gains: loads: expected 1 to 2147483647 steps, got 0");
  CHECK(refusal([](craft_case& c) { c.experts = 0; }) ==
        "estimate_gains: loads: expected 1 to 65535 experts, got 0");
  CHECK(refusal([](craft_case& c) {
          c.options.replica_counts = {0, 1};
        }) ==
        "estimate_gains: options.replica_counts: expected 1 to 32766 replicas, rising from 1, got "
        "0");
  CHECK(refusal([](craft_case& c) {
          c.options.replica_counts = {1, 3, 3};
        }) ==
        "estimate_gains: options.replica_counts: expected 4 to 32766 replicas, rising from 1, got "
        "3");
  CHECK(refusal([](craft_case& c) {
          c.options.replica_counts = {4, 2};
        }) ==
        "estimate_gains: options.replica_counts: expected 5 to 32766 replicas, rising from 1, got "
        "2");
  CHECK(refusal([](craft_case& c) { c.options.replica_counts = {32767}; }) ==
        "estimate_gains: options.replica_counts: expected 1 to 32766 replicas, rising from 1, got "
        "32767");
  CHECK(refusal([](craft_case& c) {
          c.active = {1, 1, 1};
        }) == "estimate_gains: options.on.active: expected 4 ranks, got 3");
  CHECK(refusal([](craft_case& c) {
          c.active = {0, 0, 0, 0};
        }) == "estimate_gains: options.on.active: expected 1 to 4 live ranks, got 0");
  CHECK(refusal([](craft_case& c) { c.options.on.nodes = 5; }) ==
        "estimate_gains: options.on.nodes: expected 1 to 4 nodes (at most one per rank), got 5");
  CHECK(refusal([](craft_case& c) { c.options.load_exponent = 2; }) ==
        "estimate_gains: options.load_exponent: expected above 0 and at most 1, got 2");
  CHECK(refusal([](craft_case& c) { c.options.groups = 3; }) ==
        "estimate_gains: groups: expected a number that divides 8 experts, got 3");
  // Groups that fit on no node without replicas.
  CHECK(refusal([](craft_case& c) {
          c.options.on.nodes = 2;
          c.options.groups = 2;
          c.active = {1, 1, 1, 0};
        }) ==
        "estimate_gains: groups: expected no more than the nodes' slots hold, 1, got more in layer "
        "0");
}

PLIMSOLL_TEST_CASE("craft: bad estimates and budgets are named", P, PLIMSOLL_POLICIES) {
  auto const refusal = [](gain_estimate const& estimate, craft_options const& options) {
    return craft_refusal([&] { allocated<P>(estimate, options); });
  };
  gain_estimate const good = estimate_of({1, 2}, {.1, .2, .3, .4});
  CHECK(refusal(good, {.on = {.ranks = 2}}) == "no error");
  CHECK(refusal(good, {}) ==
        "allocate_replicas: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal(good, {.on = {.ranks = 2}, .budget = -2}) ==
        "allocate_replicas: options.budget: expected -1 to 9223372036854775807 replicas (-1: "
        "automatic), got -2");
  gain_estimate bad = good;
  bad.gain[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal(bad, {.on = {.ranks = 2}}) ==
        "allocate_replicas: estimate.gain: expected numbers below 2^900, got NaN in layer 1 for 2 "
        "replicas");
  bad = good;
  bad.gain.pop_back();
  CHECK(refusal(bad, {.on = {.ranks = 2}}) ==
        "allocate_replicas: estimate.gain: expected 4 elements (layers * counts), got 3");
  bad = good;
  bad.base.push_back(0);
  CHECK(refusal(bad, {.on = {.ranks = 2}}) ==
        "allocate_replicas: estimate.gain: expected 6 elements (layers * counts), got 4");
  bad = good;
  bad.replica_counts = {2, 2};
  CHECK(refusal(bad, {.on = {.ranks = 2}}) ==
        "allocate_replicas: estimate.replica_counts: expected 3 to 32766 replicas, rising from 1, "
        "got 2");
  bad = {};
  CHECK(refusal(bad, {.on = {.ranks = 2}}) ==
        "allocate_replicas: estimate.replica_counts: expected 1 to 32766 counts, got 0");
}

}  // namespace plimsoll_test

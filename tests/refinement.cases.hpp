// SPDX-License-Identifier: Apache-2.0
// Tests of refinement under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/move_path.hpp"
#include "support/owned.hpp"
#include "support/placement_inputs.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/refinement.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using namespace refinement_support;

PLIMSOLL_TEST_CASE("refinement: copies and ranks chosen together", P, PLIMSOLL_POLICIES) {
  // Greedy counts are 5 5 1 1 1 1 1 1: seven replicas of 120 and five of 112 on 8 ranks. Four ranks
  // hold two of them, so at least one rank holds a 112 and a 120.
  scene s{1, 8, 16, {.ranks = 8}, {600, 560, 120, 120, 20, 10, 10, 10}};
  REQUIRE(plan_greedily(s));
  CHECK(layer_facts(s, s.map, 0).peak == 232);

  refined<P> const packed(s.loads, s.map, 1, s.where, {.max_trials = 0});
  CHECK(packed.counts == ints{5, 5, 1, 1, 1, 1, 1, 1});
  CHECK(packed.certificates[0].value == doctest::Approx(232));
  CHECK(packed.certificates[0].lower_bound == doctest::Approx(224));
  CHECK(packed.certificates[0].status == certificate_status::feasible);

  refined<P> const joint(s.loads, s.map, 1, s.where);
  CHECK(joint.certificates[0].value <= 590.0 / 3 + 1e-9);
  CHECK(joint.certificates[0].lower_bound == doctest::Approx(1450.0 / 8));
  check_refined(s, s.map, joint, {});
  report_hash("refinement.joint", packed.map, joint.map, joint.counts);
}

PLIMSOLL_TEST_CASE("refinement: random plans stay valid and never get worse", P,
                   PLIMSOLL_POLICIES) {
  constexpr double tolerances[] = {0, 1e-3, 0.1};
  constexpr std::int64_t trials[] = {0, 0, 1, 7, 40};
  constexpr std::int64_t perturbations[] = {0, 3, 70, 20};
  int plans = 0;
  int better = 0;
  ints results;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    CAPTURE(seed);
    scene s;
    if (!draw(s, seed)) {
      continue;
    }
    refinement_options const options{tolerances[seed % 3], trials[seed % 5],
                                     perturbations[seed % 4]};
    refined<P> const once(s.loads, s.map, s.layers, s.where, options);
    check_refined(s, s.map, once, options);
    refined<P> const twice(s.loads, once.map, s.layers, s.where, options);
    check_refined(s, once.map, twice, options);
    bool const preferred = s.where.replica_anti_affinity != anti_affinity::none &&
                           s.where.anti_affinity_strength == strictness::preferred;
    scene greedy = s;
    auto const placed = place_greedily(greedy, twice.counts);
    for (std::size_t layer = 0; layer < once.certificates.size(); ++layer) {
      CHECK(twice.certificates[layer].value <= once.certificates[layer].value * (1 + 1e-12));
      // With preferred anti-affinity greedy placement may have more violations and a lower peak.
      CHECK((preferred || twice.certificates[layer].value <= placed[layer].value * (1 + 1e-12)));
    }
    ++plans;
    better += once.map != s.map;
    results.insert(results.end(), once.map.begin(), once.map.end());
    results.insert(results.end(), once.counts.begin(), once.counts.end());
  }
  CHECK(plans > 170);
  CHECK(better > 120);
  report_hash("refinement.random", results);
}

PLIMSOLL_TEST_CASE("refinement: small shapes against every plan", P, PLIMSOLL_POLICIES) {
  double worst_packed = 1;
  double worst_joint = 1;
  int proven = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    generator random(1000 + seed);
    scene s;
    s.experts = random.between(1, 4);
    s.where.ranks = random.between(2, 3);
    s.slots = random.between(std::max(s.experts, s.where.ranks), 6);
    s.loads = random_integers(seed, s.experts, 0, 30);
    s.loads[0] += 1;
    if (random.between(0, 2) == 0) {
      s.where.speeds = random.between(0, 1) == 0 ? std::vector<double>{1, 2, 1.5}
                                                 : std::vector<double>{1, 0.3, 0.9};
      s.where.speeds.resize(static_cast<std::size_t>(s.where.ranks));
    }
    if (random.between(0, 3) == 0) {
      s.where.replica_anti_affinity = anti_affinity::rank;
      s.where.anti_affinity_strength = strictness::required;
    }
    if (!plan_greedily(s)) {
      continue;
    }
    if (random.between(0, 1) == 0) {
      spoil(s, random);
    }
    // Power of two by which the library multiplies the loads.
    double const unit =
        static_cast<double>(oracle::fixed(s.loads)[0]) / static_cast<double>(s.loads[0]);
    auto const where = s.site(0);
    auto const lowest = [&](oracle::vector const& counts) {
      return oracle::lowest_peak(s.loads, counts, where) / unit;
    };
    oracle::vector const given = layer_facts(s, s.map, 0).counts;
    double best = std::numeric_limits<double>::infinity();
    double best_as_full = best;  // of plans with no more empty slots than the given one
    oracle::vector counts(s.loads.size(), 1);
    for (std::size_t e = 0; e < counts.size();) {
      auto const used = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      if (used <= s.slots) {
        double const peak = lowest(counts);
        best = std::min(best, peak);
        if (used >= std::accumulate(given.begin(), given.end(), std::int64_t{0})) {
          best_as_full = std::min(best_as_full, peak);
        }
      }
      for (e = 0; e < counts.size() && counts[e] == s.slots; ++e) {
        counts[e] = 1;
      }
      if (e < counts.size()) {
        ++counts[e];
      }
    }
    auto const value = [&](refinement_options const& options, double optimum) {
      refined<P> const got(s.loads, s.map, 1, s.where, options);
      check_refined(s, s.map, got, options);
      certificate const& c = got.certificates[0];
      CHECK(c.lower_bound <= optimum * (1 + 1e-12));
      CHECK(c.value >= optimum * (1 - 1e-12));
      CHECK((c.status != certificate_status::optimal || c.value <= optimum * (1 + 1e-12)));
      proven += c.status == certificate_status::optimal;
      return c.value;
    };
    double const packed = lowest(given);
    worst_packed = std::max(
        worst_packed,
        value({.tolerance = 0, .max_trials = 0, .max_perturbations = 128}, packed) / packed);
    value({.tolerance = 0, .max_trials = 1, .max_perturbations = 8}, best);
    worst_joint = std::max(worst_joint,
                           value({.tolerance = 0, .max_perturbations = 256}, best) / best_as_full);
  }
  MESSAGE("peak / optimum, worst: " << worst_packed << " with given counts, " << worst_joint
                                    << " with any; proven optimal: " << proven);
  CHECK(worst_packed < 1.005);
  CHECK(worst_joint < 1.005);
  CHECK(proven > 300);
}

PLIMSOLL_TEST_CASE("refinement: stopping criteria", P, PLIMSOLL_POLICIES) {
  scene s{1, 8, 16, {.ranks = 8}, {600, 560, 120, 120, 20, 10, 10, 10}};
  REQUIRE(plan_greedily(s));
  SUBCASE("within tolerance") {
    refined<P> const got(s.loads, s.map, 1, s.where, {.tolerance = 1});
    CHECK(got.map == s.map);
    CHECK(got.certificates[0].work == 0);
    CHECK(got.certificates[0].status == certificate_status::within_tolerance);
  }
  SUBCASE("no moved copy helps any more") {
    refined<P> const got(s.loads, s.map, 1, s.where, {.max_trials = 1000000});
    CHECK(got.certificates[0].status == certificate_status::feasible);
    refined<P> const again(s.loads, got.map, 1, s.where, {.max_trials = 1000000});
    CHECK(again.map == got.map);
  }
  SUBCASE("all trials are used") {
    // With one slot per rank nothing can be swapped; two copies of expert 3 should go to others.
    ints const loads{10, 9, 8, 1};
    ints const start{0, 1, 2, 3, 3, 3};
    refined<P> const none(loads, start, 1, {.ranks = 6}, {.max_trials = 0});
    CHECK(none.map == start);
    CHECK(none.certificates[0].value == 10);
    CHECK(none.certificates[0].work == 0);
    CHECK(none.certificates[0].status == certificate_status::optimal);
    refined<P> const one(loads, start, 1, {.ranks = 6}, {.max_trials = 1, .max_perturbations = 0});
    CHECK(one.counts == ints{2, 1, 1, 2});
    CHECK(one.certificates[0].value == 9);
    CHECK(one.certificates[0].work == 1);
    CHECK(one.certificates[0].status == certificate_status::iteration_limit);
    refined<P> const two(loads, start, 1, {.ranks = 6}, {.max_trials = 2, .max_perturbations = 0});
    CHECK(two.counts == ints{2, 2, 1, 1});
    CHECK(two.certificates[0].value == 8);
    CHECK(two.certificates[0].lower_bound == 8);
    CHECK(two.certificates[0].work == 2);
    CHECK(two.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("all trials of a node are used") {
    // Node 0 is the case above; node 1 has one live rank.
    ints const loads{10, 9, 8, 1, 1};
    ints const start{0, 1, 2, 3, 3, 3, -1, -1, -1, 4, -1, -1};
    host_options const where{.ranks = 12,
                             .nodes = 2,
                             .active = {1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0},
                             .node_experts = {0, 1, 2, 3, 4},
                             .node_offsets = {0, 4, 5}};
    refinement_options const single{.max_trials = 1, .max_perturbations = 0};
    certificate const one = refined<P>(loads, start, 1, where, single).certificates[0];
    CHECK(one.value == 9);
    CHECK(one.lower_bound == 8);
    CHECK(one.work == 1);
    CHECK(one.status == certificate_status::iteration_limit);
  }
  SUBCASE("at the bound of the heaviest replica on the fastest rank") {
    // The mean is 20 / 4.5, but one of the two experts has a single copy.
    refined<P> const got(ints{10, 10}, {-1, 0, 1}, 1, {.ranks = 3, .speeds = {1, 2, 1.5}});
    CHECK(got.certificates[0].value == 5);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("at the mean") {
    refined<P> const got(ints{4, 3, 3, 2}, {0, 1, 2, 3}, 1, {.ranks = 2});
    CHECK(got.certificates[0].value == 6);
    CHECK(got.certificates[0].work == 1);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
}

PLIMSOLL_TEST_CASE("refinement: swaps", P, PLIMSOLL_POLICIES) {
  refinement_options const swaps_only{.tolerance = 0, .max_trials = 0};
  SUBCASE("the pair that minimizes the load of the worse rank") {
    // 9 + 7 against 1 + 3: swapping 7 and 1 gives 10 and 10.
    CHECK(refined<P>(ints{9, 7, 1, 3}, {0, 1, 2, 3}, 1, {.ranks = 2}, swaps_only).map ==
          ints{0, 2, 1, 3});
  }
  SUBCASE("a move into a free slot") {
    CHECK(refined<P>(ints{5, 6}, {0, 1, -1, -1}, 1, {.ranks = 2}, swaps_only).map ==
          ints{-1, 1, 0, -1});
  }
  SUBCASE("a slower rank takes less") {
    // Costs are 12 and 0; the lighter expert goes to the slower rank.
    refined<P> const got(ints{8, 4}, {0, 1, -1, -1}, 1, {.ranks = 2, .speeds = {1, 0.5}},
                         swaps_only);
    CHECK(got.map == ints{0, -1, 1, -1});
    CHECK(got.certificates[0].value == 8);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("no swap to a rank that already holds the expert") {
    // Each rank holds a replica of 10, and one of 2, 1 or 1.
    ints const loads{30, 2, 1, 1};
    ints const start{0, 1, 0, 2, 0, 3};
    host_options where{.ranks = 3, .replica_anti_affinity = anti_affinity::rank};
    CHECK(refined<P>(loads, start, 1, where, swaps_only).map == start);
  }
  SUBCASE("node lists keep experts where they are") {
    host_options const where{
        .ranks = 4, .nodes = 2, .node_experts = {0, 1, 2, 3}, .node_offsets = {0, 2, 4}};
    refined<P> const got(ints{9, 9, 1, 1}, {0, 1, -1, -1, 2, 3, -1, -1}, 1, where, swaps_only);
    CHECK(got.certificates[0].value == 9);
    CHECK(got.map == ints{-1, 1, 0, -1, -1, 3, 2, -1});
  }
}

PLIMSOLL_TEST_CASE("refinement: a price for moves, by hand", P, PLIMSOLL_POLICIES) {
  // Rank 0 has load 10 and rank 1 has 2; the mean is 6. A copy of expert 0 on rank 1 makes it 5 and
  // 7: half the mean less. Then a copy of expert 1 on rank 0 makes it 6 and 6: a sixth less.
  auto const check = [](refinement_options const& options, ints const& map, std::int64_t work,
                        certificate_status status) {
    refined<P> const got(ints{10, 2}, {0, -1, 1, -1}, 1, {.ranks = 2}, options);
    CHECK(got.map == map);
    CHECK(got.certificates[0].lower_bound == 6);
    CHECK(got.certificates[0].value == (work == 0 ? 10 : work == 1 ? 7 : 6));
    CHECK(got.certificates[0].work == work);
    CHECK(got.certificates[0].status == status);
  };
  ints const given{0, -1, 1, -1};
  ints const one{0, -1, 1, 0};
  ints const two{0, 1, 1, 0};
  constexpr auto feasible = certificate_status::feasible;
  constexpr auto within = certificate_status::within_tolerance;
  constexpr auto optimal = certificate_status::optimal;
  check({.tolerance = 0, .move_price = 0.51}, given, 0, feasible);
  check({.tolerance = 0, .move_price = 0.5}, one, 1, feasible);
  check({.tolerance = 0, .move_price = 0.17}, one, 1, feasible);
  check({.tolerance = 0, .move_price = 0.16}, two, 2, optimal);
  check({.tolerance = 0.16, .move_price = 0.01}, two, 2, optimal);
  check({.tolerance = 0.17, .move_price = 0.01}, one, 1, within);
  check({.tolerance = 0.66, .move_price = 0.01}, one, 1, within);
  check({.tolerance = 0.67, .move_price = 0.01}, given, 0, within);
  // Without other counts nothing helps: expert 0 alone is too heavy.
  check({.tolerance = 0, .max_trials = 0, .move_price = 0.01}, given, 0, feasible);
  // Two experts change places, and both must pay: 6 less for two moves, and the mean is 10.
  auto const swapped = [](double price) {
    return refined<P>(ints{9, 7, 1, 3}, {0, 1, 2, 3}, 1, {.ranks = 2},
                      {.max_trials = 0, .move_price = price})
        .map;
  };
  CHECK(swapped(0.29) == ints{0, 2, 1, 3});
  CHECK(swapped(0.31) == ints{0, 1, 2, 3});
}

/// Moves of all layers from the plan of a scene to another one.
inline std::int64_t moves_of(scene const& s, ints const& map) {
  std::int64_t sum = 0;
  for (index_t layer = 0; layer < s.layers; ++layer) {
    sum += move_path_support::layer_costs(s, layer).moves_to(map.data() + layer * s.slots);
  }
  return sum;
}

PLIMSOLL_TEST_CASE("refinement: with a price, a looser tolerance never moves more", P,
                   PLIMSOLL_POLICIES) {
  constexpr double prices[] = {1e-9, 1e-3, 0.02, 0.2};
  constexpr std::int64_t trials[] = {256, 0, 1};
  ints results;
  int fewer = 0;
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    scene s;
    if (!draw(s, seed)) {
      continue;
    }
    if (seed % 3 == 0) {
      s.loads = skewed_loads(s.layers, s.experts, seed + 999);
    }
    refinement_options options{.max_trials = trials[seed % 3], .move_price = prices[seed % 4]};
    refined<P> const free(s.loads, s.map, s.layers, s.where, {.max_perturbations = 0});
    std::int64_t before = 0;
    std::vector<std::int64_t> steps(static_cast<std::size_t>(s.layers), 0);
    for (double const tolerance : {1.0, 0.1, 0.01, 0.001, 0.0}) {
      CAPTURE(tolerance);
      options.tolerance = tolerance;
      refined<P> const got(s.loads, s.map, s.layers, s.where, options);
      check_refined(s, s.map, got, options);
      std::int64_t const moves = moves_of(s, got.map);
      CHECK(moves >= before);
      fewer += tolerance < 1 && moves > before ? 1 : 0;
      before = moves;
      for (std::size_t layer = 0; layer < steps.size(); ++layer) {
        certificate const& c = got.certificates[layer];
        CHECK(c.work >= steps[layer]);
        steps[layer] = c.work;
        // The bound is that of any counts; without a price it is larger where there is no choice.
        double const bound = free.certificates[layer].lower_bound;
        auto const usable = move_path_support::layer_costs(s, static_cast<index_t>(layer)).usable();
        bool const choose = s.where.node_experts.empty() && std::ssize(usable) > s.experts;
        CHECK(c.lower_bound <= bound * (1 + 1e-10));
        CHECK((!choose || c.lower_bound >= bound * (1 - 1e-10)));
      }
      results.insert(results.end(), got.map.begin(), got.map.end());
      results.insert(results.end(), got.counts.begin(), got.counts.end());
    }
    moved += before > 0 ? 1 : 0;
  }
  CHECK(fewer > 40);
  CHECK(moved > 40);
  report_hash("refinement.priced", results);
}

PLIMSOLL_TEST_CASE("refinement: the same bits in every type", P, PLIMSOLL_POLICIES) {
  scene s{3, 24, 40, {.ranks = 10}, skewed_loads(3, 24, 5)};
  REQUIRE(plan_greedily(s));
  refined<P> const expected(s.loads, s.map, s.layers, s.where);
  check_refined(s, s.map, expected, {});
  auto const check = [&]<class T>(T) {
    refined<P> const got(as<T>(s.loads), s.map, s.layers, s.where);
    CHECK(got.map == expected.map);
    CHECK(got.counts == expected.counts);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      CHECK(got.certificates[layer].value == expected.certificates[layer].value);
      CHECK(got.certificates[layer].lower_bound == expected.certificates[layer].lower_bound);
      CHECK(got.certificates[layer].work == expected.certificates[layer].work);
    }
  };
  for_each_load_type(check);
  report_hash("refinement.types", expected.map, expected.counts);
  generator random(2);
  spoil(s, random);
  refinement_options const options{.tolerance = 0, .move_price = 0.01};
  refined<P> const priced(s.loads, s.map, s.layers, s.where, options);
  CHECK(moves_of(s, priced.map) > 10);
  for_each_load_type([&]<class T>(T) {
    refined<P> const got(as<T>(s.loads), s.map, s.layers, s.where, options);
    CHECK(got.map == priced.map);
    CHECK(got.counts == priced.counts);
    CHECK(same(got.certificates, priced.certificates));
  });
}

PLIMSOLL_TEST_CASE("refinement: edges", P, PLIMSOLL_POLICIES) {
  SUBCASE("no layers") { CHECK(refined<P>(ints{}, {}, 0, {.ranks = 1}).certificates.empty()); }
  SUBCASE("one expert") {
    refined<P> const got(ints{7}, {0}, 1, {});
    CHECK(got.map == ints{0});
    CHECK(got.counts == ints{1});
    CHECK(got.certificates[0].status == certificate_status::optimal);
    refined<P> const more(ints{7}, {-1, 0, -1}, 1, {.ranks = 3});
    CHECK(more.counts == ints{3});
    CHECK(more.certificates[0].value == doctest::Approx(7.0 / 3));
  }
  SUBCASE("no load") {
    refined<P> const got(ints{0, 0, 0}, {0, 1, 2, -1}, 1, {.ranks = 2});
    CHECK(got.map == ints{0, 1, 2, -1});
    CHECK(got.certificates[0].value == 0);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("strided views") {
    array_in<std::int32_t, P> const in(ints{9, -1, 7, -1, 1, -1, 3, -1});
    plimsoll::matrix_ref<std::int32_t const> loads = in.view2(1, 4);
    loads.strides[1] = 2;
    array_in<std::int32_t, P> map_in(ints{0, 77, 77, 1, 77, 77, 2, 77, 77, 3});
    plimsoll::matrix_ref<std::int32_t> map = map_in.view2(1, 4);
    map.strides[1] = 3;
    array_in<std::int32_t, P> counts_in(ints(7, 77));
    plimsoll::matrix_ref<std::int32_t> counts = counts_in.view2(1, 4);
    counts.strides[1] = 2;
    plimsoll::refine(make_policy<P>(), loads, {.on = {.ranks = 2}}, {}, map, counts);
    CHECK(map_in.values() == ints{0, 77, 77, 2, 77, 77, 1, 77, 77, 3});
    CHECK(counts_in.values() == ints{1, 77, 1, 77, 1, 77, 1});
  }
}

/// Message of the error that `refine` throws for this input, or "no error".
template <class P, class T>
std::string refine_refusal(std::vector<T> const& loads, ints const& start, index_t layers,
                           host_options const& where, refinement_options const& options = {}) {
  try {
    refined<P>(loads, start, layers, where, options);
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

PLIMSOLL_TEST_CASE("refinement: bad values are named", P, PLIMSOLL_POLICIES) {
  auto const map = [](ints const& start, host_options const& where = {.ranks = 2}) {
    return refine_refusal<P>(ints{1, 2}, start, 1, where);
  };
  CHECK(map({0, 1, -1, -1}) == "no error");
  std::string const ids =
      "refine: physical_to_logical: expected -1 or an expert of the layer, got ";
  CHECK(map({0, 2, 1, -1}) == ids + "2 in layer 0, slot 1");
  CHECK(map({0, 1, 1, -2}) == ids + "-2 in layer 0, slot 3");
  CHECK(refine_refusal<P>(ints{1, 2, 1, 2}, {0, 1, 0, 0}, 2, {.ranks = 2}) ==
        "refine: replica_count: expected 1 to 32767 copies of every expert on live ranks, got 0 in "
        "layer 1, "
        "expert 1");
  CHECK(refine_refusal<P>(ints{1}, ints(32768, 0), 1, {.ranks = 2}) ==
        "refine: replica_count: expected 1 to 32767 copies of every expert on live ranks, got "
        "32768 in layer 0, "
        "expert 0");
  std::string const stray =
      "refine: physical_to_logical: expected -1 in slots of dead ranks and of no rank, got ";
  CHECK(map({0, 1, -1, 1}, {.ranks = 2, .active = {1, 0}}) == stray + "1 in layer 0, slot 3");
  CHECK(map({0, 1, 0, -1}, {.ranks = 2, .rank_offsets = {0, 1, 2}}) ==
        stray + "0 in layer 0, slot 2");
  CHECK(map({0, 1, -1, -1}, {.ranks = 2, .active = {1, 0}}) == "no error");

  host_options const lists{
      .ranks = 2, .nodes = 2, .node_experts = {0, 1}, .node_offsets = {0, 1, 2}};
  CHECK(map({0, -1, 1, -1}, lists) == "no error");
  CHECK(map({0, 1, 1, -1}, lists) ==
        "refine: physical_to_logical: expected replicas on the node that lists their expert, node "
        "1, got another node in layer 0, expert 1");
  CHECK(map({0, -1, 1, 0}, lists) ==
        "refine: physical_to_logical: expected replicas on the node that lists their expert, node "
        "0, got another node in layer 0, expert 0");

  host_options apart{.ranks = 4,
                     .nodes = 2,
                     .replica_anti_affinity = anti_affinity::rank,
                     .anti_affinity_strength = strictness::required};
  CHECK(map({0, 1, 0, 1, -1, -1, -1, -1}, apart) == "no error");
  CHECK(map({0, 1, 0, -1, 1, 1, -1, -1}, apart) ==
        "refine: physical_to_logical: expected at most 1 replica of an expert on a rank, got 2 in "
        "layer 0, rank 2, expert 1");
  apart.replica_anti_affinity = anti_affinity::node;
  CHECK(map({0, 1, -1, -1, 0, 1, -1, -1}, apart) == "no error");
  CHECK(map({0, -1, -1, -1, 0, 1, 1, -1}, apart) ==
        "refine: physical_to_logical: expected at most 1 replica of an expert on a node, got 2 in "
        "layer 0, node 1, expert 1");
  apart.anti_affinity_strength = strictness::preferred;
  CHECK(map({0, -1, -1, -1, 0, 1, 1, -1}, apart) == "no error");

  auto const loads = []<class T>(std::vector<T> const& values) {
    return refine_refusal<P>(values, {0, 1, -1, -1}, 1, {.ranks = 2});
  };
  CHECK(loads(ints{1, -2}) ==
        "refine: loads: expected values from 0 to below 2^47, got -2 in layer 0, expert 1");
  CHECK(loads(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 0}) ==
        "refine: loads: expected values from 0 to below 2^47, got NaN in layer 0, expert 0");
  CHECK(loads(std::vector<float>{0x1p46f, 0x1p46f}) ==
        "refine: loads: expected a total below 2^47 per layer, got 140737488355328 in layer 0");

  auto const where = [&](host_options const& options) { return map({0, -1, 1, -1}, options); };
  std::string const speeds = "refine: on.speeds: expected values from 2^-64 to 2^64, got ";
  CHECK(where({.ranks = 2, .speeds = {1, 0}}) == speeds + "0 in layer 0, rank 1");
  CHECK(where({.ranks = 2, .speeds = {-1, 1}}) == speeds + "-1 in layer 0, rank 0");
  CHECK(where({.ranks = 2, .speeds = {1, std::numeric_limits<double>::quiet_NaN()}}) ==
        speeds + "NaN in layer 0, rank 1");
  std::string const rises =
      "refine: rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
      "got ";
  CHECK(where({.ranks = 2, .rank_offsets = {0, 2, 5}}) == rises + "5 in layer 0, rank 1");
  CHECK(where({.ranks = 2, .nodes = 2, .node_experts = {0, 1}, .node_offsets = {0, 2, 1}}) ==
        "refine: node_offsets: expected offsets that rise from 0 to the number of experts, got 1 "
        "in layer 0, node 1");
  CHECK(where({.ranks = 2, .nodes = 2, .node_experts = {0, 0}, .node_offsets = {0, 1, 2}}) ==
        "refine: node_experts: expected every expert once, got another list in layer 0, expert 1");
}

PLIMSOLL_TEST_CASE("refinement: bad options are named", P, PLIMSOLL_POLICIES) {
  auto const message = [](refinement_options const& options) {
    return refine_refusal<P>(ints{1, 2}, {0, 1, -1, -1}, 1, {.ranks = 2}, options);
  };
  std::string const tolerance = "refine: options.tolerance: expected 0 to 1, got ";
  CHECK(message({.tolerance = std::numeric_limits<double>::quiet_NaN()}) == tolerance + "NaN");
  CHECK(message({.tolerance = -1}) == tolerance + "-1");
  CHECK(message({.tolerance = 1.5}) == tolerance + "1.5");
  CHECK(message({.tolerance = 0}) == "no error");
  CHECK(message({.tolerance = 1}) == "no error");
  CHECK(message({.max_trials = -1}) == "refine: options.max_trials: expected at least 0, got -1");
  CHECK(message({.max_perturbations = -1}) ==
        "refine: options.max_perturbations: expected at least 0, got -1");
  CHECK(message({.max_perturbations = 0}) == "no error");
  std::string const price = "refine: options.move_price: expected a number of at least 0, got ";
  CHECK(message({.move_price = -1}) == price + "-1");
  CHECK(message({.move_price = std::numeric_limits<double>::quiet_NaN()}) == price + "NaN");
  CHECK(message({.move_price = std::numeric_limits<double>::infinity()}) == price + "inf");
  CHECK(message({.move_price = 0.5}) == "no error");
  auto const where = [](host_options const& options) {
    return refine_refusal<P>(ints{1, 2}, {0, 1, -1, -1}, 1, options);
  };
  CHECK(where({.ranks = 0}) == "refine: where.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(where({.ranks = 2, .load_exponent = std::numeric_limits<double>::quiet_NaN()}) ==
        "refine: where.load_exponent: expected above 0 and at most 1, got NaN");
  CHECK(where({.ranks = 2, .nodes = 3}) ==
        "refine: where.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(where({.ranks = 2, .rank_offsets = {0, 4}}) ==
        "refine: where.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK(where({.ranks = 2, .active = {1}}) == "refine: where.on.active: expected 2 ranks, got 1");
  CHECK(where({.ranks = 2, .speeds = {1, 1, 1}}) ==
        "refine: where.on.speeds: expected 2 ranks, got 3");
  CHECK(where({.ranks = 2, .node_experts = {0, 1}}) ==
        "refine: where.node_experts: expected node_experts and node_offsets, or neither, got no "
        "node_offsets");
  CHECK(where({.ranks = 2, .node_experts = {0}, .node_offsets = {0, 2}}) ==
        "refine: where.node_experts: expected 2 experts, got 1");
  CHECK(where({.ranks = 2, .node_experts = {0, 1}, .node_offsets = {0, 1, 2}}) ==
        "refine: where.node_offsets: expected 2 offsets (nodes + 1), got 3");
  CHECK(where({.ranks = 2,
               .replica_anti_affinity = anti_affinity::node,
               .node_experts = {0, 1},
               .node_offsets = {0, 2}}) ==
        "refine: where.replica_anti_affinity: expected none or rank, since every expert "
        "stays on one node, got node");
}

PLIMSOLL_TEST_CASE("refinement: int64 maps, and placements that own their memory", P,
                   PLIMSOLL_POLICIES) {
  constexpr index_t layers = 2;
  constexpr index_t experts = 12;
  constexpr index_t slots = 16;
  auto const policy = make_policy<P>();
  auto const loads = as<std::int32_t>(skewed_loads(layers, experts, 9));
  ints start;
  for (index_t i = 0; i < layers * slots; ++i) {
    start.push_back(static_cast<std::int32_t>(i % slots % experts));
  }
  host_options const ranks{.ranks = 4, .rank_offsets = {0, 3, 7, 11, 16, 0, 4, 8, 12, 16}};
  refined<P> const expected(loads, start, layers, ranks);
  REQUIRE(expected.map != start);
  array_in<std::int32_t, P> const in(loads);
  options_in<P> const where(ranks, layers);
  auto const view = in.view2(layers, experts);

  array_in<std::int64_t, P> map(as_int64(start));
  array_in<std::int64_t, P> counts(layers * experts, -7);
  auto const certificates = plimsoll::refine(policy, view, *where, {}, map.view2(layers, slots),
                                             counts.view2(layers, experts));
  CHECK(map.values() == as_int64(expected.map));
  CHECK(counts.values() == as_int64(expected.counts));
  CHECK(same(certificates, expected.certificates));

  if constexpr (can_be_kept<P>) {
    array_in<std::int32_t, P> const from(start);
    plimsoll::placement_ref const given{from.view2(layers, slots), {}, 4, (*where).rank_offsets};
    // The options that `place` was given, and none: the placement has them.
    auto const owned = plimsoll::refine(policy, view, given, *where, {});
    auto const again = plimsoll::refine(policy, view, given, {}, {});
    CHECK(owned.physical_to_logical.to_host() == expected.map);
    CHECK(owned.replica_count.to_host() == expected.counts);
    CHECK(owned.rank_offsets.to_host() == ranks.rank_offsets);
    CHECK(same(owned.certificates, expected.certificates));
    CHECK(from.values() == start);
    CHECK(again.physical_to_logical.to_host() == expected.map);
    CHECK(again.ref().ranks == 4);
    CHECK(again.rank_offsets.to_host() == ranks.rank_offsets);
  }
}

}  // namespace plimsoll_test

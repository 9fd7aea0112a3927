// SPDX-License-Identifier: Apache-2.0
// Tests of placement under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/placement.hpp"
#include "support/placement_inputs.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using namespace placement_support;

PLIMSOLL_TEST_CASE("placement: four experts by hand", P, PLIMSOLL_POLICIES) {
  // Copies of expert 0 weigh 225 and go to four ranks, two of expert 1 to the first two of them; 60
  // and 40 remain for the others.
  placed<P> const got(ints{900, 200, 60, 40}, {4, 2, 1, 1}, 1, 8, {.ranks = 4});
  CHECK(got.map == ints{0, 1, 0, 1, 0, 2, 0, 3});
  CHECK(got.certificates[0].value == 325);
  CHECK(got.certificates[0].lower_bound == 325);
  CHECK(got.certificates[0].status == certificate_status::optimal);
}

PLIMSOLL_TEST_CASE("placement: terms of the lower bound", P, PLIMSOLL_POLICIES) {
  placed<P> const pair(ints{5, 5, 5}, {1, 1, 1}, 1, 4, {.ranks = 2});  // the mean is 7.5
  CHECK(pair.certificates[0].lower_bound == 10);
  CHECK(pair.certificates[0].status == certificate_status::optimal);
  placed<P> const heavy(ints{9, 1, 1}, {1, 1, 1}, 1, 4, {.ranks = 2});
  CHECK(heavy.certificates[0].lower_bound == 9);
  CHECK(heavy.certificates[0].value == 9);
  // All slots are used: the heaviest replica shares its rank with at least two others.
  placed<P> const company(ints{20, 4, 3, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}, 1, 7,
                          {.ranks = 2, .rank_offsets = {0, 3, 7}});
  CHECK(company.certificates[0].lower_bound == 22);
  CHECK(company.certificates[0].status == certificate_status::optimal);
  // With a free slot the heaviest replica might be alone.
  placed<P> const alone(ints{20, 4, 3, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}, 1, 8,
                        {.ranks = 2, .rank_offsets = {0, 3, 8}});
  CHECK(alone.certificates[0].lower_bound == 20);
  // Rank 1 holds four replicas in every placement; rank 2 has no slots.
  placed<P> const full(ints{5, 4, 4, 4, 4}, {1, 1, 1, 1, 1}, 1, 5,
                       {.ranks = 3, .rank_offsets = {0, 1, 5, 5}});
  CHECK(full.certificates[0].lower_bound == 16);
  CHECK(full.certificates[0].status == certificate_status::optimal);
}

PLIMSOLL_TEST_CASE("placement: equals the argmin loop, in every type", P, PLIMSOLL_POLICIES) {
  struct shape {
    index_t layers, experts, copies, ranks, slots;
  };
  for (shape const s :
       {shape{1, 1, 1, 1, 1}, shape{3, 16, 24, 6, 24}, shape{2, 64, 80, 16, 80},
        shape{2, 30, 41, 7, 45}, shape{1, 100, 130, 129, 260}, shape{1, 5, 5, 2, 9}}) {
    CAPTURE(s.experts);
    auto const loads = skewed_loads(s.layers, s.experts, 23);
    ints const offsets = even_offsets(s.ranks, s.slots);
    ints counts;
    ints expected;
    for (index_t l = 0; l < s.layers; ++l) {
      auto const n = static_cast<std::size_t>(s.experts);
      auto const row = row_of(loads, l, s.experts);
      auto const copies =
          oracle::replicate(row, s.copies, oracle::vector(n, 1), oracle::vector(n, 1000));
      auto const map = oracle::place(row, copies, {offsets.begin(), offsets.end()});
      counts.insert(counts.end(), copies.begin(), copies.end());
      expected.insert(expected.end(), map.begin(), map.end());
    }
    auto const check = [&]<class T>(T) {
      placed<P> const got(as<T>(loads), counts, s.layers, s.slots, {.ranks = s.ranks});
      CHECK(got.map == expected);
      for (index_t l = 0; l < s.layers; ++l) {
        certificate const& c = got.certificates[static_cast<std::size_t>(l)];
        auto const in_layer = [&](ints const& all, index_t columns) {
          return ints(all.begin() + l * columns, all.begin() + (l + 1) * columns);
        };
        auto const carried =
            loads_of_ranks(row_of(loads, l, s.experts), in_layer(counts, s.experts),
                           in_layer(got.map, s.slots), offsets);
        CHECK(c.value ==
              doctest::Approx(*std::max_element(carried.begin(), carried.end())).epsilon(1e-9));
        CHECK(c.lower_bound <= c.value);
        CHECK(c.work == s.copies);
        CHECK((c.status == certificate_status::optimal) == (c.value == c.lower_bound));
      }
    };
    for_each_load_type(check);
    report_hash("placement." + std::to_string(s.experts) + "x" + std::to_string(s.slots), expected);
  }
}

PLIMSOLL_TEST_CASE("placement: the bound holds against every assignment", P, PLIMSOLL_POLICIES) {
  constexpr index_t ranks = 3;
  constexpr std::size_t experts = 7;
  ints const counts(experts, 1);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    auto const loads = skewed_loads(1, experts, 300 + seed);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (int code = 0; code < 2187; ++code) {
      std::array<std::int64_t, 3> carried{};
      std::array<int, 3> used{};
      for (std::size_t e = 0, rest = static_cast<std::size_t>(code); e < experts; ++e, rest /= 3) {
        carried[rest % 3] += loads[e];
        ++used[rest % 3];
      }
      if (std::max({used[0], used[1], used[2]}) <= 3) {
        best = std::min(best, std::max({carried[0], carried[1], carried[2]}));
      }
    }
    placed<P> const got(as<std::int32_t>(loads), counts, 1, 9, {.ranks = ranks});
    certificate const& c = got.certificates[0];
    CHECK(c.lower_bound <= static_cast<double>(best));
    CHECK(c.value >= static_cast<double>(best));
    if (c.status == certificate_status::optimal) {
      CHECK(c.value == static_cast<double>(best));
    }
  }
}

PLIMSOLL_TEST_CASE("placement: among experts of equal weight, first copies come first", P,
                   PLIMSOLL_POLICIES) {
  // All replicas weigh 4. Experts are placed in the order 0 1 2, then 0 1 0, since expert 2 has one
  // copy.
  ints const loads{12, 8, 4};
  ints const counts{3, 2, 1};
  CHECK(placed<P>(loads, counts, 1, 6, {.ranks = 3}).map == ints{0, 0, 1, 1, 2, 0});
  // With speeds or anti-affinity the copies of an expert are placed one after another.
  CHECK(placed<P>(loads, counts, 1, 6, {.ranks = 3, .speeds = {1, 1, 1}}).map ==
        ints{0, 1, 0, 1, 0, 2});
  CHECK(placed<P>(loads, counts, 1, 6, {.ranks = 3, .replica_anti_affinity = anti_affinity::rank})
            .map == ints{0, 1, 0, 1, 0, 2});
  // Without any load experts are alike, and their copies weigh 1, 1/4 and 1/2.
  CHECK(placed<P>(ints{0, 0, 0}, {1, 4, 2}, 1, 8, {.ranks = 2, .rank_offsets = {0, 3, 8}}).map ==
        ints{0, 1, 1, 2, 2, 1, 1, -1});
  // With even counts, slot i holds expert i mod experts.
  CHECK(placed<P>(ints{0, 0, 0}, {3, 2, 2}, 1, 8, {.ranks = 2, .rank_offsets = {0, 3, 7}}).map ==
        ints{0, 1, 2, 0, 1, 2, 0, -1});
}

PLIMSOLL_TEST_CASE("placement: speeds", P, PLIMSOLL_POLICIES) {
  SUBCASE("equals the argmin loop") {
    check_against_oracle<P>("speeds", 3, 24, 36, 40,
                            {.ranks = 6, .speeds = {1.5, 0.1, 1, 3, 1, 1.0 / 3}});
    check_against_oracle<P>("speeds_of_offsets", 2, 20, 30, 33,
                            {.ranks = 3,
                             .rank_offsets = {0, 20, 20, 30, 0, 4, 29, 33},
                             .speeds = {0x1p-16, 1, 0x1p-12}});
  }
  SUBCASE("equal speeds change nothing if loads are distinct") {
    ints loads;
    for (std::int32_t e = 0; e < 40; ++e) {
      loads.push_back(1000 + 37 * e);
    }
    ints const counts(40, 1);
    auto const without = placed<P>(loads, counts, 1, 45, {.ranks = 7});
    for (double const speed : {1.0, 3.0, 0.1}) {
      placed<P> const with(loads, counts, 1, 45,
                           {.ranks = 7, .speeds = std::vector<double>(7, speed)});
      CHECK(with.map == without.map);
      CHECK(with.certificates[0].value ==
            doctest::Approx(without.certificates[0].value / speed).epsilon(1e-12));
      CHECK(with.certificates[0].lower_bound ==
            doctest::Approx(without.certificates[0].lower_bound / speed).epsilon(1e-12));
    }
  }
  SUBCASE("a rank twice as fast carries about twice as much") {
    ints const loads = as<std::int32_t>(random_integers(3, 300, 90, 110));
    ints const counts(300, 1);
    placed<P> const got(loads, counts, 1, 900,
                        {.ranks = 3, .rank_offsets = {0, 300, 600, 900}, .speeds = {1, 2, 1}});
    auto const carried = loads_of_ranks(as<std::int64_t>({loads.begin(), loads.end()}), counts,
                                        got.map, {0, 300, 600, 900});
    CHECK(carried[1] == doctest::Approx(2 * carried[0]).epsilon(0.02));
    CHECK(carried[1] == doctest::Approx(2 * carried[2]).epsilon(0.02));
  }
  SUBCASE("the certificate counts load per speed") {
    auto const certificate_of = [](ints const& loads, index_t slots, host_options const& options) {
      return placed<P>(loads, ints(loads.size(), 1), 1, slots, options).certificates[0];
    };
    certificate const mean = certificate_of({4, 2}, 4, {.ranks = 2, .speeds = {4, 2}});
    CHECK(mean.value == 1);
    CHECK(mean.lower_bound == 1);
    certificate const heaviest = certificate_of({9, 1}, 4, {.ranks = 2, .speeds = {3, 1}});
    CHECK(heaviest.value == 3);
    CHECK(heaviest.status == certificate_status::optimal);
    certificate const pair = certificate_of({6, 6, 6}, 8, {.ranks = 2, .speeds = {4, 0.25}});
    CHECK(pair.lower_bound <= 18 / 4.25);
    CHECK(pair.lower_bound >= 18 / 4.25 * (1 - 1e-12));
    CHECK(pair.value == 4.5);
    CHECK(pair.status == certificate_status::feasible);
    // The speeds of a dead rank and of a rank without slots do not count.
    certificate const dead = certificate_of(
        {6, 6}, 8,
        {.ranks = 3, .rank_offsets = {0, 4, 4, 8}, .active = {0, 1, 1}, .speeds = {9, 9, 2}});
    CHECK(dead.value == 6);
    CHECK(dead.status == certificate_status::optimal);
  }
}

PLIMSOLL_TEST_CASE("placement: dead ranks and slots of no rank stay empty", P, PLIMSOLL_POLICIES) {
  ints const loads{9, 8, 7, 6};
  ints const once(4, 1);
  CHECK(placed<P>(loads, once, 1, 8, {.ranks = 4, .active = {1, 0, 1, 0}}).map ==
        ints{0, 3, -1, -1, 1, 2, -1, -1});
  CHECK(
      placed<P>(loads, once, 1, 8, {.ranks = 3, .rank_offsets = {0, 3, 4, 7}, .active = {1, 0, 1}})
          .map == ints{0, 3, -1, -1, 1, 2, -1, -1});
  // On live ranks with one slot each, replicas keep their order.
  CHECK(placed<P>(ints{1, 2, 3, 9}, once, 1, 6, {.ranks = 6, .active = {0, 1, 1, 0, 1, 1}}).map ==
        ints{-1, 0, 1, -1, 2, 3});
  CHECK(placed<P>(ints{1, 2, 3, 9}, once, 1, 9, {.ranks = 2, .rank_offsets = {0, 2, 4}}).map ==
        ints{3, 0, 2, 1, -1, -1, -1, -1, -1});
  check_against_oracle<P>("dead", 3, 24, 36, 70, {.ranks = 8, .active = {1, 1, 0, 1, 0, 1, 1, 0}});
  check_against_oracle<P>("dead_and_slow", 2, 24, 30, 60,
                          {.ranks = 5,
                           .rank_offsets = {0, 10, 18, 19, 45, 50, 0, 0, 10, 20, 40, 60},
                           .active = {1, 1, 0, 1, 1},
                           .speeds = {1, 2, 3, 1, 0.5}});
  check_against_oracle<P>("dead_and_apart", 2, 20, 30, 60,
                          {.ranks = 8,
                           .nodes = 3,
                           .active = {0, 1, 1, 1, 1, 0, 1, 1},
                           .replica_anti_affinity = anti_affinity::node});
}

PLIMSOLL_TEST_CASE("placement: anti-affinity of replicas", P, PLIMSOLL_POLICIES) {
  constexpr anti_affinity rank = anti_affinity::rank;
  constexpr anti_affinity node = anti_affinity::node;
  constexpr strictness required = strictness::required;
  SUBCASE("equals the argmin loop") {
    check_against_oracle<P>("apart", 3, 24, 40, 42, {.ranks = 6, .replica_anti_affinity = rank});
    check_against_oracle<P>("apart_nodes", 3, 24, 40, 44,
                            {.ranks = 8, .nodes = 3, .replica_anti_affinity = node});
    check_against_oracle<P>(
        "apart_speeds", 3, 24, 40, 44,
        {.ranks = 5, .nodes = 2, .speeds = {1, 1.7, 1, 0.6, 1}, .replica_anti_affinity = node});
    check_against_oracle<P>("apart_required", 3, 24, 40, 60,
                            {.ranks = 8,
                             .nodes = 3,
                             .replica_anti_affinity = node,
                             .anti_affinity_strength = required});
  }
  SUBCASE("preferred gives way, first the node and then the rank") {
    CHECK(placed<P>(ints{9, 4}, {3, 1}, 1, 4, {.ranks = 2, .replica_anti_affinity = rank}).map ==
          ints{1, 0, 0, 0});
    CHECK(placed<P>(ints{15, 4}, {3, 1}, 1, 6,
                    {.ranks = 3, .nodes = 2, .replica_anti_affinity = node})
              .map == ints{0, 1, 0, -1, 0, -1});
    CHECK(
        placed<P>(ints{8, 1}, {4, 1}, 1, 6, {.ranks = 3, .nodes = 2, .replica_anti_affinity = node})
            .map == ints{0, 0, 0, 1, 0, -1});
  }
  SUBCASE("required anti-affinity moves other replicas if it must") {
    // The greedy choice finds no rank for the third copy of expert 1, since rank 1 is full. The
    // copy goes there, expert 0 moves from there to rank 2, and expert 2 from there to the free
    // slot of rank 0.
    placed<P> const two(ints{8, 1, 1}, {2, 3, 1}, 1, 6,
                        {.ranks = 3,
                         .rank_offsets = {0, 3, 4, 6},
                         .replica_anti_affinity = rank,
                         .anti_affinity_strength = required});
    CHECK(two.map == ints{0, 1, 2, 1, 0, 1});
    CHECK(two.certificates[0].value == doctest::Approx(16.0 / 3).epsilon(1e-12));
    CHECK(two.certificates[0].work == 6);
    placed<P> const three(ints{7, 3, 3, 2}, {2, 1, 3, 4}, 1, 10,
                          {.ranks = 4,
                           .rank_offsets = {0, 2, 6, 9, 10},
                           .replica_anti_affinity = rank,
                           .anti_affinity_strength = required});
    CHECK(three.map == ints{2, 3, 0, 3, 2, 1, 0, 2, 3, 3});
    placed<P> const nodes(ints{2, 3, 9}, {1, 3, 2}, 1, 6,
                          {.ranks = 4,
                           .rank_offsets = {0, 1, 4, 5, 6},
                           .nodes = 3,
                           .replica_anti_affinity = node,
                           .anti_affinity_strength = required});
    CHECK(nodes.map == ints{1, 2, 1, 0, 2, 1});
    report_hash("placement.chains", two.map, three.map, nodes.map);
  }
  SUBCASE("impossible anti-affinity is refused") {
    std::string const refusal =
        "place: replica_anti_affinity: expected slots for all copies under the required rule, got ";
    CHECK(place_refusal<P>(
              {1, 2, 3}, {1, 3, 1}, 6,
              {.ranks = 2, .replica_anti_affinity = rank, .anti_affinity_strength = required}) ==
          refusal + "3 copies in layer 0, expert 1");
    CHECK(place_refusal<P>(
              {1, 2, 3}, {1, 2, 1}, 6,
              {.ranks = 2, .replica_anti_affinity = rank, .anti_affinity_strength = required}) ==
          "no error");
    CHECK(place_refusal<P>(
              {1, 2, 3}, {1, 2, 1}, 6,
              {.ranks = 2, .replica_anti_affinity = node, .anti_affinity_strength = required}) ==
          refusal + "2 copies in layer 0, expert 1");
    // Two ranks would suffice for expert 2 if expert 0 did not need its slots.
    CHECK(place_refusal<P>({4, 1, 1}, {2, 1, 2}, 5,
                           {.ranks = 2,
                            .rank_offsets = {0, 1, 5},
                            .replica_anti_affinity = rank,
                            .anti_affinity_strength = required}) ==
          refusal + "2 copies in layer 0, expert 2");
  }
}

/// Node lists of two layers, in arbitrary order, for three nodes of 2, 2 and 3 ranks; node 1 of
/// layer 1 has no expert.
inline host_options listed_nodes() {
  return {
      .ranks = 7,
      .nodes = 3,
      .node_experts = {8, 1, 5, 0, 9, 3, 2, 6, 4, 7, 11, 10, 0, 1, 2, 3, 4, 5, 11, 10, 9, 8, 7, 6},
      .node_offsets = {0, 3, 7, 12, 0, 6, 6, 12}};
}

PLIMSOLL_TEST_CASE("placement: experts stay on the node that lists them", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 12;
  constexpr index_t slots = 49;
  host_options options = listed_nodes();
  check_against_oracle<P>("lists", 2, experts, 18, slots, options);
  options.replica_anti_affinity = anti_affinity::rank;
  check_against_oracle<P>("lists_apart", 2, experts, 18, slots, options);
  options.speeds = {1, 2, 3, 1, 2, 3, 4};
  check_against_oracle<P>("lists_speeds", 2, experts, 18, slots, options);
  options.active = {1, 1, 1, 1, 0, 1, 1};
  check_against_oracle<P>("lists_dead", 2, experts, 14, slots, options);

  // On a node ties go in the order of the list; with one slot per rank, replicas keep their order.
  CHECK(placed<P>(ints{5, 5, 5, 5}, {1, 1, 1, 1}, 1, 6,
                  {.ranks = 3,
                   .rank_offsets = {0, 1, 2, 6},
                   .nodes = 2,
                   .node_experts = {3, 2, 1, 0},
                   .node_offsets = {0, 1, 4}})
            .map == ints{3, 2, 1, 0, -1, -1});
  CHECK(placed<P>(ints{1, 9, 2, 7}, {1, 2, 1, 1}, 1, 5,
                  {.ranks = 5, .nodes = 2, .node_experts = {2, 3, 0, 1}, .node_offsets = {0, 2, 4}})
            .map == ints{2, 3, 0, 1, 1});
  // The most loaded node determines the peak.
  placed<P> const peak(
      ints{3, 4, 50, 60}, {1, 1, 1, 1}, 1, 6,
      {.ranks = 2, .nodes = 2, .node_experts = {2, 3, 0, 1}, .node_offsets = {0, 2, 4}});
  CHECK(peak.certificates[0].value == 110);
  CHECK(peak.certificates[0].lower_bound == 110);
  CHECK(peak.certificates[0].work == 4);
}

/// Message of the error that `place_groups` throws for this input, or "no error".
template <class P>
std::string group_refusal(ints const& loads, index_t groups, index_t slots,
                          host_options const& options) {
  try {
    grouped<P>(loads, 1, groups, slots, options);
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

PLIMSOLL_TEST_CASE("placement: each group goes to one node", P, PLIMSOLL_POLICIES) {
  SUBCASE("the example of DeepSeek's README") {
    // Groups weigh 262 330 116 325 and 231 280 516 129.
    grouped<P> const got({90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
                          20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27},
                         2, 4, 16, {.ranks = 8, .nodes = 2});
    CHECK(got.experts ==
          ints{3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 4, 5, 0, 1, 2});
    CHECK(got.offsets == ints{0, 6, 12, 0, 6, 12});
    CHECK(got.certificates[0].value == 587.0 / 4);  // per rank
    CHECK(got.certificates[0].work == 4);
    CHECK(got.certificates[1].value == 645.0 / 4);
    CHECK(got.certificates[1].status == certificate_status::optimal);  // bound: 516 + 129
    report_hash("placement.groups", got.experts, got.offsets);
  }
  SUBCASE("nodes that divide neither groups nor ranks") {
    // Nodes of two and three ranks with 4 and 6 slots have capacities of two and three groups.
    grouped<P> const got({9, 1, 8, 1, 3, 1, 2, 0, 1, 0}, 1, 5, 10, {.ranks = 5, .nodes = 2});
    // Groups weigh 10 9 4 2 1. Per rank, node 0 gets 9 + 1 and node 1 gets 10 + 4 + 2, which is
    // 5.3.
    CHECK(got.offsets == ints{0, 4, 10});
    CHECK(got.experts == ints{2, 3, 8, 9, 0, 1, 4, 5, 6, 7});
    CHECK(got.certificates[0].value == doctest::Approx(16.0 / 3).epsilon(1e-12));
    CHECK(got.certificates[0].lower_bound <= 26.0 / 5);
    CHECK(got.certificates[0].lower_bound >= 26.0 / 5 * (1 - 1e-12));
    CHECK(grouped<P>({5, 4, 3}, 1, 3, 4, {.ranks = 2, .nodes = 2}).experts == ints{0, 1, 2});
  }
  SUBCASE("a dead node gets no group and does not count in the mean") {
    host_options const dead{.ranks = 6, .nodes = 3, .active = {0, 0, 1, 1, 1, 1}};
    grouped<P> const got({1, 2, 3, 4}, 1, 4, 12, dead);
    CHECK(got.offsets == ints{0, 0, 2, 4});
    CHECK(got.experts == ints{3, 0, 2, 1});
    CHECK(got.certificates[0].value == 5.0 / 2);
    CHECK(got.certificates[0].status == certificate_status::optimal);
    // Each live node has a capacity of one group: groups keep their order.
    CHECK(grouped<P>({1, 1, 9, 9}, 1, 2, 6, dead).experts == ints{0, 1, 2, 3});
    // A node with a dead rank takes less load and has a smaller capacity.
    host_options const weak{.ranks = 4, .nodes = 2, .active = {1, 0, 1, 1}};
    CHECK(grouped<P>({1, 1, 1, 1}, 1, 4, 8, weak).offsets == ints{0, 1, 4});
    CHECK(grouped<P>({1, 1, 1, 1, 1, 1}, 1, 6, 8, weak).offsets == ints{0, 2, 6});
  }
  SUBCASE("speeds of a node's ranks add up") {
    grouped<P> const got({9, 9, 9, 9, 9, 9}, 1, 6, 24,
                         {.ranks = 4, .nodes = 2, .speeds = {1, 1, 0.5, 0.5}});
    CHECK(got.offsets == ints{0, 3, 6});  // capacity is the share by slots, whatever the speed
    CHECK(got.certificates[0].value == 27);
    grouped<P> const fast({9, 5, 4}, 1, 3, 24, {.ranks = 2, .nodes = 2, .speeds = {1, 4}});
    CHECK(fast.experts == ints{2, 0, 1});  // loads 9 and 5 are on the fast node
    CHECK(fast.certificates[0].value == 4);
  }
  SUBCASE("one group, and one expert in each") {
    grouped<P> const one({4, 5, 6}, 1, 1, 9, {.ranks = 3, .nodes = 3});
    CHECK(one.offsets == ints{0, 3, 3, 3});
    CHECK(one.experts == ints{0, 1, 2});
    CHECK(one.certificates[0].value == 15);
    grouped<P> const each({4, 5, 6}, 1, 3, 6, {.ranks = 3, .nodes = 1});
    CHECK(each.experts == ints{2, 1, 0});
    CHECK(each.certificates[0].value == 5);
    CHECK(each.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("if shares do not fit, nodes take as many groups as they hold") {
    // Only node 3 can hold a group of two experts; its share of three groups would be two.
    host_options const options{.ranks = 4, .rank_offsets = {0, 1, 2, 3, 9}, .nodes = 4};
    grouped<P> const got({1, 1, 1, 1, 1, 1}, 1, 3, 9, options);
    CHECK(got.offsets == ints{0, 0, 0, 0, 6});
    CHECK(group_refusal<P>({1, 1, 1, 1, 1, 1, 1, 1}, 4, 9, options) ==
          "place_groups: groups: expected no more than the nodes' slots hold, 3, got more in "
          "layer 0");
    CHECK(group_refusal<P>({1, 1}, 1, 2, {.ranks = 2, .active = {0, 0}}) ==
          "place_groups: groups: expected no more than the nodes' slots hold, 0, got more in "
          "layer 0");
  }
  SUBCASE("bad input is named") {
    CHECK(group_refusal<P>({1, 2, 3}, 2, 6, {.ranks = 2}) ==
          "place_groups: groups: expected a number that divides 3 experts, got 2");
    CHECK(group_refusal<P>({1, 2, 3}, 0, 6, {.ranks = 2}) ==
          "place_groups: groups: expected 1 to 3 groups, got 0");
    CHECK(group_refusal<P>({1, 2, 3}, 6, 6, {.ranks = 2}) ==
          "place_groups: groups: expected 1 to 3 groups, got 6");
    CHECK(group_refusal<P>({1, 2, 3}, 3, 2, {.ranks = 2}) ==
          "place_groups: slots: expected 3 to 2147483647 slots (at least one per expert), got 2");
    CHECK(group_refusal<P>({1, 2, 3}, 3, 6, {.ranks = 2, .nodes = 3}) ==
          "place_groups: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
    CHECK(group_refusal<P>({1, -2, 3}, 3, 6, {.ranks = 2}) ==
          "place_groups: loads: expected values from 0 to below 2^47, got -2 in layer 0, expert 1");
    CHECK(group_refusal<P>({1, 2, 3}, 3, 6, {.ranks = 2, .speeds = {1, -1}}) ==
          "place_groups: on.speeds: expected values from 2^-64 to 2^64, got -1 in layer 0, rank 1");
    CHECK(group_refusal<P>({1, 2, 3}, 3, 6, {.ranks = 2, .rank_offsets = {0, 2, 7}}) ==
          "place_groups: rank_offsets: expected offsets that rise from 0 to at most the number of "
          "slots, got 7 in layer 0, rank 1");
  }
}

PLIMSOLL_TEST_CASE("placement: slots per rank and layer", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 9;
  auto const loads = skewed_loads(2, experts, 41);
  ints const counts(2 * experts, 1);
  // Rank 1 of layer 0 has no slot; one slot of each layer stays free.
  ints const offsets{0, 4, 4, 10, 0, 3, 9, 10};
  placed<P> const got(as<std::int32_t>(loads), counts, 2, 10,
                      {.ranks = 3, .rank_offsets = offsets});
  for (index_t l = 0; l < 2; ++l) {
    ints const mine(offsets.begin() + 4 * l, offsets.begin() + 4 * (l + 1));
    auto const expected = oracle::place(row_of(loads, l, experts),
                                        oracle::vector(static_cast<std::size_t>(experts), 1),
                                        {mine.begin(), mine.end()});
    CHECK(std::vector<std::int64_t>(got.map.begin() + 10 * l, got.map.begin() + 10 * (l + 1)) ==
          expected);
  }
  CHECK(std::count(got.map.begin(), got.map.end(), -1) == 2);
  report_hash("placement.offsets", got.map);
}

PLIMSOLL_TEST_CASE("placement: one slot per rank keeps replicas in order", P, PLIMSOLL_POLICIES) {
  // `replicate` adds further copies at loads per copy 80 (expert 2), 40 (2), 30 (1), 26.7 (2).
  placed<P> const got(ints{10, 30, 80, 5}, {1, 2, 4, 1}, 1, 8, {.ranks = 8});
  CHECK(got.map == ints{0, 1, 2, 3, 2, 2, 1, 2});
  CHECK(got.certificates[0].value == 20);
  CHECK(got.certificates[0].status == certificate_status::optimal);
  // The counts need not come from `replicate`.
  placed<P> const given(ints{10, 30, 80, 5}, {3, 1, 1, 1}, 1, 6, {.ranks = 6});
  CHECK(given.map == ints{0, 1, 2, 3, 0, 0});
}

PLIMSOLL_TEST_CASE("placement: edges", P, PLIMSOLL_POLICIES) {
  SUBCASE("no layers") {
    CHECK(placed<P>(std::vector<float>{}, {}, 0, 4, {.ranks = 2}).certificates.empty());
  }
  SUBCASE("no load: ranks fill from the first") {
    placed<P> const got(ints{0, 0, 0, 0}, {1, 1, 1, 1}, 1, 4, {.ranks = 2});
    CHECK(got.map == ints{0, 1, 2, 3});
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("equal loads go to the ranks in turn, by id") {
    CHECK(placed<P>(ints{5, 5, 5, 5, 5, 5}, {1, 1, 1, 1, 1, 1}, 1, 6, {.ranks = 3}).map ==
          ints{0, 3, 1, 4, 2, 5});
  }
  SUBCASE("a single rank takes all experts, heaviest first") {
    placed<P> const got(ints{1, 7, 3}, {1, 2, 1}, 1, 5, {.ranks = 1});
    CHECK(got.map == ints{1, 1, 2, 0, -1});
    CHECK(got.certificates[0].value == 11);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("renaming experts renames the placement") {
    ints const loads{90, 11, 47, 23, 60, 5};
    ints const renamed{5, 60, 23, 47, 11, 90};
    ints const once(6, 1);
    ints map = placed<P>(loads, once, 1, 6, {.ranks = 3}).map;
    for (std::int32_t& e : map) {
      e = 5 - e;
    }
    CHECK(placed<P>(renamed, once, 1, 6, {.ranks = 3}).map == map);
  }
}

PLIMSOLL_TEST_CASE("placement: bad values are named", P, PLIMSOLL_POLICIES) {
  auto const message = [](ints const& loads, ints const& counts, index_t ranks, index_t slots,
                          ints const& offsets = {}) {
    return place_refusal<P>(loads, counts, slots, {.ranks = ranks, .rank_offsets = offsets});
  };
  CHECK(message({1, -2}, {1, 1}, 2, 4) ==
        "place: loads: expected values from 0 to below 2^47, got -2 in layer 0, expert 1");
  std::string const copies =
      "place: replica_count: expected 1 to 32767 copies of every expert on live ranks, got ";
  CHECK(message({1, 2}, {1, 0}, 2, 4) == copies + "0 in layer 0, expert 1");
  CHECK(message({1, 2}, {32768, 1}, 2, 40000) == copies + "32768 in layer 0, expert 0");
  CHECK(message({1, 2}, {32767, 1}, 2, 40000) == "no error");
  CHECK(message({1, 2}, {2, 3}, 2, 4) ==
        "place: replica_count: expected a total of at most the slots, got 5 in layer 0");
  CHECK(message({1, 2}, {1, 1}, 0, 4) ==
        "place: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(message({1, 2}, {1, 1}, 2, 1) ==
        "place: physical_to_logical: expected 2 to 2147483647 slots (at least one per expert), "
        "got 1");
  CHECK(message({1, 2}, {1, 1}, 2, 4, {0, 4}) ==
        "place: options.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  std::string const rises =
      "place: rank_offsets: expected offsets that rise from 0 to at most the number of slots, got ";
  CHECK(message({1, 2}, {1, 1}, 2, 4, {1, 2, 4}) == rises + "2 in layer 0, rank 0");
  CHECK(message({1, 2}, {1, 1}, 2, 4, {0, 2, 5}) == rises + "5 in layer 0, rank 1");
  CHECK(message({1, 2}, {1, 1}, 3, 4, {0, 3, 2, 4}) == rises + "2 in layer 0, rank 1");

  auto const with = [](index_t slots, host_options const& options) {
    return place_refusal<P>({1, 2, 3}, {1, 1, 1}, slots, options);
  };
  CHECK(with(4, {.ranks = 2, .load_exponent = 1.25}) ==
        "place: options.load_exponent: expected above 0 and at most 1, got 1.25");
  CHECK(with(4, {.ranks = 2, .nodes = 0}) ==
        "place: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 0");
  CHECK(with(4, {.ranks = 2, .nodes = 3}) ==
        "place: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(with(4, {.ranks = 2, .active = {1, 1, 1}}) ==
        "place: options.on.active: expected 2 ranks, got 3");
  std::string const too_many = "place: replica_count: expected a total of at most the slots, got ";
  CHECK(with(4, {.ranks = 2, .active = {0, 0}}) == too_many + "3 in layer 0");
  CHECK(with(4, {.ranks = 2, .active = {0, 1}}) == too_many + "3 in layer 0");
  CHECK(with(6, {.ranks = 2, .active = {0, 1}}) == "no error");
  CHECK(with(6, {.ranks = 2, .rank_offsets = {0, 1, 2}}) == too_many + "3 in layer 0");
  CHECK(with(4, {.ranks = 2, .speeds = {1}}) ==
        "place: options.on.speeds: expected 2 ranks, got 1");
  auto const speed = [&](double slow) { return with(4, {.ranks = 2, .speeds = {1, slow}}); };
  auto const refused = [](std::string const& got) {
    return "place: on.speeds: expected values from 2^-64 to 2^64, got " + got +
           " in layer 0, rank 1";
  };
  double const infinite = std::numeric_limits<double>::infinity();
  CHECK(speed(0) == refused("0"));
  CHECK(speed(-1) == refused("-1"));
  CHECK(speed(std::numeric_limits<double>::quiet_NaN()) == refused("NaN"));
  CHECK(speed(infinite) == refused("inf"));
  CHECK(speed(-infinite) == refused("-inf"));
  CHECK(speed(1e300) == refused("1e+300"));
  CHECK(speed(0x1.8p64) == refused("27670116110564327424"));
  CHECK(speed(0x1p16) == "no error");
  CHECK(speed(0x1p-16) == "no error");
  std::string const relative =
      "place: on.speeds: expected speeds of live ranks from 2^-16 of the fastest to the fastest, "
      "got ";
  CHECK(speed(0x1p20) == relative + "1 for rank 0, where rank 1 is the fastest");
  CHECK(speed(0x1.fp-17) ==
        relative + plimsoll::detail::text(0x1.fp-17) + " for rank 1, where rank 0 is the fastest");
  // The first of the fastest live ranks is named; the speeds of dead ranks are not compared.
  CHECK(with(6, {.ranks = 3, .active = {0, 1, 1}, .speeds = {0x1p20, 0.5, 0x1p16}}) ==
        relative + "0.5 for rank 1, where rank 2 is the fastest");
  CHECK(with(6, {.ranks = 3, .speeds = {0x1p20, 0x1p20, 1}}) ==
        relative + "1 for rank 2, where rank 0 is the fastest");
  CHECK(with(6, {.ranks = 2, .active = {1, 0}, .speeds = {1, 0x1p-64}}) == "no error");

  auto const lists = [&](ints const& experts, ints const& offsets,
                         anti_affinity rule = anti_affinity::none) {
    return with(6, {.ranks = 2,
                    .nodes = 2,
                    .replica_anti_affinity = rule,
                    .node_experts = experts,
                    .node_offsets = offsets});
  };
  CHECK(lists({2, 0, 1}, {0, 1, 3}) == "no error");
  CHECK(lists({2, 0, 1}, {0, 0, 3}) == "no error");
  CHECK(lists({2, 0, 1}, {}) ==
        "place: options.node_experts: expected node_experts and node_offsets, or neither, got no "
        "node_offsets");
  CHECK(lists({}, {0, 1, 3}) ==
        "place: options.node_experts: expected node_experts and node_offsets, or neither, got no "
        "node_experts");
  CHECK(lists({2, 0}, {0, 1, 2}) == "place: options.node_experts: expected 3 experts, got 2");
  CHECK(lists({2, 0, 1}, {0, 3}) ==
        "place: options.node_offsets: expected 3 offsets (nodes + 1), got 2");
  CHECK(lists({2, 0, 1}, {0, 1, 3}, anti_affinity::node) ==
        "place: options.replica_anti_affinity: expected none or rank, since every expert "
        "stays on one node, got node");
  std::string const node_rises =
      "place: node_offsets: expected offsets that rise from 0 to the number of experts, got ";
  CHECK(lists({2, 0, 1}, {0, 4, 3}) == node_rises + "3 in layer 0, node 1");
  CHECK(lists({2, 0, 1}, {1, 2, 3}) == node_rises + "2 in layer 0, node 0");
  CHECK(lists({2, 0, 1}, {0, 1, 2}) == node_rises + "2 in layer 0, node 1");
  CHECK(lists({2, 0, 1}, {0, -1, 3}) == node_rises + "-1 in layer 0, node 0");
  std::string const once =
      "place: node_experts: expected every expert once, got another list in layer 0, expert ";
  CHECK(lists({2, 0, 2}, {0, 1, 3}) == once + "1");
  CHECK(lists({0, 0, 1}, {0, 1, 3}) == once + "2");
  CHECK(lists({1, 0, 3}, {0, 1, 3}) == once + "2");
  CHECK(lists({-1, 0, 1}, {0, 1, 3}) == once + "2");
  CHECK(place_refusal<P>(
            {1, 2, 3}, {1, 1, 3}, 6,
            {.ranks = 2, .nodes = 2, .node_experts = {0, 1, 2}, .node_offsets = {0, 1, 3}}) ==
        too_many + "4 in layer 0, node 1");
  CHECK(place_refusal<P>({1, 2, 3}, {1, 1, 1}, 6,
                         {.ranks = 2,
                          .nodes = 2,
                          .active = {0, 1},
                          .node_experts = {0, 1, 2},
                          .node_offsets = {0, 1, 3}}) == too_many + "1 in layer 0, node 0");
}

PLIMSOLL_TEST_CASE("placement: int64 maps, and placements that own their memory", P,
                   PLIMSOLL_POLICIES) {
  constexpr index_t layers = 2;
  constexpr index_t experts = 6;
  constexpr index_t slots = 9;
  auto const policy = make_policy<P>();
  ints const loads{60, 50, 40, 30, 20, 10, 1, 2, 4, 8, 16, 32};
  ints const counts{2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  host_options const ranks{.ranks = 3, .rank_offsets = {0, 2, 5, 9, 0, 4, 6, 8}};
  placed<P> const expected(loads, counts, layers, slots, ranks);
  array_in<std::int32_t, P> const in(loads);
  array_in<std::int32_t, P> const narrow(counts);
  array_in<std::int64_t, P> const given(as_int64(counts));
  options_in<P> const where(ranks, layers);
  auto const view = in.view2(layers, experts);

  array_in<std::int64_t, P> map(layers * slots, -7);
  auto const certificates =
      plimsoll::place(policy, view, given.view2(layers, experts), *where, map.view2(layers, slots));
  CHECK(map.values() == as_int64(expected.map));
  CHECK(same(certificates, expected.certificates));

  if constexpr (can_be_kept<P>) {
    auto const owned = plimsoll::place(policy, view, given.view2(layers, experts), slots, *where);
    CHECK(owned.physical_to_logical.to_host() == expected.map);
    CHECK(owned.replica_count.to_host() == counts);
    CHECK(owned.rank_offsets.to_host() == ranks.rank_offsets);
    CHECK(owned.ref().ranks == 3);
    CHECK(same(owned.certificates, expected.certificates));
    auto const even =
        plimsoll::place(policy, view, narrow.view2(layers, experts), slots, {.on = {.ranks = 3}});
    CHECK(even.physical_to_logical.to_host() ==
          placed<P>(loads, counts, layers, slots, {.ranks = 3}).map);
    CHECK(even.ref().rank_offsets.data == nullptr);
  }
}

}  // namespace plimsoll_test

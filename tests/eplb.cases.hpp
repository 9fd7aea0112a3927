// SPDX-License-Identifier: Apache-2.0
// Tests of eplb under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/eplb.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using namespace eplb_support;

PLIMSOLL_TEST_CASE("eplb: the example of the reference's README", P, PLIMSOLL_POLICIES) {
  array_in<std::int32_t, P> const loads(readme_loads());
  array_in<std::int32_t, P> map(2 * 16);
  array_in<std::int32_t, P> inverse(2 * 12 * 2);
  array_in<std::int32_t, P> counts(2 * 12);
  plimsoll::rebalance_experts(make_policy<P>(), loads.view2(2, 12), 16, 4, 2, 8, map.view2(2, 16),
                              inverse.view3(2, 12, 2), counts.view2(2, 12));
  CHECK(map.values() == ints{5, 6,  5, 7, 8, 4,  3, 4, 10, 9, 10, 2, 0, 1, 11, 1,
                             7, 10, 6, 8, 6, 11, 8, 9, 2,  4, 5,  1, 5, 0, 3,  1});
  CHECK(counts.values() ==
        ints{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1, 1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1});
  ints const lists = inverse.values();
  CHECK(ints(lists.begin(), lists.begin() + 6) == ints{12, -1, 13, 15, 11, -1});
}

PLIMSOLL_TEST_CASE("eplb: replicates, then places, with any shape", P, PLIMSOLL_POLICIES) {
  for (std::array<index_t, 4> const& shape : {std::array<index_t, 4>{1, 1, 1, 1},
                                              {4, 32, 8, 40},
                                              {3, 30, 7, 41},
                                              {2, 64, 16, 64},
                                              {2, 10, 3, 31}}) {
    index_t const layers = shape[0];
    index_t const experts = shape[1];
    index_t const ranks = shape[2];
    index_t const slots = shape[3];
    CAPTURE(experts);
    CAPTURE(slots);
    auto const loads = skewed_loads(layers, experts, 77);
    ints map;
    ints counts;
    for (index_t l = 0; l < layers; ++l) {
      auto const n = static_cast<std::size_t>(experts);
      auto const row = row_of(loads, l, experts);
      auto const copies =
          oracle::replicate(row, slots, oracle::vector(n, 1), oracle::vector(n, 1000));
      oracle::vector offsets;
      for (index_t r = 0; r <= ranks; ++r) {
        offsets.push_back(r * slots / ranks);
      }
      auto const placed = oracle::place(row, copies, offsets);
      map.insert(map.end(), placed.begin(), placed.end());
      counts.insert(counts.end(), copies.begin(), copies.end());
    }
    planned<P> const whole(as<std::int32_t>(loads), layers, experts, {.on = {.ranks = ranks}},
                           slots);
    CHECK(whole.map == map);
    CHECK(whole.counts == counts);
    planned<P> const real(as<float>(loads), layers, experts, {.on = {.ranks = ranks}}, slots);
    CHECK(real.map == map);
    CHECK(real.counts == counts);
    CHECK(whole.certificates.size() == static_cast<std::size_t>(layers));
    report_hash("eplb." + std::to_string(experts) + "x" + std::to_string(slots), map, counts);
  }
}

PLIMSOLL_TEST_CASE("eplb: a known plan and its refinement", P, PLIMSOLL_POLICIES) {
  ints const loads{600, 560, 120, 120, 20, 10, 10, 10};
  // EPLB's plan for these loads has a peak of 232, with two copies of expert 1 on one rank.
  planned<P> const got(loads, 1, 8, {.on = {.ranks = 8}}, 16);
  CHECK(got.counts == ints{5, 5, 1, 1, 1, 1, 1, 1});
  CHECK(got.certificates[0].value == doctest::Approx(232).epsilon(1e-12));
  // The eighth and ninth heaviest replicas weigh 112 each.
  CHECK(got.certificates[0].lower_bound == doctest::Approx(224).epsilon(1e-12));

  planned<P> const packed(loads, 1, 8,
                          {.on = {.ranks = 8}, .refine = plimsoll::eplb_refinement::packing}, 16);
  CHECK(packed.counts == got.counts);
  CHECK(packed.certificates[0].value <= got.certificates[0].value);
  planned<P> const joint(loads, 1, 8,
                         {.on = {.ranks = 8}, .refine = plimsoll::eplb_refinement::joint}, 16);
  CHECK(joint.certificates[0].value <= 590.0 / 3 * (1 + 1e-12));
  report_hash("eplb.refined", packed.map, joint.map, joint.counts);
}

PLIMSOLL_TEST_CASE("eplb: groups stay on a node if hierarchical", P, PLIMSOLL_POLICIES) {
  using plimsoll::eplb_policy;
  constexpr index_t experts = 24;
  constexpr index_t slots = 40;
  auto const loads = as<std::int32_t>(skewed_loads(2, experts, 5));
  auto const plan = [&](index_t ranks, index_t nodes, index_t groups, eplb_policy policy) {
    return planned<P>(loads, 2, experts,
                      {.on = {.ranks = ranks, .nodes = nodes}, .groups = groups, .policy = policy},
                      slots);
  };
  auto const together = [&](planned<P> const& got, index_t ranks, index_t nodes, index_t groups) {
    return groups_stay_together(nodes_of(got.map, 0, experts, slots, ranks, nodes), groups) &&
           groups_stay_together(nodes_of(got.map, 1, experts, slots, ranks, nodes), groups);
  };
  ints const flat = planned<P>(loads, 2, experts, {.on = {.ranks = 8}}, slots).map;
  CHECK(together(plan(8, 2, 4, eplb_policy::automatic), 8, 2, 4));
  // Three groups on two nodes: the reference plans globally. If forced, the nodes get two and one.
  CHECK(plan(8, 2, 3, eplb_policy::automatic).map == flat);
  CHECK(plan(8, 2, 4, eplb_policy::global).map == flat);
  CHECK(plan(8, 2, 5, eplb_policy::global).map == flat);  // 5 groups do not divide the experts
  CHECK(together(plan(8, 2, 3, eplb_policy::hierarchical), 8, 2, 3));
  // Nodes of two and three ranks.
  CHECK(together(plan(5, 2, 4, eplb_policy::automatic), 5, 2, 4));
  CHECK(together(plan(7, 3, 6, eplb_policy::automatic), 7, 3, 6));
  report_hash("eplb.groups", plan(8, 2, 4, eplb_policy::automatic).map,
              plan(7, 3, 6, eplb_policy::automatic).map,
              plan(8, 2, 3, eplb_policy::hierarchical).map);
}

PLIMSOLL_TEST_CASE("eplb: ranks with given numbers of slots", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 20;
  constexpr index_t slots = 40;
  constexpr index_t ranks = 4;
  auto const loads = skewed_loads(2, experts, 8);
  auto const in = as<std::int32_t>(loads);
  // Ranks without slots, slots without a rank, and a different number of slots in every layer.
  ints const offsets{0, 3, 3, 30, 37, 0, 10, 12, 20, 22};
  planned<P> const got(in, 2, experts, {.on = {.ranks = ranks}}, slots, {}, {}, offsets);
  ints map;
  ints counts;
  for (index_t layer = 0; layer < 2; ++layer) {
    auto const row = row_of(loads, layer, experts);
    oracle::vector const begin(offsets.begin() + layer * (ranks + 1),
                               offsets.begin() + (layer + 1) * (ranks + 1));
    auto const copies = oracle::replicate(row, begin.back(), oracle::vector(experts, 1),
                                          oracle::vector(experts, 1000));
    auto const placed = oracle::place(row, copies, begin);
    map.insert(map.end(), placed.begin(), placed.end());
    map.resize(static_cast<std::size_t>((layer + 1) * slots), -1);
    counts.insert(counts.end(), copies.begin(), copies.end());
  }
  CHECK(got.map == map);
  CHECK(got.counts == counts);
  report_hash("eplb.rank_offsets", got.map, got.counts);

  // The offsets that `eplb` would have chosen.
  ints const even{0, 10, 20, 30, 40, 0, 10, 20, 30, 40};
  plimsoll::eplb_options const grouped{.on = {.ranks = ranks, .nodes = 2}, .groups = 4};
  CHECK(planned<P>(in, 2, experts, grouped, slots, {}, {}, even).map ==
        planned<P>(in, 2, experts, grouped, slots).map);
  // Nodes of one rank with slots and one without.
  ints const halves{0, 20, 20, 35, 35, 0, 0, 15, 15, 40};
  planned<P> const nodes(in, 2, experts, grouped, slots, {}, {}, halves);
  for (index_t layer = 0; layer < 2; ++layer) {
    ints node_of(experts, -1);
    for (index_t slot = 0; slot < slots; ++slot) {
      auto const e = nodes.map[static_cast<std::size_t>(layer * slots + slot)];
      bool const first = slot < halves[static_cast<std::size_t>(layer * (ranks + 1) + 2)];
      if (e >= 0) {
        std::int32_t& node = node_of[static_cast<std::size_t>(e)];
        CHECK((node == -1 || node == (first ? 0 : 1)));
        node = first ? 0 : 1;
      }
    }
    CHECK(groups_stay_together(node_of, 4));
  }
  plimsoll::eplb_options refined{.on = {.ranks = ranks},
                                 .refine = plimsoll::eplb_refinement::joint};
  CHECK(planned<P>(in, 2, experts, refined, slots, {}, {}, offsets).certificates[0].value <=
        got.certificates[0].value);

  auto const message = [&](ints const& bad) -> std::string {
    try {
      planned<P>(in, 2, experts, {.on = {.ranks = ranks}}, slots, {}, {}, bad);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message({0, 10, 20, 30, 40}) == "eplb: options.rank_offsets: expected 2 layers, got 1");
  CHECK(message({0, 10, 20, 30, 40, 0, 10, 9, 30, 40}) ==
        "eplb: rank_offsets: expected offsets that rise from 0 to at most the number of slots, got "
        "9 in layer 1, rank 1");
  CHECK(message({0, 10, 20, 30, 41, 0, 10, 20, 30, 40}) ==
        "eplb: rank_offsets: expected offsets that rise from 0 to at most the number of slots, got "
        "41 in layer 0, rank 3");
  CHECK(message({0, 10, 20, 30, 40, 0, 5, 10, 15, 19}) ==
        "eplb: slots: expected at least 20 on live ranks, for all required copies, got 19 in "
        "layer 1");
}

PLIMSOLL_TEST_CASE("eplb: dead ranks, speeds and anti-affinity", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 24;
  constexpr index_t slots = 48;
  auto const loads = as<std::int32_t>(skewed_loads(2, experts, 6));
  plimsoll::eplb_options options{.on = {.ranks = 8, .nodes = 2}};
  options.replica_anti_affinity = plimsoll::anti_affinity::rank;
  options.anti_affinity_strength = plimsoll::strictness::required;
  std::vector<std::uint8_t> const active{1, 0, 1, 1, 1, 1, 0, 1};
  planned<P> const apart(loads, 2, experts, options, slots, active);
  CHECK(std::count(apart.map.begin(), apart.map.end(), -1) == 2 * 2 * 6);
  CHECK(*std::max_element(apart.counts.begin(), apart.counts.end()) <= 6);

  options.replica_anti_affinity = plimsoll::anti_affinity::node;
  planned<P> const nodes(loads, 2, experts, options, slots, active);
  CHECK(*std::max_element(nodes.counts.begin(), nodes.counts.end()) == 2);

  std::vector<double> const speeds{2, 1, 1, 1, 1, 1, 1, 1};
  planned<P> const fast(loads, 2, experts, {.on = {.ranks = 8}}, slots, {}, speeds);
  planned<P> const slow(loads, 2, experts, {.on = {.ranks = 8}}, slots);
  CHECK(fast.certificates[0].lower_bound < slow.certificates[0].lower_bound);
  CHECK(fast.certificates[0].value < slow.certificates[0].value);
  report_hash("eplb.options", apart.map, nodes.map, fast.map);
}

PLIMSOLL_TEST_CASE("eplb: load_exponent plans as for powers of the loads", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 3;
  constexpr index_t experts = 24;
  constexpr index_t slots = 40;
  auto const loads = skewed_loads(layers, experts, 11);
  std::vector<double> powers;
  for (std::int64_t const load : loads) {
    powers.push_back(plimsoll::detail::power(static_cast<double>(load), 0.85));
  }
  auto const check = [&](std::string const& name, plimsoll::eplb_options options) {
    planned<P> const expected(powers, layers, experts, options, slots);
    options.load_exponent = 0.85;
    auto const equals = [&](planned<P> const& got) {
      CHECK(got.map == expected.map);
      CHECK(got.counts == expected.counts);
      for (std::size_t layer = 0; layer < got.certificates.size(); ++layer) {
        CHECK(got.certificates[layer].value == expected.certificates[layer].value);
        CHECK(got.certificates[layer].lower_bound == expected.certificates[layer].lower_bound);
      }
    };
    equals(planned<P>(loads, layers, experts, options, slots));
    equals(planned<P>(as<double>(loads), layers, experts, options, slots));
    report_hash("eplb.load_exponent." + name, expected.map, expected.counts);
  };
  check("global", {.on = {.ranks = 8}});
  check("joint",
        {.on = {.ranks = 8, .nodes = 2}, .groups = 4, .refine = plimsoll::eplb_refinement::joint});
  // No load, and a total next to 2^47.
  planned<P> const none(std::vector<double>(4, 0.0), 1, 4,
                        {.on = {.ranks = 2}, .load_exponent = 0.5}, 6);
  CHECK(none.certificates[0].value == 0);
  planned<P> const large(std::vector<double>(2, 0x1p46 - 1), 1, 2,
                         {.on = {.ranks = 2}, .load_exponent = 1 - 0x1p-53}, 2);
  CHECK(large.certificates[0].value == doctest::Approx(0x1p46));
}

PLIMSOLL_TEST_CASE("eplb: bad input is named", P, PLIMSOLL_POLICIES) {
  auto const message = [](ints const& loads, plimsoll::eplb_options const& options, index_t slots,
                          std::vector<std::uint8_t> const& active = {},
                          std::vector<double> const& speeds = {}) -> std::string {
    try {
      planned<P>(loads, 1, static_cast<index_t>(loads.size()), options, slots, active, speeds);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  using plimsoll::anti_affinity;
  using plimsoll::strictness;
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 4) == "no error");
  CHECK(message({1, 2, -3}, {.on = {.ranks = 2}}, 4) ==
        "eplb: loads: expected values from 0 to below 2^47, got -3 in layer 0, expert 2");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}, .load_exponent = -1}, 4) ==
        "eplb: options.load_exponent: expected above 0 and at most 1, got -1");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 0}}, 4) ==
        "eplb: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 32768}}, 4) ==
        "eplb: options.on.ranks: expected 1 to 32767 ranks, got 32768");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 2) ==
        "eplb: physical_to_logical: expected 3 to 32769 slots (at least one per expert), got 2");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 32770) ==
        "eplb: physical_to_logical: expected 3 to 32769 slots (at least one per expert), got "
        "32770");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2, .nodes = 3}}, 4) ==
        "eplb: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}, .groups = 2}, 4) ==
        "eplb: groups: expected a number that divides 3 experts, got 2");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}, .groups = 0}, 4) ==
        "eplb: groups: expected 1 to 3 groups, got 0");
  // Three groups on three nodes of one rank, but the slots of live ranks hold only two groups.
  CHECK(message({1, 2, 3, 4, 5, 6}, {.on = {.ranks = 3, .nodes = 3}, .groups = 3}, 7, {1, 0, 1}) ==
        "eplb: groups: expected no more than the nodes' slots hold, 2, got more in layer 0");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 4, {0, 1}) ==
        "eplb: slots: expected at least 3 on live ranks, for all required copies, got 2 in layer "
        "0");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 4, {1, 1, 1}) ==
        "eplb: options.on.active: expected 2 ranks, got 3");
  CHECK(message({1, 2, 3}, {.on = {.ranks = 2}}, 4, {}, {1, 0}) ==
        "eplb: on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
  // Required anti-affinity leaves slots empty instead of failing.
  CHECK(message({1, 2},
                {.on = {.ranks = 2},
                 .replica_anti_affinity = anti_affinity::rank,
                 .anti_affinity_strength = strictness::required},
                8) == "no error");

  array_in<std::int32_t, P> const loads(readme_loads());
  array_in<std::int32_t, P> map(2 * 16);
  array_in<std::int32_t, P> inverse(2 * 12);
  array_in<std::int32_t, P> counts(2 * 12);
  CHECK_THROWS_WITH_AS(
      plimsoll::rebalance_experts(make_policy<P>(), loads.view2(2, 12), 16, 4, 2, 8,
                                  map.view2(2, 16), inverse.view3(2, 12, 1), counts.view2(2, 12)),
      "rebalance_experts: logical_to_physical: expected at least 2 columns, got 1 in layer 0, "
      "expert 1",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::rebalance_experts(make_policy<P>(), loads.view2(2, 12), 15, 4, 2, 8,
                                  map.view2(2, 16), inverse.view3(2, 12, 1), counts.view2(2, 12)),
      "rebalance_experts: physical_to_logical: expected 15 replicas, got 16",
      plimsoll::invalid_input);
}

PLIMSOLL_TEST_CASE("eplb: int64 maps, and placements that own their memory", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 2;
  constexpr index_t experts = 12;
  constexpr index_t slots = 17;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const loads(readme_loads());
  ints const offsets{0, 5, 9, 13, 17, 0, 2, 9, 16, 17};
  array_in<std::int32_t, P> const offsets_in(offsets);
  auto const view = loads.view2(layers, experts);
  plimsoll::eplb_options options{.on = {.ranks = 4}, .refine = plimsoll::eplb_refinement::packing};
  planned<P> const even(readme_loads(), layers, experts, options, slots);
  planned<P> const uneven(readme_loads(), layers, experts, options, slots, {}, {}, offsets);

  array_in<std::int64_t, P> map(layers * slots, -7);
  array_in<std::int64_t, P> counts(layers * experts, -7);
  auto const certificates = plimsoll::eplb(policy, view, options, map.view2(layers, slots),
                                           counts.view2(layers, experts));
  CHECK(map.values() == as_int64(even.map));
  CHECK(counts.values() == as_int64(even.counts));
  CHECK(same(certificates, even.certificates));

  if constexpr (can_be_kept<P>) {
    auto const owned = plimsoll::eplb(policy, view, slots, options);
    CHECK(owned.physical_to_logical.to_host() == even.map);
    CHECK(owned.replica_count.to_host() == even.counts);
    CHECK(owned.ref().ranks == 4);
    CHECK(owned.ref().rank_offsets.data == nullptr);
    CHECK(same(owned.certificates, even.certificates));
    options.rank_offsets = offsets_in.view2(layers, 5);
    auto const copied = plimsoll::eplb(policy, view, slots, options);
    CHECK(copied.physical_to_logical.to_host() == uneven.map);
    CHECK(copied.rank_offsets.to_host() == offsets);
    plimsoll::validate(policy, copied.ref());
  }
}

PLIMSOLL_TEST_CASE("eplb: the reference's maps in int64, its type", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const loads(readme_loads());
  array_in<std::int32_t, P> map(2 * 16);
  array_in<std::int32_t, P> inverse(2 * 12 * 3);
  array_in<std::int32_t, P> counts(2 * 12);
  plimsoll::rebalance_experts(policy, loads.view2(2, 12), 16, 4, 2, 8, map.view2(2, 16),
                              inverse.view3(2, 12, 3), counts.view2(2, 12));
  array_in<std::int64_t, P> wide_map(2 * 16, -7);
  array_in<std::int64_t, P> wide_inverse(2 * 12 * 3, -7);
  array_in<std::int64_t, P> wide_counts(2 * 12, -7);
  plimsoll::rebalance_experts(policy, loads.view2(2, 12), 16, 4, 2, 8, wide_map.view2(2, 16),
                              wide_inverse.view3(2, 12, 3), wide_counts.view2(2, 12));
  CHECK(wide_map.values() == as_int64(map.values()));
  CHECK(wide_inverse.values() == as_int64(inverse.values()));
  CHECK(wide_counts.values() == as_int64(counts.values()));
}

}  // namespace plimsoll_test

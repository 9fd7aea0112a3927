// SPDX-License-Identifier: Apache-2.0
// Tests of replication under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/replication.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/placement_inputs.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using plimsoll::anti_affinity;
using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::replication_options;
using plimsoll::strictness;

template <class P>
struct replicated {
  std::vector<std::int32_t> counts;
  std::vector<certificate> certificates;

  template <class T>
  replicated(std::vector<T> const& loads, index_t layers, index_t experts, index_t slots,
             replication_options options = {}) {
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> out(layers * experts, -7);
    certificates = plimsoll::replicate(make_policy<P>(), in.view2(layers, experts), slots, options,
                                       out.view2(layers, experts));
    counts = out.values();
  }
};

PLIMSOLL_TEST_CASE("replication: four experts by hand", P, PLIMSOLL_POLICIES) {
  // Each of four spare slots goes to the expert with the largest load per copy: 900, 450, 300, and
  // then 200, since expert 0 may have four copies.
  replicated<P> const got(std::vector<std::int32_t>{900, 200, 60, 40}, 1, 4, 8, {.max_copies = 4});
  CHECK(got.counts == std::vector<std::int32_t>{4, 2, 1, 1});
  CHECK(got.certificates[0].value == 225);
  CHECK(got.certificates[0].status == certificate_status::optimal);
}

PLIMSOLL_TEST_CASE("replication: square roots of loads by hand", P, PLIMSOLL_POLICIES) {
  // The roots are 30, 14.1, 7.7 and 6.3; spare slots go to 30, 30 / 2, 14.1 and 30 / 3. By the
  // loads themselves, all four go to expert 0.
  std::vector<std::int32_t> const loads{900, 200, 60, 40};
  replicated<P> const got(loads, 1, 4, 8, {.where = {.load_exponent = 0.5}});
  CHECK(got.counts == std::vector<std::int32_t>{4, 2, 1, 1});
  CHECK(got.certificates[0].value == doctest::Approx(std::sqrt(60.0)));
  CHECK(got.certificates[0].lower_bound <= std::sqrt(60.0) * (1 + 1e-12));
  CHECK(replicated<P>(loads, 1, 4, 8).counts == std::vector<std::int32_t>{5, 1, 1, 1});
}

PLIMSOLL_TEST_CASE("replication: equals the argmax loop, in every type", P, PLIMSOLL_POLICIES) {
  for (std::array<index_t, 3> const& shape : {std::array<index_t, 3>{1, 1, 1},
                                              {1, 1, 9},
                                              {3, 8, 8},
                                              {3, 8, 21},
                                              {2, 100, 164},
                                              {5, 33, 40}}) {
    index_t const layers = shape[0];
    index_t const experts = shape[1];
    index_t const slots = shape[2];
    CAPTURE(experts);
    CAPTURE(slots);
    auto const loads = skewed_loads(layers, experts, 17);
    std::vector<std::int32_t> expected;
    for (index_t l = 0; l < layers; ++l) {
      auto const n = static_cast<std::size_t>(experts);
      auto const counts = oracle::replicate(row_of(loads, l, experts), slots, oracle::vector(n, 1),
                                            oracle::vector(n, 1000));
      expected.insert(expected.end(), counts.begin(), counts.end());
    }
    auto const check = [&]<class T>(T) {
      replicated<P> const got(as<T>(loads), layers, experts, slots);
      CHECK(got.counts == expected);
      REQUIRE(got.certificates.size() == static_cast<std::size_t>(layers));
      for (certificate const& c : got.certificates) {
        CHECK(c.status == certificate_status::optimal);
        CHECK(c.value == c.lower_bound);
        CHECK(c.work == slots - experts);
      }
    };
    for_each_load_type(check);
    report_hash("replication." + std::to_string(experts) + "x" + std::to_string(slots), expected);
  }
}

PLIMSOLL_TEST_CASE("replication: no other counts have a smaller peak", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 4;
  constexpr index_t slots = 9;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto const loads = skewed_loads(1, experts, 100 + seed);
    double best = std::numeric_limits<double>::max();
    for (int a = 1; a <= 6; ++a) {
      for (int b = 1; a + b <= 7; ++b) {
        for (int c = 1; a + b + c <= 8; ++c) {
          int const copies[] = {a, b, c, static_cast<int>(slots) - a - b - c};
          double peak = 0;
          for (std::size_t e = 0; e < 4; ++e) {
            peak = std::max(peak, static_cast<double>(loads[e]) / copies[e]);
          }
          best = std::min(best, peak);
        }
      }
    }
    replicated<P> const got(as<std::int32_t>(loads), 1, experts, slots);
    CHECK(got.certificates[0].value == doctest::Approx(best).epsilon(1e-12));
  }
}

PLIMSOLL_TEST_CASE("replication: minima and maxima", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 24;
  constexpr index_t slots = 70;
  auto const loads = skewed_loads(1, experts, 5);
  auto const n = static_cast<std::size_t>(experts);

  replicated<P> const uniform(as<std::int32_t>(loads), 1, experts, slots,
                              {.min_copies = 2, .max_copies = 5});
  CHECK(as<std::int64_t>({uniform.counts.begin(), uniform.counts.end()}) ==
        oracle::replicate(loads, slots, oracle::vector(n, 2), oracle::vector(n, 5)));
  CHECK(uniform.certificates[0].work == slots - 2 * experts);

  std::vector<std::int32_t> floors(n);
  std::vector<std::int32_t> caps(n);
  for (std::size_t e = 0; e < n; ++e) {
    floors[e] = 1 + static_cast<std::int32_t>(e % 3);
    caps[e] = floors[e] + static_cast<std::int32_t>(e % 2);
  }
  caps[3] = 40;
  array_in<std::int32_t, P> const floors_in(floors);
  array_in<std::int32_t, P> const caps_in(caps);
  replicated<P> const each(
      as<std::int32_t>(loads), 1, experts, slots,
      {.min_copies_each = floors_in.view1(), .max_copies_each = caps_in.view1()});
  CHECK(
      std::vector<std::int64_t>(each.counts.begin(), each.counts.end()) ==
      oracle::replicate(loads, slots, {floors.begin(), floors.end()}, {caps.begin(), caps.end()}));
  double peak = 0;
  for (std::size_t e = 0; e < n; ++e) {
    peak = std::max(peak, static_cast<double>(loads[e]) / each.counts[e]);
  }
  CHECK(each.certificates[0].value == doctest::Approx(peak).epsilon(1e-12));
  report_hash("replication.limits", uniform.counts, each.counts);
}

/// Counts for the given ranks.
template <class P>
replicated<P> replicated_for(ints const& loads, index_t layers, index_t slots,
                             host_options const& where, replication_options options = {}) {
  options_in<P> const there(where, layers);
  options.where = *there;
  return replicated<P>(loads, layers, static_cast<index_t>(loads.size()) / layers, slots, options);
}

PLIMSOLL_TEST_CASE("replication: fills the slots of live ranks", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 12;
  auto const loads = skewed_loads(2, experts, 8);
  auto const n = static_cast<std::size_t>(experts);
  replicated<P> const got = replicated_for<P>(
      as<std::int32_t>(loads), 2, 30,
      {.ranks = 3, .rank_offsets = {0, 10, 15, 25, 0, 1, 2, 30}, .active = {1, 0, 1}});
  ints expected;
  for (index_t l = 0; l < 2; ++l) {
    auto const row = oracle::replicate(row_of(loads, l, experts), l == 0 ? 20 : 29,
                                       oracle::vector(n, 1), oracle::vector(n, 1000));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  CHECK(got.counts == expected);
  CHECK(got.certificates[0].work == 8);
  CHECK(got.certificates[1].work == 17);
  // Ranks without other options change nothing.
  CHECK(replicated_for<P>(as<std::int32_t>(loads), 2, 30, {.ranks = 7, .nodes = 2}).counts ==
        replicated<P>(as<std::int32_t>(loads), 2, experts, 30).counts);
  report_hash("replication.live", got.counts);
}

PLIMSOLL_TEST_CASE("replication: a node's slots go to its experts", P, PLIMSOLL_POLICIES) {
  // The example of DeepSeek's README, with the node lists of `place_groups`.
  ints const loads{90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
                   20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27};
  host_options const where{
      .ranks = 8,
      .nodes = 2,
      .node_experts = {3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 4, 5, 0, 1, 2},
      .node_offsets = {0, 6, 12, 0, 6, 12}};
  replicated<P> const got = replicated_for<P>(loads, 2, 16, where);
  CHECK(got.counts == ints{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1, 1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1});
  CHECK(got.certificates[0].value == 183.0 / 2);
  CHECK(got.certificates[1].value == 157);
  CHECK(got.certificates[0].work == 4);
  // The slots of nodes without experts stay free; ties go to the first expert in the list.
  replicated<P> const uneven = replicated_for<P>(
      {6, 6, 6}, 1, 9,
      {.ranks = 3, .nodes = 3, .node_experts = {2, 1, 0}, .node_offsets = {0, 2, 2, 3}});
  CHECK(uneven.counts == ints{3, 1, 2});
  CHECK(uneven.certificates[0].value == 6);
  report_hash("replication.lists", got.counts, uneven.counts);
}

PLIMSOLL_TEST_CASE("replication: counts for required anti-affinity", P, PLIMSOLL_POLICIES) {
  constexpr strictness required = strictness::required;
  // At most one copy on each of three ranks; the remaining slots stay free.
  host_options ranks{
      .ranks = 3, .replica_anti_affinity = anti_affinity::rank, .anti_affinity_strength = required};
  replicated<P> const few = replicated_for<P>({100, 1}, 1, 9, ranks);
  CHECK(few.counts == ints{3, 3});
  CHECK(few.certificates[0].value == doctest::Approx(100.0 / 3).epsilon(1e-12));
  CHECK(few.certificates[0].status == certificate_status::optimal);
  CHECK(few.certificates[0].work == 4);
  ranks.anti_affinity_strength = strictness::preferred;
  CHECK(replicated_for<P>({100, 1}, 1, 9, ranks).counts == ints{8, 1});
  ranks.anti_affinity_strength = required;
  ranks.active = {1, 0, 1};
  CHECK(replicated_for<P>({100, 1}, 1, 9, ranks).counts == ints{2, 2});
  // Ranks of 1 and 4 slots: only one expert can have two copies.
  replicated<P> const narrow = replicated_for<P>({5, 9, 8}, 1, 5,
                                                 {.ranks = 2,
                                                  .rank_offsets = {0, 1, 5},
                                                  .replica_anti_affinity = anti_affinity::rank,
                                                  .anti_affinity_strength = required});
  CHECK(narrow.counts == ints{1, 2, 1});
  CHECK(narrow.certificates[0].value == 8);
  host_options nodes{.ranks = 5,
                     .nodes = 2,
                     .replica_anti_affinity = anti_affinity::node,
                     .anti_affinity_strength = required};
  CHECK(replicated_for<P>({100, 1, 1}, 1, 15, nodes).counts == ints{2, 2, 2});
  CHECK(replicated_for<P>({100, 1, 1}, 1, 5, nodes).counts == ints{2, 2, 1});
  // Maxima need not fill the slots then, and minima come first.
  CHECK(replicated_for<P>({100, 1, 1}, 1, 15, nodes, {.max_copies = 1}).counts == ints{1, 1, 1});
  array_in<std::int32_t, P> const floors(ints{1, 2, 1});
  CHECK(replicated_for<P>({100, 1, 1}, 1, 4, nodes, {.min_copies_each = floors.view1()}).counts ==
        ints{1, 2, 1});

  constexpr index_t experts = 12;
  auto const loads = as<std::int32_t>(skewed_loads(2, experts, 12));
  auto const n = static_cast<std::size_t>(experts);
  host_options const dead{.ranks = 8,
                          .nodes = 4,
                          .active = {1, 1, 0, 1, 0, 0, 1, 1},
                          .replica_anti_affinity = anti_affinity::node,
                          .anti_affinity_strength = required};
  replicated<P> const got = replicated_for<P>(loads, 2, 32, dead);
  ints expected;
  for (index_t l = 0; l < 2; ++l) {
    auto const row = oracle::replicate(wide_row(loads, l, experts), oracle::vector(n, 1),
                                       oracle::vector(n, 1000), site_of(dead, 32, l, experts));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  CHECK(got.counts == expected);
  report_hash("replication.apart", got.counts, narrow.counts);
}

PLIMSOLL_TEST_CASE("replication: edges", P, PLIMSOLL_POLICIES) {
  SUBCASE("no layers") {
    replicated<P> const got(std::vector<float>{}, 0, 4, 6);
    CHECK(got.certificates.empty());
  }
  SUBCASE("no load at all: experts are alike") {
    replicated<P> const got(std::vector<float>(4, 0.0f), 1, 4, 6);
    CHECK(got.counts == std::vector<std::int32_t>{2, 2, 1, 1});
    CHECK(got.certificates[0].value == 0);
    CHECK(got.certificates[0].gap() == 0);
  }
  SUBCASE("all on one expert") {
    replicated<P> const got(std::vector<std::int32_t>{0, 0, 700, 0}, 1, 4, 10);
    CHECK(got.counts == std::vector<std::int32_t>{1, 1, 7, 1});
    CHECK(got.certificates[0].value == doctest::Approx(100).epsilon(1e-12));
  }
  SUBCASE("the largest loads allowed") {
    float const big = 0x1.fffffep45f;
    replicated<P> const got(std::vector<float>{big, big, 1.0f}, 1, 3, 5);
    CHECK(got.counts == std::vector<std::int32_t>{2, 2, 1});
    CHECK(got.certificates[0].value == double{big} / 2);
  }
  SUBCASE("loads far below one") {
    replicated<P> const got(std::vector<float>{3e-40f, 1e-40f, 1.1e-40f}, 1, 3, 5);
    CHECK(got.counts == std::vector<std::int32_t>{3, 1, 1});
  }
  SUBCASE("strided views") {
    array_in<std::int32_t, P> const in(std::vector<std::int32_t>{9, -1, 1, -1, 1, -1, 9, -1});
    plimsoll::matrix_ref<std::int32_t const> loads = in.view2(2, 2);
    loads.strides[0] = 4;
    loads.strides[1] = 2;
    array_in<std::int32_t, P> out(std::vector<std::int32_t>(6, -7));
    plimsoll::matrix_ref<std::int32_t> counts = out.view2(2, 2);
    counts.strides[0] = 3;
    plimsoll::replicate(make_policy<P>(), loads, 4, {}, counts);
    CHECK(out.values() == std::vector<std::int32_t>{3, 1, -7, 1, 3, -7});
  }
}

/// Message of the error that `replicate` throws for this input, or "no error".
template <class P, class T>
std::string refusal(std::vector<T> const& loads, index_t layers, index_t experts, index_t slots,
                    replication_options const& options = {}) {
  try {
    replicated<P>(loads, layers, experts, slots, options);
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

PLIMSOLL_TEST_CASE("replication: bad values are named", P, PLIMSOLL_POLICIES) {
  using floats = std::vector<float>;
  CHECK(refusal<P>(ints{1, 2, 3, 4, 5, -6}, 2, 3, 4) ==
        "replicate: loads: expected values from 0 to below 2^47, got -6 in layer 1, expert 2");
  CHECK(refusal<P>(floats{1, std::numeric_limits<float>::quiet_NaN(), 3}, 1, 3, 4) ==
        "replicate: loads: expected values from 0 to below 2^47, got NaN in layer 0, expert 1");
  CHECK(refusal<P>(floats{1, 2, std::numeric_limits<float>::infinity()}, 1, 3, 4) ==
        "replicate: loads: expected values from 0 to below 2^47, got inf in layer 0, expert 2");
  CHECK(refusal<P>(floats{0x1p47f, 2, 3}, 1, 3, 4) ==
        "replicate: loads: expected values from 0 to below 2^47, got 140737488355328 in layer 0, "
        "expert 0");
  CHECK(refusal<P>(floats{0x1p46f, 0x1p46f, 3}, 1, 3, 4) ==
        "replicate: loads: expected a total below 2^47 per layer, got 140737488355331 in layer 0");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 2) ==
        "replicate: slots: expected 3 to 32769 slots (at least one per expert), got 2");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.min_copies = 3}) ==
        "replicate: slots: expected at least 9 on live ranks, for all required copies, got 7 in "
        "layer 0");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.max_copies = 2}) ==
        "replicate: max_copies: expected a total of at least the slots, got 6 in layer 0");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.where = {.load_exponent = 0}}) ==
        "replicate: options.where.load_exponent: expected above 0 and at most 1, got 0");
  CHECK(refusal<P>(ints{1, 2, -3}, 1, 3, 7, {.where = {.load_exponent = 0.5}}) ==
        "replicate: loads: expected values from 0 to below 2^47, got -3 in layer 0, expert 2");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.min_copies = 0}) ==
        "replicate: options.min_copies: expected 1 to 32767 copies, got 0");
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.min_copies = 2, .max_copies = 1}) ==
        "replicate: max_copies: expected at least min_copies for every expert, got 1 in layer 0, "
        "expert 0");
  array_in<std::int32_t, P> const each(ints{1, 0, 1});
  CHECK(refusal<P>(ints{1, 2, 3}, 1, 3, 7, {.min_copies_each = each.view1()}) ==
        "replicate: min_copies: expected at least 1 for every expert, got 0 in layer 0, expert 1");
  CHECK(refusal<P>(ints{1, 2}, 1, 2, 7, {.max_copies_each = each.view1()}) ==
        "replicate: options.max_copies_each: expected 2 experts, got 3");

  auto const there = [](index_t slots, host_options const& where,
                        replication_options const& options = {}) -> std::string {
    try {
      replicated_for<P>({1, 2, 3}, 1, slots, where, options);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(there(6, {.ranks = -1}) ==
        "replicate: options.where.on.ranks: expected 1 to 32767 ranks, got -1");
  CHECK(there(6, {.ranks = 2, .nodes = 3}) ==
        "replicate: options.where.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(there(6, {.ranks = 2, .speeds = {1, 0}}) ==
        "replicate: on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
  auto const floors = [](int copies, int slots) {
    return "replicate: slots: expected at least " + std::to_string(copies) +
           " on live ranks, for all required copies, got " + std::to_string(slots) + " in layer 0";
  };
  CHECK(there(6, {.ranks = 3, .active = {0, 1, 0}}) == floors(3, 2));
  CHECK(there(6, {.ranks = 2, .active = {0, 0}}) == floors(3, 0));
  CHECK(there(6, {.ranks = 2, .active = {0, 1}}, {.min_copies = 2}) == floors(6, 3));
  host_options lists{.ranks = 2, .nodes = 2, .node_experts = {0, 1, 2}, .node_offsets = {0, 1, 3}};
  CHECK(there(6, lists, {.min_copies = 2}) == floors(4, 3) + ", node 1");
  CHECK(there(6, lists, {.max_copies = 2}) ==
        "replicate: max_copies: expected a total of at least the slots, got 2 in layer 0, node 0");
  lists.replica_anti_affinity = anti_affinity::rank;
  lists.anti_affinity_strength = strictness::required;
  std::string const apart =
      "replicate: replica_anti_affinity: expected slots for min_copies of every expert under the "
      "required rule, got ";
  CHECK(there(6, {.ranks = 0,
                  .replica_anti_affinity = anti_affinity::rank,
                  .anti_affinity_strength = strictness::required}) ==
        "replicate: options.where.on.ranks: expected 1 to 32767 ranks, got 0");
  array_in<std::int32_t, P> const twice(ints{2, 1, 1});
  CHECK(there(6, lists, {.min_copies_each = twice.view1()}) == apart + "2 in layer 0, node 0");
  CHECK(there(6, lists, {.max_copies = 2}) == "no error");
  lists.node_experts[1] = 0;
  CHECK(there(6, lists) ==
        "replicate: node_experts: expected every expert once, got another list in layer 0, expert "
        "1");
  CHECK(there(9,
              {.ranks = 2,
               .replica_anti_affinity = anti_affinity::rank,
               .anti_affinity_strength = strictness::required},
              {.min_copies = 3}) == apart + "9 in layer 0");
}

PLIMSOLL_TEST_CASE("replication: int64 counts, and counts that own their memory", P,
                   PLIMSOLL_POLICIES) {
  constexpr index_t layers = 3;
  constexpr index_t experts = 20;
  constexpr index_t slots = 29;
  auto const policy = make_policy<P>();
  auto const loads = as<std::int32_t>(skewed_loads(layers, experts, 4));
  replication_options const options{.max_copies = 3};
  replicated<P> const expected(loads, layers, experts, slots, options);
  array_in<std::int32_t, P> const in(loads);
  auto const view = in.view2(layers, experts);

  array_in<std::int64_t, P> counts(layers * experts, -7);
  auto const certificates =
      plimsoll::replicate(policy, view, slots, options, counts.view2(layers, experts));
  CHECK(counts.values() == as_int64(expected.counts));
  CHECK(same(certificates, expected.certificates));
  // Every other column of a wider array.
  array_in<std::int64_t, P> spread(layers * 2 * experts, -7);
  plimsoll::matrix_ref<std::int64_t> columns = spread.view2(layers, 2 * experts);
  columns.extents[1] = experts;
  columns.strides[1] = 2;
  plimsoll::replicate(policy, view, slots, options, columns);
  auto const written = spread.values();
  CHECK(written[2] == expected.counts[1]);
  CHECK(written[2 * experts] == expected.counts[experts]);
  CHECK(std::count(written.begin(), written.end(), -7) == layers * experts);

  if constexpr (can_be_kept<P>) {
    auto const owned = plimsoll::replicate(policy, view, slots, options);
    CHECK(owned.replica_count.to_host() == expected.counts);
    CHECK(owned.replica_count.extent(0) == layers);
    CHECK(same(owned.certificates, expected.certificates));
    auto const none = plimsoll::replicate(policy, in.view2(0, experts), slots, options);
    CHECK(none.replica_count.extent(1) == experts);
    CHECK(none.certificates.empty());
  }
}

}  // namespace plimsoll_test

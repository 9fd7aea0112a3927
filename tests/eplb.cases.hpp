// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/hash.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using ints = std::vector<std::int32_t>;

template <class P>
struct planned {
  ints map;
  ints counts;
  std::vector<plimsoll::certificate> certificates;

  template <class T>
  planned(std::vector<T> const& loads, index_t layers, index_t experts, index_t ranks,
          index_t slots) {
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> map_out(layers * slots, -7);
    array_in<std::int32_t, P> counts_out(layers * experts, -7);
    certificates = plimsoll::eplb(make_policy<P>(), in.view2(layers, experts), {.ranks = ranks},
                                  map_out.view2(layers, slots), counts_out.view2(layers, experts));
    map = map_out.values();
    counts = counts_out.values();
  }
};

TEST_CASE_TEMPLATE("eplb: replicates, then places, with any shape", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
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
    planned<P> const whole(as<std::int32_t>(loads), layers, experts, ranks, slots);
    CHECK(whole.map == map);
    CHECK(whole.counts == counts);
    planned<P> const real(as<float>(loads), layers, experts, ranks, slots);
    CHECK(real.map == map);
    CHECK(real.counts == counts);
    CHECK(whole.certificates.size() == static_cast<std::size_t>(layers));
    report_hash("eplb." + std::to_string(experts) + "x" + std::to_string(slots), map, counts);
  }
}

TEST_CASE_TEMPLATE("eplb: a known plan", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  // EPLB's plan for these loads has its peak at 232, with two copies of expert 1 on one rank.
  planned<P> const got(ints{600, 560, 120, 120, 20, 10, 10, 10}, 1, 8, 8, 16);
  CHECK(got.counts == ints{5, 5, 1, 1, 1, 1, 1, 1});
  CHECK(got.certificates[0].value == doctest::Approx(232).epsilon(1e-12));
  // The eighth and ninth heaviest replicas weigh 112 each.
  CHECK(got.certificates[0].lower_bound == doctest::Approx(224).epsilon(1e-12));
}

TEST_CASE_TEMPLATE("eplb: bad input is named", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  auto const message = [](ints const& loads, index_t ranks, index_t slots) -> std::string {
    try {
      planned<P>(loads, 1, static_cast<index_t>(loads.size()), ranks, slots);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message({1, 2, 3}, 2, 4) == "no error");
  CHECK(message({1, 2, -3}, 2, 4) ==
        "eplb: loads: expected values from 0 to below 2^47, got -3 in layer 0, expert 2");
  CHECK(message({1, 2, 3}, 0, 4) == "eplb: options.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(message({1, 2, 3}, 32768, 4) ==
        "eplb: options.ranks: expected 1 to 32767 ranks, got 32768");
  CHECK(message({1, 2, 3}, 2, 2) ==
        "eplb: physical_to_logical: expected 3 to 32769 slots (at least one per expert), got 2");
  CHECK(message({1, 2, 3}, 2, 32770) ==
        "eplb: physical_to_logical: expected 3 to 32769 slots (at least one per expert), got "
        "32770");
}

}  // namespace plimsoll_test

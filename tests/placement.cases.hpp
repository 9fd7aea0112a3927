// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/hash.hpp"
#include "support/planning_oracle.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using plimsoll::certificate;
using plimsoll::certificate_status;
using ints = std::vector<std::int32_t>;

template <class P>
struct placed {
  ints map;
  std::vector<certificate> certificates;

  /// `offsets` may be empty: slots spread evenly.
  template <class T>
  placed(std::vector<T> const& loads, ints const& counts, index_t layers, index_t ranks,
         index_t slots, ints const& offsets = {}) {
    auto const experts = layers == 0 ? 1 : static_cast<index_t>(loads.size()) / layers;
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> const counts_in(counts);
    array_in<std::int32_t, P> const offsets_in(offsets);
    array_in<std::int32_t, P> out(layers * slots, -7);
    plimsoll::placement_options options{.ranks = ranks};
    if (!offsets.empty()) {
      options.rank_offsets =
          offsets_in.view2(layers, static_cast<index_t>(offsets.size()) / layers);
    }
    certificates =
        plimsoll::place(make_policy<P>(), in.view2(layers, experts),
                        counts_in.view2(layers, experts), options, out.view2(layers, slots));
    map = out.values();
  }
};

inline ints even_offsets(index_t ranks, index_t slots) {
  ints offsets;
  for (index_t r = 0; r <= ranks; ++r) {
    offsets.push_back(static_cast<std::int32_t>(r * slots / ranks));
  }
  return offsets;
}

/// Load of every rank of one layer, in plain doubles.
inline std::vector<double> loads_of_ranks(std::vector<std::int64_t> const& loads,
                                          ints const& counts, ints const& map,
                                          ints const& offsets) {
  std::vector<double> result;
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    double sum = 0;
    for (auto slot = static_cast<std::size_t>(offsets[r]);
         slot < static_cast<std::size_t>(offsets[r + 1]); ++slot) {
      if (map[slot] >= 0) {
        auto const e = static_cast<std::size_t>(map[slot]);
        sum += static_cast<double>(loads[e]) / counts[e];
      }
    }
    result.push_back(sum);
  }
  return result;
}

TEST_CASE_TEMPLATE("placement: equals the argmin loop, in every type", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
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
      placed<P> const got(as<T>(loads), counts, s.layers, s.ranks, s.slots);
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

TEST_CASE_TEMPLATE("placement: the bound holds against every assignment", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  constexpr index_t ranks = 3;
  constexpr std::size_t experts = 7;
  ints const counts(experts, 1);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    auto const loads = skewed_loads(1, experts, 300 + seed);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (int code = 0; code < 2187; ++code) {
      std::array<std::int64_t, ranks> carried{};
      std::array<int, ranks> used{};
      for (std::size_t e = 0, rest = static_cast<std::size_t>(code); e < experts; ++e, rest /= 3) {
        carried[rest % 3] += loads[e];
        ++used[rest % 3];
      }
      if (std::max({used[0], used[1], used[2]}) <= 3) {
        best = std::min(best, std::max({carried[0], carried[1], carried[2]}));
      }
    }
    placed<P> const got(as<std::int32_t>(loads), counts, 1, ranks, 9);
    certificate const& c = got.certificates[0];
    CHECK(c.lower_bound <= static_cast<double>(best));
    CHECK(c.value >= static_cast<double>(best));
    if (c.status == certificate_status::optimal) {
      CHECK(c.value == static_cast<double>(best));
    }
  }
}

TEST_CASE_TEMPLATE("placement: the bound sees pairs that must share a rank", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  placed<P> const pair(ints{5, 5, 5}, {1, 1, 1}, 1, 2, 4);  // the mean is 7.5
  CHECK(pair.certificates[0].lower_bound == 10);
  CHECK(pair.certificates[0].status == certificate_status::optimal);
  placed<P> const heavy(ints{9, 1, 1}, {1, 1, 1}, 1, 2, 4);
  CHECK(heavy.certificates[0].lower_bound == 9);
  CHECK(heavy.certificates[0].value == 9);
}

TEST_CASE_TEMPLATE("placement: slots per rank and layer", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  constexpr index_t experts = 9;
  auto const loads = skewed_loads(2, experts, 41);
  ints const counts(2 * experts, 1);
  // Rank 1 of layer 0 has no slot; layer 1 has one free slot in the end.
  ints const offsets{0, 4, 4, 10, 0, 3, 9, 10};
  placed<P> const got(as<std::int32_t>(loads), counts, 2, 3, 10, offsets);
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

TEST_CASE_TEMPLATE("placement: one slot per rank keeps the order of making", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  // Further copies are made at loads per copy 80 (expert 2), 40 (2), 30 (1), 26.7 (2).
  placed<P> const got(ints{10, 30, 80, 5}, {1, 2, 4, 1}, 1, 8, 8);
  CHECK(got.map == ints{0, 1, 2, 3, 2, 2, 1, 2});
  CHECK(got.certificates[0].value == 20);
  CHECK(got.certificates[0].status == certificate_status::optimal);
  // Given counts need not be those of `replicate`.
  placed<P> const given(ints{10, 30, 80, 5}, {3, 1, 1, 1}, 1, 6, 6);
  CHECK(given.map == ints{0, 1, 2, 3, 0, 0});
}

TEST_CASE_TEMPLATE("placement: edges", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  SUBCASE("no layers") { CHECK(placed<P>(std::vector<float>{}, {}, 0, 2, 4).certificates.empty()); }
  SUBCASE("no load: ranks fill from the first") {
    placed<P> const got(ints{0, 0, 0, 0}, {1, 1, 1, 1}, 1, 2, 4);
    CHECK(got.map == ints{0, 1, 2, 3});
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("equal loads go round the ranks by id") {
    CHECK(placed<P>(ints{5, 5, 5, 5, 5, 5}, {1, 1, 1, 1, 1, 1}, 1, 3, 6).map ==
          ints{0, 3, 1, 4, 2, 5});
  }
  SUBCASE("one rank takes all, heaviest first") {
    placed<P> const got(ints{1, 7, 3}, {1, 2, 1}, 1, 1, 5);
    CHECK(got.map == ints{1, 1, 2, 0, -1});
    CHECK(got.certificates[0].value == 11);
    CHECK(got.certificates[0].status == certificate_status::optimal);
  }
  SUBCASE("renaming experts renames the placement") {
    ints const loads{90, 11, 47, 23, 60, 5};
    ints const renamed{5, 60, 23, 47, 11, 90};
    ints const once(6, 1);
    ints map = placed<P>(loads, once, 1, 3, 6).map;
    for (std::int32_t& e : map) {
      e = 5 - e;
    }
    CHECK(placed<P>(renamed, once, 1, 3, 6).map == map);
  }
}

TEST_CASE_TEMPLATE("placement: bad values are named", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  auto const message = [](ints const& loads, ints const& counts, index_t ranks, index_t slots,
                          ints const& offsets = {}) -> std::string {
    try {
      placed<P>(loads, counts, 1, ranks, slots, offsets);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message({1, -2}, {1, 1}, 2, 4) ==
        "place: loads: expected values from 0 to below 2^47, got -2 in layer 0, expert 1");
  std::string const copies =
      "place: replica_count: expected 1 to 32767 copies of every expert, got ";
  CHECK(message({1, 2}, {1, 0}, 2, 4) == copies + "0 in layer 0, expert 1");
  CHECK(message({1, 2}, {32768, 1}, 2, 40000) == copies + "32768 in layer 0, expert 0");
  CHECK(message({1, 2}, {32767, 1}, 2, 40000) == "no error");
  CHECK(message({1, 2}, {2, 3}, 2, 4) ==
        "place: replica_count: expected a total of at most the slots, got 5 in layer 0");
  CHECK(message({1, 2}, {1, 1}, 0, 4) == "place: options.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(message({1, 2}, {1, 1}, 2, 1) ==
        "place: physical_to_logical: expected 2 to 2147483647 slots (at least one per expert), "
        "got 1");
  CHECK(message({1, 2}, {1, 1}, 2, 4, {0, 4}) ==
        "place: options.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  std::string const rises =
      "place: rank_offsets: expected offsets that rise from 0 to the number of slots, got ";
  CHECK(message({1, 2}, {1, 1}, 2, 4, {1, 2, 4}) == rises + "2 in layer 0, rank 0");
  CHECK(message({1, 2}, {1, 1}, 2, 4, {0, 2, 3}) == rises + "3 in layer 0, rank 1");
  CHECK(message({1, 2}, {1, 1}, 3, 4, {0, 3, 2, 4}) == rises + "2 in layer 0, rank 1");
}

}  // namespace plimsoll_test

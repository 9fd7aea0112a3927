// SPDX-License-Identifier: Apache-2.0
// Tests of gem under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/systems/gem.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/gem.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/policies.hpp"
#include "support/print.hpp"
#include "support/refusal.hpp"
#include "support/search_case.hpp"

namespace plimsoll_test {

using namespace gem_support;

PLIMSOLL_TEST_CASE("gem: two layers by hand, on a rank that is slower", P, PLIMSOLL_POLICIES) {
  gem_case c{.search = {.steps = 3, .layers = 2, .experts = 4, .slots = 4}};
  c.search.loads = {90, 60, 40, 10, 20, 80, 70, 30,   // step 0: layer 0, layer 1
                    10, 80, 90, 20, 90, 10, 10, 90,   // step 1
                    70, 60, 60, 10, 40, 60, 40, 60};  // step 2
  c.search.options = {.on = {.ranks = 2}};
  // 3 us more for each tile of 32 tokens; rank 0 takes 12 % longer.
  c.tokens = {32, 64, 96, 128, 160, 192, 224};
  c.latency = {23, 26, 29, 32, 35, 38, 41};
  c.dense_until = 224;
  c.speeds = {1 / 1.12, 1};
  gem_outcome const got = gem_of<P>(c);
  // Rank 0 gets experts 2 and 3 of layer 0, hence 50, 110 and 70 tokens: 29.12 + 35.84 + 32.48 us.
  // Rank 1 gets 150, 90 and 130: 35 + 29 + 35. The later one counts in every step.
  CHECK(got.certificates[0].value == doctest::Approx(35 + 35.84 + 35));
  // Rank 0 of layer 1 gets experts 0 and 2: 90, 100 and 80 tokens, and rank 1 110, 100 and 120.
  CHECK(got.certificates[1].value == doctest::Approx(32.48 + 35.84 + 32.48));
  for (auto const& proof : got.certificates) {
    CHECK(proof.lower_bound == doctest::Approx(3 * 32.48).epsilon(1e-4));
  }
  CHECK(got.counts == ints(8, 1));
}

inline void check_gem(gem_fn gem) {
  int replicated = 0;
  ints all;
  for (std::uint64_t seed = 0; seed < cases_of(80); ++seed) {
    CAPTURE(seed);
    gem_case const c = random_gem(seed);
    gem_outcome const got = gem(c);
    gem_outcome const expected = composed(c);
    CHECK(got.map == expected.map);
    CHECK(got.counts == expected.counts);
    CHECK(same(got.certificates, expected.certificates));
    replicated += *std::max_element(got.counts.begin(), got.counts.end()) > 1;
    if (seed < 20) {
      all.insert(all.end(), got.map.begin(), got.map.end());
      all.insert(all.end(), got.counts.begin(), got.counts.end());
    }
  }
  CHECK(replicated > static_cast<int>(cases_of(12)));
  report_hash("gem.random", all);

  gem_case none{.search = {.layers = 0, .experts = 3, .slots = 4}, .tokens = {0, 9}};
  none.latency = {1, 2};
  CHECK(gem(none).certificates.empty());
  none.spare = spare_slot_use::hold_replicas;
  CHECK(gem(none).certificates.empty());
}

PLIMSOLL_TEST_CASE("gem: equals swap_search with curves, and with replicas in spare slots", P,
                   PLIMSOLL_POLICIES) {
  check_gem(gem_of<P>);
}

PLIMSOLL_TEST_CASE("gem: int64 outputs and a returned placement equal int32 outputs", P,
                   PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    gem_case const c = random_gem(seed);
    gem_outcome const expected = gem_of<P>(c);
    auto const check = [&](gem_outcome const& got) {
      CHECK(got.map == expected.map);
      CHECK(got.counts == expected.counts);
      CHECK(same(got.certificates, expected.certificates));
    };
    check(gem_of<P, std::int64_t, std::int64_t>(c));
    check(gem_of<P, std::int64_t>(c));
    if constexpr (can_be_kept<P>) {
      check(returned_gem<P>(c));
    }
  }
}

/// A trace in which some experts are used in bursts.
inline gem_case bursty_gem() {
  gem_case c{.search = {.steps = 24, .layers = 2, .experts = 12, .slots = 14}};
  c.search.options.on.ranks = 4;
  c.search.options.restarts = 3;
  generator random(12);
  for (index_t i = 0; i < c.search.steps * 2 * 12; ++i) {
    double const u = random.unit();
    c.search.loads.push_back(std::floor(20 / (0.05 + u * u)));
  }
  c.tokens = {64, 128, 192, 256, 512, 1024};
  c.latency = {23, 26, 29, 32, 44, 68};
  c.dense_until = 256;
  c.speeds = {1, 1, 1 / 1.12, 1};
  return c;
}

inline void check_lengths(lengths_fn latencies) {
  gem_case c = bursty_gem();
  auto const check = [&](index_t planned_until, std::vector<index_t> const& lengths) {
    reals const got = latencies(c, planned_until, lengths);
    reals const expected = length_latencies_by_hand(c, planned_until, lengths);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-12));
    }
    return got;
  };
  reals const first = check(16, {1, 2, 4, 8, 16});
  reals const other = check(23, {23, 1, 1});
  c.spare = spare_slot_use::hold_replicas;
  c.search.offsets = {0, 2, 6, 10, 14, 0, 4, 8, 11, 13};
  c.search.active = {1, 1, 1, 1};
  c.search.options.objective = latency_objective::quantile;
  reals const copies = check(10, {10, 3});
  CHECK(check(10, {}).empty());
  report_hash("gem.lengths", first, other, copies);
}

PLIMSOLL_TEST_CASE("gem: unseen steps after traces of several lengths", P, PLIMSOLL_POLICIES) {
  check_lengths(length_latencies_of<P>);
}

inline void check_gem_refusals(gem_fn gem, lengths_fn latencies) {
  auto const plan = [&](auto change, std::string const& expected) {
    gem_case c = bursty_gem();
    change(c);
    check_message(refusal_of([&] { gem(c); }), expected);
  };
  plan([](gem_case&) {}, "no error");
  plan([](gem_case& c) { c.latency[3] = 28; },
       "gem: curves.latency: expected numbers from 0 that do not fall from sample to sample, got "
       "28, rank 0, sample 3");
  plan([](gem_case& c) { c.tokens[1] = 64; },
       "gem: curves.tokens: expected rising numbers of tokens, from 0 to below 2^47, got 64, "
       "sample 1");
  plan([](gem_case& c) { c.speeds[2] = 0; },
       "gem: curves.speeds: expected values from 2^-64 to 2^64, got 0, rank 2");
  plan(
      [](gem_case& c) {
        c.speeds = {0x1p20, 0x1p20, 1, 0x1p20};
      },
      "gem: curves.speeds: expected speeds of live ranks from 2^-16 of the fastest to the "
      "fastest, got 1 for rank 2, where rank 0 is the fastest");
  plan([](gem_case& c) { c.speeds.pop_back(); }, "gem: curves.speeds: expected 4 ranks, got 3");
  plan([](gem_case& c) { c.search.options.on.ranks = 0; },
       "gem: options.on.ranks: expected 1 to 32767 ranks, got 0");
  plan([](gem_case& c) { c.search.loads[12 * 2 * 3 + 12 + 4] = -1; },
       "gem: loads: expected values from 0 to below 2^47, got -1 in layer 1, expert 4, step 3");
  plan(
      [](gem_case& c) {
        c.search.loads[5] = -1;
        c.spare = spare_slot_use::hold_replicas;
      },
      "gem: loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 5, step 0");
  plan(
      [](gem_case& c) {
        c.search.active = {0, 0, 0, 0};
      },
      "gem: on.active: expected at least 1 live rank, got 0");

  auto const judge = [&](auto change, std::string const& expected, index_t planned_until = 20,
                         std::vector<index_t> const& lengths = {4, 8}) {
    gem_case c = bursty_gem();
    change(c);
    check_message(refusal_of([&] { latencies(c, planned_until, lengths); }),
                  expected == "no error" ? expected : "trace_length_latencies: " + expected);
  };
  auto const nothing = [](gem_case&) {};
  judge(nothing, "no error");
  judge(nothing, "planned_until: expected 1 to 23 steps (one must be left), got 24", 24);
  judge(nothing, "planned_until: expected 1 to 23 steps (one must be left), got 0", 0);
  judge(nothing, "lengths: expected 1 to 20 steps, got 21", 20, {1, 21});
  judge(nothing, "lengths: expected 1 to 20 steps, got 0", 20, {0});
  judge([](gem_case& c) { c.search.loads[12 * 2 * 15 + 3] = -1; },
        "loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 3, step 3", 20,
        {8});
  judge([](gem_case& c) { c.search.loads[12 * 2 * 23 + 3] = -1; },
        "loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 3, step 3");
  judge([](gem_case& c) { c.search.slots = 11; },
        "slots: expected 12 to 65535 slots (at least one per expert), got 11");
  judge([](gem_case& c) { c.latency[3] = 28; },
        "curves.latency: expected numbers from 0 that do not fall from sample to sample, got 28, "
        "rank 0, sample 3");
}

PLIMSOLL_TEST_CASE("gem: bad input is named", P, PLIMSOLL_POLICIES) {
  check_gem_refusals(gem_of<P>, length_latencies_of<P>);
}

}  // namespace plimsoll_test

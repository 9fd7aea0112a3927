// SPDX-License-Identifier: Apache-2.0
// Tests of latency under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/latency.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/replay_case.hpp"

namespace plimsoll_test {

using namespace latency_support;

PLIMSOLL_TEST_CASE("latency: a curve by hand", P, PLIMSOLL_POLICIES) {
  auto const say = [](curve_case const& c, reals const& tokens) {
    curves_in<P> const in(c);
    return in.priced(1, [&](auto cost) { return asked<P>(cost, 1, tokens); });
  };
  reals const tokens{0, 0.25, 4, 4.5, 8, 9, 16, 20};
  curve_case c{.tokens = {4, 8, 16}, .latency = {3, 5, 9}};
  check_same(say(c, tokens), {0, 3, 3, 3.5, 5, 5.5, 9, 11});
  c.dense_until = 8;
  check_same(say(c, tokens), {0, 3, 3, 5, 5, 5.5, 9, 11});
  c.dense_until = 99;
  check_same(say(c, tokens), {0, 3, 3, 5, 5, 9, 9, 11});
  c.speeds = {0.5};
  check_same(say(c, tokens), {0, 6, 6, 10, 10, 18, 18, 22});
  // Without its limit, the line would be rounded to more than the sample at its end.
  c = {.tokens = {1, 4, 9},
       .latency = {0.05612329752074041, 0.9261334526973802, 0.9261334526973802}};
  check_same(say(c, {4, 5}), {0.9261334526973802, 0.9261334526973802});
  // With a sample at 0 tokens, for an idle rank.
  c = {.tokens = {0, 4, 8}, .latency = {1, 3, 5}};
  check_same(say(c, tokens), {1, 1.5, 3, 3.5, 5, 5.5, 9, 11});
  c.dense_until = 4;
  check_same(say(c, tokens), {1, 3, 3, 3.5, 5, 5.5, 9, 11});
}

inline void check_curve(curve_case const& c, index_t ranks, reals const& tokens, reals const& got) {
  std::vector<long double> expected;
  for (double const n : tokens) {
    for (index_t r = 0; r < ranks; ++r) {
      expected.push_back(c.of(r, n));
    }
  }
  check_close(got, expected);
  bool rising = true;
  for (index_t i = ranks; i < std::ssize(got); ++i) {
    rising = rising && (tokens[at(i / ranks - 1)] > tokens[at(i / ranks)] ||
                        got[at(i)] >= got[at(i - ranks)]);
  }
  CHECK(rising);
}

PLIMSOLL_TEST_CASE("latency: curves and tables equal the definition", P, PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 0; seed < cases_of(48); ++seed) {
    CAPTURE(seed);
    index_t const ranks = seed % 3 == 0 ? 1 : static_cast<index_t>(seed % 5) + 1;
    curve_case const c = random_curve(seed, ranks);
    reals tokens;
    for (std::int64_t n = 0; n <= c.tokens.back() + 20; ++n) {
      tokens.push_back(static_cast<double>(n));
      tokens.push_back(static_cast<double>(n) + (n % 3 == 0 ? 0x1p-20 : 0.5));
    }
    curves_in<P> const in(c);
    reals const got = asked<P>(in.view(), ranks, tokens);
    check_curve(c, ranks, tokens, got);
    check_same(in.priced(ranks, [&](auto cost) { return asked<P>(cost, ranks, tokens); }), got);
    all.insert(all.end(), got.begin(), got.end());
  }
  report_hash("latency.curves", all);
}

PLIMSOLL_TEST_CASE("latency: samples in any layout", P, PLIMSOLL_POLICIES) {
  reals const tokens{0, 1, 2, 3, 4, 7, 10, 11, 30};
  curve_case const c{
      .tokens = {2, 4, 10}, .latency = {1, 2, 3, 1, 4, 9}, .dense_until = 4, .speeds = {1, 0.3}};
  reals const expected = asked<P>(curves_in<P>(c).view(), 2, tokens);
  array_in<std::int64_t, P> const samples(longs{2, -1, 4, -1, 10});
  array_in<double, P> const latency(reals{1, 1, 2, 4, 3, 9});
  array_in<double, P> const speeds(reals{1, -1, -1, 0.3});
  latency_curves spread{samples.view1(), latency.view2(2, 3), 4, speeds.view1()};
  spread.tokens.extents[0] = 3;
  spread.tokens.strides[0] = 2;
  spread.latency.strides[0] = 1;
  spread.latency.strides[1] = 2;
  spread.speeds.extents[0] = 2;
  spread.speeds.strides[0] = 3;
  check_same(asked<P>(spread, 2, tokens), expected);
  if constexpr (can_be_kept<P>) {
    plimsoll::latency_table const table(make_policy<P>(), spread, 2);
    check_same(asked<P>(table.cost(), 2, tokens), expected);
  }
}

/// Maximum over the ranks of every row.
template <class T>
std::vector<T> last_ranks(std::vector<T> const& of_ranks, index_t ranks) {
  std::vector<T> result;
  for (index_t i = 0; i < std::ssize(of_ranks); i += ranks) {
    result.push_back(*std::max_element(of_ranks.begin() + i, of_ranks.begin() + i + ranks));
  }
  return result;
}

/// Latencies of ranks of a case; checks that `step_latencies` returns their maximum.
template <class P, class Loads, class Cost>
reals both(replay_case const& c, Loads const& loads, Cost const& cost) {
  replay_in<P> const in(c);
  array_in<double, P> of_ranks(c.steps * c.layers * c.ranks, -7.0);
  array_in<double, P> of_steps(c.steps * c.layers, -7.0);
  plimsoll::rank_latencies(make_policy<P>(), loads, in.placement(), cost,
                           of_ranks.view3(c.steps, c.layers, c.ranks));
  plimsoll::step_latencies(make_policy<P>(), loads, in.placement(), cost,
                           of_steps.view2(c.steps, c.layers));
  reals const result = of_ranks.values();
  check_same(of_steps.values(), last_ranks(result, c.ranks));
  return result;
}

template <class P, class T, class Cost>
reals both_of(replay_case const& c, std::vector<T> const& loads, Cost const& cost) {
  array_in<T, P> const in(loads);
  return both<P>(c, in.view3(c.steps, c.layers, c.experts), cost);
}

PLIMSOLL_TEST_CASE("latency: recorded steps equal the definition, in every type", P,
                   PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 0; seed < cases_of(64); ++seed) {
    CAPTURE(seed);
    replay_case const c = random_trace(seed);
    curve_case const curve = random_curve(seed + 1000, c.ranks, 100);
    curves_in<P> const curves(curve);
    // Sums of rounded shares that would be whole without rounding count as whole.
    auto const expected = defined(c, [&](index_t r, double n) { return curve.of(r, n - 1e-9); });
    reals first;
    curves.priced(c.ranks, [&](auto cost) {
      for_each_load_type([&]<class T>(T) {
        reals const got = both_of<P>(c, c.loads_as<T>(), cost);
        if (first.empty()) {
          check_close(got, expected);
          first = got;
        }
        check_same(got, first);
      });
      return 0;
    });
    check_same(both_of<P>(c, c.loads_as<double>(), curves.view()), first);
    all.insert(all.end(), first.begin(), first.end());
  }
  report_hash("latency.steps", all);
}

PLIMSOLL_TEST_CASE("latency: tokens over speed", P, PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 100; seed < 100 + cases_of(24); ++seed) {
    CAPTURE(seed);
    replay_case const c = random_trace(seed);
    reals const given = random_curve(2 * seed, c.ranks).speeds;
    array_in<double, P> const speeds(given);
    auto const check = [&](plimsoll::token_cost const& cost, reals const& expected_speeds) {
      reals const got = both_of<P>(c, c.loads_as<double>(), cost);
      std::vector<long double> expected =
          defined(c, [&](index_t r, double n) { return n / expected_speeds[at(r)]; });
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i] == doctest::Approx(static_cast<double>(expected[i])).epsilon(1e-9));
      }
      all.insert(all.end(), got.begin(), got.end());
    };
    check({}, reals(at(c.ranks), 1));
    check({speeds.view1()}, given);
  }
  report_hash("latency.tokens", all);
}

/// A load that is a product, which a compiler would contract with the sum to which it is added.
struct product_load {
  index_t layers;
  index_t experts;
  PLIMSOLL_HD double operator()(index_t step, index_t layer, index_t e) const {
    return static_cast<double>(
               mix(static_cast<std::uint64_t>((step * layers + layer) * experts + e)) >> 54) *
           0.1;
  }
};

PLIMSOLL_TEST_CASE("latency: loads and results in any layout", P, PLIMSOLL_POLICIES) {
  replay_case c = random_trace(17);
  curves_in<P> const curves(random_curve(6, c.ranks));
  c.steps = 10;
  product_load const load{c.layers, c.experts};
  reals stored;
  for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
    stored.push_back(load(i / (c.layers * c.experts), i / c.experts % c.layers, i % c.experts));
  }
  curves.priced(c.ranks, [&](auto cost) {
    reals const got = both<P>(c, plimsoll::generate(load, c.steps, c.layers, c.experts), cost);
    check_same(both_of<P>(c, stored, cost), got);
    report_hash("latency.generated", got);

    // Every second step, into column-major arrays with other numbers between their elements.
    c.steps = 5;
    array_in<double, P> const in(stored);
    auto half = in.view3(c.steps, c.layers, c.experts);
    half.strides[0] *= 2;
    reals const expected = both<P>(c, half, cost);
    index_t const cells = c.steps * c.layers * c.ranks;
    array_in<double, P> out(2 * cells, -7.0);
    auto ranks_first = out.view3(c.steps, c.layers, c.ranks);
    ranks_first.strides[0] = 2;
    ranks_first.strides[1] = 2 * c.steps;
    ranks_first.strides[2] = 2 * c.steps * c.layers;
    replay_in<P> const placed(c);
    plimsoll::rank_latencies(make_policy<P>(), half, placed.placement(), cost, ranks_first);
    reals const spread = out.values();
    reals gathered;
    for (index_t i = 0; i < cells; ++i) {
      index_t const step = i / (c.layers * c.ranks);
      index_t const layer = i / c.ranks % c.layers;
      index_t const place = 2 * ((i % c.ranks * c.layers + layer) * c.steps + step);
      gathered.push_back(spread[at(place)]);
      CHECK(spread[at(place + 1)] == -7);
    }
    check_same(gathered, expected);
    return 0;
  });
}

PLIMSOLL_TEST_CASE("latency: edges", P, PLIMSOLL_POLICIES) {
  curve_case const idle{.tokens = {0, 8}, .latency = {2, 10}};
  auto const say = [](replay_case const& c, curve_case const& curve) {
    curves_in<P> const curves(curve);
    return curves.priced(c.ranks,
                         [&](auto cost) { return both_of<P>(c, c.loads_as<double>(), cost); });
  };
  SUBCASE("by hand: a rank without slots, replicas, slots of no rank, a step without load") {
    replay_case c{.steps = 3, .layers = 1, .experts = 2, .slots = 5, .ranks = 3};
    c.loads = {6, 4, 0, 0, 1, 3};
    c.map = {0, 1, 1, -1, -1};
    c.counts = {1, 2};
    c.offsets = {0, 2, 2, 4};
    check_same(say(c, {.tokens = {2, 4}, .latency = {1, 5}}), {13, 0, 1, 0, 0, 0, 3, 0, 1});
    check_same(say(c, idle), {10, 2, 4, 2, 2, 2, 5, 2, 4});
  }
  SUBCASE("no steps, no layers") {
    replay_case c{.steps = 0, .layers = 2, .experts = 1, .slots = 1, .ranks = 1};
    c.map = {0, 0};
    c.counts = {1, 1};
    check_same(say(c, idle), {});
    c.steps = 9;
    c.layers = 0;
    check_same(say(c, idle), {});
  }
  SUBCASE("more ranks than slots") {
    replay_case c{.steps = 9, .experts = 1, .slots = 1, .ranks = 64};
    c.loads.assign(9, 8);
    c.map = {0};
    c.counts = {1};
    reals const got = say(c, idle);
    CHECK(std::count(got.begin(), got.end(), 10.0) == 9);
    CHECK(std::count(got.begin(), got.end(), 2.0) == 9 * 63);
  }
  SUBCASE("more experts than shared memory holds") {
    replay_case c{.steps = 9, .experts = 9000, .slots = 9000, .ranks = 2000};
    c.loads = random_integers(3, 9 * 9000, 0, 99);
    c.map.resize(9000);
    std::iota(c.map.rbegin(), c.map.rend(), 0);
    c.counts.assign(9000, 1);
    reals const got = say(c, idle);
    check_close(got, defined(c, [&](index_t, double n) { return 2 + n; }));
    report_hash("latency.large", got);
  }
}

/// A cost that is invalid for one rank from a number of tokens on.
struct broken_cost {
  index_t rank;
  double from;
  double value;
  PLIMSOLL_HD double operator()(index_t r, double tokens) const {
    return r == rank && tokens >= from ? value : tokens;
  }
};

/// Two layers of three experts in nine equal steps.
inline replay_case plain_trace() {
  replay_case c{.steps = 9, .layers = 2, .experts = 3, .slots = 4, .ranks = 2};
  c.loads.assign(54, 5);
  c.map = {0, 1, 2, -1, 0, 1, 2, 0};
  c.counts = {1, 1, 1, 2, 1, 1};
  return c;
}

PLIMSOLL_TEST_CASE("latency: a bad value is named", P, PLIMSOLL_POLICIES) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double limit = 0x1p47;
  replay_case const c = plain_trace();
  broken_cost const fine{-1, 0, 0};
  auto const refuse = [&](replay_case const& given, reals const& loads, broken_cost const& cost) {
    return refusal_of([&] { both_of<P>(given, loads, cost); });
  };
  // Sets the load of an expert in a step and layer.
  auto const with = [&](reals loads, index_t step, index_t layer, index_t e, double value) {
    loads[at((step * 2 + layer) * 3 + e)] = value;
    return loads;
  };
  reals const loads = c.loads_as<double>();
  check_message(refuse(c, loads, fine), "no error");
  SUBCASE("loads") {
    std::string const range = "rank_latencies: loads: expected values from 0 to below 2^47, got ";
    check_message(refuse(c, with(loads, 7, 1, 2, -1), fine),
                  range + "-1 in layer 1, expert 2, step 7");
    check_message(refuse(c, with(loads, 8, 0, 1, nan), fine),
                  range + "NaN in layer 0, expert 1, step 8");
    check_message(refuse(c, with(loads, 0, 0, 0, limit), fine),
                  range + "140737488355328 in layer 0, expert 0, step 0");
    check_message(refuse(c, with(with(loads, 3, 1, 0, -1), 2, 1, 1, -2), fine),
                  range + "-2 in layer 1, expert 1, step 2");
    check_message(refuse(c, with(with(loads, 8, 1, 0, limit / 2), 8, 1, 1, limit / 2), fine),
                  "rank_latencies: loads: expected a total below 2^47 per layer, got "
                  "140737488355333 in layer 1, step 8");
  }
  SUBCASE("costs") {
    std::string const range =
        "rank_latencies: cost: expected numbers from 0 to below 2^960 that do not fall as tokens "
        "rise, got ";
    reals const busy = with(loads, 8, 0, 2, 30);
    check_message(refuse(c, busy, {1, 20, -1}), range + "-1 in layer 0, rank 1, step 8");
    check_message(refuse(c, busy, {1, 20, nan}), range + "NaN in layer 0, rank 1, step 8");
    check_message(refuse(c, busy, {1, 20, -nan}), range + "NaN in layer 0, rank 1, step 8");
    check_message(refuse(c, busy, {1, 20, std::numeric_limits<double>::infinity()}),
                  range + "inf in layer 0, rank 1, step 8");
    check_message(refuse(c, busy, {1, 20, 0x1p960}).substr(0, range.size() + 6), range + "9.7453");
    check_message(refuse(c, busy, {1, 20, 0x1p959}), "no error");
    check_message(refuse(c, busy, {0, 0, -0.5}), range + "-0.5 in layer 0, rank 0, step 0");
  }
  SUBCASE("placements") {
    auto const broken = [&](auto change) {
      replay_case changed = c;
      change(changed);
      return refuse(changed, loads, fine);
    };
    check_message(broken([](replay_case& b) { b.map[2] = -1; }),
                  "rank_latencies: physical_to_logical: expected every expert on a live rank, got "
                  "none in layer 0, expert 2");
    check_message(broken([](replay_case& b) { b.map[7] = 3; }),
                  "rank_latencies: physical_to_logical: expected -1 or an expert of the layer, got "
                  "3 in layer 1, rank 1, slot 3");
    check_message(broken([](replay_case& b) { b.counts[3] = 0; }),
                  "rank_latencies: replica_count: expected 2 copies, as in physical_to_logical, "
                  "got 0 in layer 1, expert 0");
    check_message(broken([](replay_case& b) { b.offsets = {0, 2, 4, 0, 3, 2}; }),
                  "rank_latencies: rank_offsets: expected offsets that rise from 0 to at most the "
                  "number of slots, got 2 in layer 1, rank 1");
    check_message(broken([](replay_case& b) { b.offsets = {0, 2, 3, 0, 2, 3}; }),
                  "rank_latencies: physical_to_logical: expected -1 in slots that belong to no "
                  "rank, got 0 in layer 1, slot 3");
  }
}

PLIMSOLL_TEST_CASE("latency: a bad curve is named", P, PLIMSOLL_PREPARED_POLICIES) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  auto const check = [](curve_case const& c, std::string const& expected, index_t ranks = 2) {
    std::string const got = refusal_of([&] {
      curves_in<P> const in(c);
      static_cast<void>(plimsoll::latency_table(make_policy<P>(), in.view(), ranks));
    });
    check_message(got, expected == "no error" ? expected : "latency_table: " + expected);
  };
  check({{1, 2}, {1, 1}}, "no error");
  check({{0, 1}, {0, 0}}, "no error");
  check({{1, 2}, {1, 2, 3, 4}, 2, {0x1p-64, 0x1p-48}}, "no error");
  check({{1, 2}, {1, 2, 3, 4}, 2, {0x1p48, 0x1p64}}, "no error");
  check({{1, 2}, {1, 2, 3, 4}, 2, {0.5, 0x1p17}},
        "curves.speeds: expected speeds of live ranks from 2^-16 of the fastest to the fastest, "
        "got 0.5 for rank 0, where rank 1 is the fastest");
  check({{1, 2}, {1, 2}}, "ranks: expected 1 to 32767 ranks, got 0", 0);
  check({{1, 2}, {1, 2}}, "ranks: expected 1 to 32767 ranks, got 32768", 32768);
  check({{64}, {1, 2}}, "curves.tokens: expected 2 to 16777216 samples, got 1");
  check({{1, 2}, {1, 2, 3, 4}}, "curves.latency: expected 3 ranks, or 1 for all, got 2", 3);
  check({{1, 2}, {1, 2, 3, 4, 5, 6}}, "curves.latency: expected 1 ranks, or 1 for all, got 3", 1);
  check({{1, 2}, {1, 2}, 0, {1, 1, 1}}, "curves.speeds: expected 2 ranks, got 3");

  std::string const rising =
      "curves.tokens: expected rising numbers of tokens, from 0 to below 2^47, got ";
  check({{-1, 2}, {1, 2}}, rising + "-1, sample 0");
  check({{1, 5, 5}, {1, 2, 3}}, rising + "5, sample 2");
  check({{7, 3}, {1, 2}}, rising + "3, sample 1");
  check({{1, plimsoll::load_limit}, {1, 2}}, rising + "140737488355328, sample 1");
  check({{1, plimsoll::load_limit - 1}, {1, 2}}, "no error");

  std::string const dense =
      "curves.dense_until: expected 0, a sample, or at least the last one, got ";
  check({{4, 8, 12}, {1, 2, 3}, 6}, dense + "6");
  check({{4, 8, 12}, {1, 2, 3}, 3}, dense + "3");
  check({{4, 8, 12}, {1, 2, 3}, -4}, dense + "-4");
  for (std::int64_t const fine : {0, 4, 8, 12, 13}) {
    check({{4, 8, 12}, {1, 2, 3}, fine}, "no error");
  }

  std::string const number =
      "curves.latency: expected numbers from 0 that do not fall from sample to sample, got ";
  check({{4, 8}, {-1, 2}}, number + "-1, rank 0, sample 0");
  check({{4, 8}, {1, nan}}, number + "NaN, rank 0, sample 1");
  check({{4, 8}, {1, infinite}}, number + "inf, rank 0, sample 1");
  check({{4, 8}, {infinite, infinite}}, number + "inf, rank 0, sample 0");
  check({{4, 8, 9}, {1, 2, 3, 4, 5, 4.5}}, number + "4.5, rank 1, sample 2");
  check({{4, 8}, {1, 2, 3, 2}}, number + "2, rank 1, sample 1");

  std::string const speed = "curves.speeds: expected values from 2^-64 to 2^64, got ";
  check({{4, 8}, {1, 2}, 0, {0, 1}}, speed + "0, rank 0");
  check({{4, 8}, {1, 2}, 0, {1, -1}}, speed + "-1, rank 1");
  check({{4, 8}, {1, 2}, 0, {1, nan}}, speed + "NaN, rank 1");
  check({{4, 8}, {1, 2}, 0, {1, 0x1p65}}, speed + "36893488147419103232, rank 1");
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of metrics under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/metrics.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using namespace metrics_support;

PLIMSOLL_TEST_CASE("metrics: exact small cases", P, PLIMSOLL_POLICIES) {
  auto const got =
      measured<P>(std::vector<std::int32_t>{1, 3, 2, 2, 4, 4, 4, 4, 0, 0, 0, 0, 8, 0, 0, 0}, 4, 4);
  CHECK(members({got[0]}) == std::vector<double>{2, 3, 2.0 / 3, 1.5, std::sqrt(0.5) / 2});
  CHECK(members({got[1]}) == std::vector<double>{4, 4, 1, 1, 0});
  CHECK(members({got[2]}) == std::vector<double>{0, 0, 1, 1, 0});  // a row without load is balanced
  CHECK(members({got[3]}) == std::vector<double>{2, 8, 0.25, 4, std::sqrt(12.0) / 2});

  balance_summary const all = summarized<P>(got);
  CHECK(all.mean_of_ratios == doctest::Approx((2.0 / 3 + 1 + 1 + 0.25) / 4));
  CHECK(all.ratio_of_sums == doctest::Approx(8.0 / 15));
  CHECK(all.worst == 0.25);
  CHECK(all.worst_row == 3);
  balance_summary const idle = summarized<P>({got[2], got[2]});
  CHECK(idle.mean_of_ratios == 1);
  CHECK(idle.ratio_of_sums == 1);
  CHECK(idle.worst_row == 0);
}

PLIMSOLL_TEST_CASE("metrics: equals the definitions, in every type", P, PLIMSOLL_POLICIES) {
  for (index_t const columns : {1, 2, 31, 32, 33, 64, 300}) {
    CAPTURE(columns);
    constexpr index_t rows = 5;
    auto const loads = skewed_loads(rows, columns, 3);
    auto const check = [&]<class T>(T) {
      auto const got = measured<P>(as<T>(loads), rows, columns);
      for (index_t r = 0; r < rows; ++r) {
        double mean = 0;
        double peak = 0;
        double square = 0;
        for (std::int64_t const load : row_of(loads, r, columns)) {
          mean += static_cast<double>(load) / static_cast<double>(columns);
          peak = std::fmax(peak, static_cast<double>(load));
          square += static_cast<double>(load * load) / static_cast<double>(columns);
        }
        balance_stats const& b = got[static_cast<std::size_t>(r)];
        CHECK(b.mean == doctest::Approx(mean).epsilon(1e-12));
        CHECK(b.peak == peak);
        if (peak > 0) {
          CHECK(b.balancedness == doctest::Approx(mean / peak).epsilon(1e-12));
          CHECK(b.imbalance == doctest::Approx(peak / mean).epsilon(1e-12));
          CHECK(b.peak_to_mean() == b.imbalance);
          double const variance = std::fmax(square - mean * mean, 0.0);
          CHECK(std::fabs(b.coefficient_of_variation - std::sqrt(variance) / mean) < 1e-6);
        }
      }
      report_hash("metrics." + std::to_string(columns), members(got));
    };
    for_each_load_type(check);
  }
}

PLIMSOLL_TEST_CASE("metrics: measure returns what it writes", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (index_t const rows : {0, 1, 7}) {
    auto const loads = skewed_loads(rows, 33, 5);
    array_in<std::int64_t, P> const in(loads);
    plimsoll::array<balance_stats, policy_of<P>> const returned =
        plimsoll::measure(policy, in.view2(rows, 33));
    CHECK(members(returned.to_host()) == members(measured<P>(loads, rows, 33)));
    if (rows > 0) {
      CHECK(plimsoll::summarize(policy, plimsoll::measure(policy, in.view2(rows, 33))).worst ==
            summarized<P>(returned.to_host()).worst);
    }
  }
}

/// Checks that neither ratio passes 1, and that both are exactly 1 for rows of equal loads, which
/// come first.
inline void check_ratios(std::vector<balance_stats> const& rows, std::size_t equal) {
  bool in_range = true;
  for (balance_stats const& row : rows) {
    in_range = in_range && row.balancedness > 0 && row.balancedness <= 1 && row.imbalance >= 1 &&
               row.mean <= row.peak;
  }
  CHECK(in_range);
  for (std::size_t r = 0; r < equal; ++r) {
    CHECK(members({rows[r]}) == reals{rows[r].peak, rows[r].peak, 1, 1, 0});
  }
}

PLIMSOLL_TEST_CASE("metrics: ratios of equal loads are 1, whatever the rounding", P,
                   PLIMSOLL_POLICIES) {
  constexpr index_t kinds = 30;
  for (index_t const columns : {1, 2, 3, 7, 10, 33, 49, 300}) {
    CAPTURE(columns);
    reals equal;
    reals nearly;  // equal, except for one load that is the next double
    longs whole;   // 47 bits each: their sum has more than 53
    for (index_t k = 1; k <= kinds; ++k) {
      double const load = static_cast<double>(k) / 7;
      equal.insert(equal.end(), static_cast<std::size_t>(columns), load);
      nearly.insert(nearly.end(), static_cast<std::size_t>(columns), load);
      nearly.back() = std::nextafter(load, 0.0);
      whole.insert(whole.end(), static_cast<std::size_t>(columns), (1LL << 47) - k);
    }
    check_ratios(measured<P>(equal, kinds, columns), kinds);
    check_ratios(measured<P>(std::vector<float>(equal.begin(), equal.end()), kinds, columns),
                 kinds);
    check_ratios(measured<P>(nearly, kinds, columns), 0);
    check_ratios(measured<P>(whole, kinds, columns), kinds);
    // No expert is busy if all loads are equal.
    array_in<double, P> const in(equal);
    array_in<expert_use, P> use(columns);
    plimsoll::classify_experts(make_policy<P>(), in.view3(kinds, 1, columns), {},
                               use.view2(1, columns));
    CHECK(use.values() == uses(static_cast<std::size_t>(columns), expert_use::ordinary));
  }
}

PLIMSOLL_TEST_CASE("metrics: ratios of loads at any scale are the same bits", P,
                   PLIMSOLL_POLICIES) {
  constexpr index_t columns = 5;
  constexpr index_t rows = 4;
  reals const loads{1, 3, 9, 2, 7, 5, 5, 5, 5, 6, 0, 1, 0, 0, 0, 3, 30, 300, 3000, 30000};
  auto const scaled = [&](int exponent) {
    reals result = loads;
    for (double& load : result) {
      load = std::ldexp(load, exponent);
    }
    return result;
  };
  auto const expected = measured<P>(loads, rows, columns);
  array_in<double, P> out(columns * columns);
  auto const correlations = [&](int exponent, int of_last) {
    reals values = scaled(exponent);
    for (index_t step = 0; step < rows; ++step) {
      double& last = values[static_cast<std::size_t>(step * columns + columns - 1)];
      last = std::ldexp(last, of_last - exponent);
    }
    array_in<double, P> const in(values);
    plimsoll::correlate(make_policy<P>(), in.view3(rows, 1, columns),
                        out.view3(1, columns, columns));
    return out.values();
  };
  reals const together = correlations(0, 0);
  CHECK(together[4] != 0);
  // From 2^-1074 on, loads are the smallest subnormal numbers.
  for (int const exponent : {30, -99, -101, -400, -402, -531, -565, -1000, -1073, -1074}) {
    CAPTURE(exponent);
    auto const got = measured<P>(scaled(exponent), rows, columns);
    for (std::size_t r = 0; r < rows; ++r) {
      CHECK(got[r].balancedness == expected[r].balancedness);
      CHECK(got[r].imbalance == expected[r].imbalance);
      CHECK(got[r].coefficient_of_variation == expected[r].coefficient_of_variation);
    }
    CHECK(correlations(exponent, exponent) == together);
    CHECK(correlations(exponent, 20) == together);
  }
}

PLIMSOLL_TEST_CASE("metrics: rows without load can be left out", P, PLIMSOLL_POLICIES) {
  // The ring buffer of a recorder: two filled steps of two ranks among empty steps.
  auto const ring =
      measured<P>(std::vector<std::int32_t>{0, 0, 1, 3, 0, 0, 4, 4, 0, 0, 0, 0}, 6, 2);
  auto const summarized_with = [](std::vector<balance_stats> const& rows,
                                  plimsoll::empty_step_policy empty) {
    array_in<balance_stats, P> const in(rows);
    return plimsoll::summarize(make_policy<P>(), in.view1(), empty);
  };
  auto const skipped = summarized_with(ring, plimsoll::empty_step_policy::skip);
  CHECK(skipped.mean_of_ratios == (2.0 / 3 + 1) / 2);
  CHECK(skipped.ratio_of_sums == 6.0 / 7);
  CHECK(skipped.worst == 2.0 / 3);
  CHECK(skipped.worst_row == 1);
  auto const counted = summarized_with(ring, plimsoll::empty_step_policy::count);
  CHECK(counted.mean_of_ratios == doctest::Approx((2.0 / 3 + 5) / 6));
  CHECK(counted.worst_row == 1);
  CHECK(summarized<P>(ring).mean_of_ratios == counted.mean_of_ratios);  // the default
  auto const none = summarized_with({ring[0], ring[2]}, plimsoll::empty_step_policy::skip);
  CHECK(none.mean_of_ratios == 1);
  CHECK(none.ratio_of_sums == 1);
  CHECK(none.worst == 1);
  CHECK(none.worst_row == -1);
}

PLIMSOLL_TEST_CASE("metrics: no rows, strided rows", P, PLIMSOLL_POLICIES) {
  CHECK(measured<P>(std::vector<float>{}, 0, 4).empty());
  array_in<float, P> const in(std::vector<float>{1, -9, 3, -9, 5, -9, 7, -9});
  plimsoll::matrix_ref<float const> loads = in.view2(2, 2);
  loads.strides[0] = 4;
  loads.strides[1] = 2;
  array_in<balance_stats, P> out(2);
  plimsoll::measure(make_policy<P>(), loads, out.view1());
  CHECK(out.values()[0].mean == 2);
  CHECK(out.values()[1].peak == 7);
}

PLIMSOLL_TEST_CASE("metrics: rows with invalid loads become NaN", P, PLIMSOLL_POLICIES) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  auto const got = measured<P>(std::vector<float>{1, 2, 3, -4, nan, 5, 0x1p47f, 0}, 4, 2);
  CHECK(got[0].balancedness == 0.75);
  for (double const member : members({got[1], got[2], got[3]})) {
    CHECK(std::isnan(member));
  }
  CHECK_THROWS_WITH_AS(summarized<P>(got),
                       "summarize: rows: expected rows measured from loads from 0 to below 2^47, "
                       "got other loads in row 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(summarized<P>({}), "summarize: rows: expected at least 1 row, got 0",
                       plimsoll::invalid_input);
}

template <class P, class T>
reals correlated(steps_case const& c, std::vector<T> const& loads) {
  array_in<T, P> const in(loads);
  array_in<double, P> out(c.cells() * c.experts, -7.0);
  plimsoll::correlate(make_policy<P>(), in.view3(c.steps, c.layers, c.experts),
                      out.view3(c.layers, c.experts, c.experts));
  return out.values();
}

inline void check_values(reals const& got, reals const& expected) { CHECK(got == expected); }

PLIMSOLL_TEST_CASE("metrics: correlation equals the definition, in every type", P,
                   PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 0; seed < cases_of(40); ++seed) {
    CAPTURE(seed);
    steps_case const c = random_steps(seed);
    reals const got = correlated<P>(c, as<double>(c.loads));
    check_correlated(c, got);
    for_each_load_type([&]<class T>(T) { check_values(correlated<P>(c, as<T>(c.loads)), got); });
    all.insert(all.end(), got.begin(), got.end());
  }
  report_hash("metrics.correlation", all);
}

/// A load that is a product, which a compiler would contract with the sum to which it is added.
struct product_steps {
  PLIMSOLL_HD double operator()(index_t t, index_t layer, index_t e) const {
    return 0.1 * static_cast<double>(mix(static_cast<std::uint64_t>(64 * t + 8 * layer + e)) >> 54);
  }
};

PLIMSOLL_TEST_CASE("metrics: correlation by hand", P, PLIMSOLL_POLICIES) {
  SUBCASE("equal, opposite, constant and partly correlated loads") {
    steps_case const c{.steps = 3,
                       .layers = 1,
                       .experts = 5,              //
                       .loads = {1, 3, 30, 7, 1,  //
                                 2, 5, 20, 7, 3,  //
                                 3, 7, 10, 7, 2}};
    reals const got = correlated<P>(c, c.loads);
    check_correlated(c, got);
    CHECK(got[1] == 1);
    CHECK(got[2] == -1);
    CHECK(got[3] == 0);
    CHECK(got[4] == doctest::Approx(0.5).epsilon(1e-15));
    CHECK(got[3 * 5 + 3] == 1);
  }
  SUBCASE("constant loads whose mean is rounded") {
    check_values(correlated<P>({.steps = 3, .experts = 2}, reals{0.1, 0.7, 0.1, 0.7, 0.1, 0.7}),
                 {1, 0, 0, 1});
    check_values(correlated<P>({.steps = 3, .experts = 2}, reals{0.1, 1, 0.1, 2, 0.1, 4}),
                 {1, 0, 0, 1});
    // Loads with the same bits have correlation 1.
    check_values(correlated<P>({.steps = 3, .experts = 2}, reals{0.1, 0.1, 0.3, 0.3, 0.9, 0.9}),
                 {1, 1, 1, 1});
  }
  SUBCASE("one step, one expert, no layers") {
    check_values(correlated<P>({.steps = 1, .experts = 2}, longs{4, 9}), {1, 0, 0, 1});
    check_values(correlated<P>({.steps = 3}, longs{4, 9, 2}), {1});
    check_values(correlated<P>({.steps = 3, .layers = 0, .experts = 9}, longs{}), {});
  }
  SUBCASE("loads and results in any layout, and generated ones") {
    steps_case const c{.steps = 20, .layers = 2, .experts = 6};
    reals stored;
    for (index_t i = 0; i < 240; ++i) {
      stored.push_back(product_steps{}(i / 12, i / 6 % 2, i % 6));
    }
    reals const expected = correlated<P>(c, stored);
    array_in<double, P> out(2 * 72, -7.0);
    auto spread = out.view3(2, 6, 6);
    spread.strides[0] = 2;
    spread.strides[1] = 4;
    spread.strides[2] = 24;
    plimsoll::correlate(make_policy<P>(), plimsoll::generate(product_steps{}, 20, 2, 6), spread);
    reals const all = out.values();
    reals got;
    for (index_t i = 0; i < 72; ++i) {
      got.push_back(all[static_cast<std::size_t>(2 * (i / 36) + 4 * (i / 6 % 6) + 24 * (i % 6))]);
    }
    check_values(got, expected);
    CHECK(std::count(all.begin(), all.end(), -7.0) == 72);
    report_hash("metrics.generated", got);

    array_in<double, P> const in(stored);
    auto half = in.view3(10, 2, 6);  // every second step
    half.strides[0] = 24;
    array_in<double, P> of_half(72);
    plimsoll::correlate(make_policy<P>(), half, of_half.view3(2, 6, 6));
    reals kept;
    for (std::ptrdiff_t t = 0; t < 10; ++t) {
      kept.insert(kept.end(), stored.begin() + 24 * t, stored.begin() + 24 * t + 12);
    }
    check_values(of_half.values(), correlated<P>({.steps = 10, .layers = 2, .experts = 6}, kept));
  }
}

template <class P, class T = std::int32_t>
uses classified(steps_case const& c, expert_use_options const& options = {}) {
  array_in<T, P> const in(as<T>(c.loads));
  array_in<expert_use, P> out(c.cells(), static_cast<expert_use>(-7));
  plimsoll::classify_experts(make_policy<P>(), in.view3(c.steps, c.layers, c.experts), options,
                             out.view2(c.layers, c.experts));
  return out.values();
}

inline void check_uses(uses const& got, uses const& expected) { CHECK(got == expected); }

PLIMSOLL_TEST_CASE("metrics: experts are classified by the definition, in every type", P,
                   PLIMSOLL_POLICIES) {
  uses all;
  for (std::uint64_t seed = 100; seed < 100 + cases_of(80); ++seed) {
    CAPTURE(seed);
    steps_case const c = random_steps(seed);
    generator random(seed);
    expert_use_options options;
    if (seed % 4 != 0) {
      options.busy = 0.5 * static_cast<double>(random.between(0, 4));
      options.consistent_part = static_cast<double>(random.between(0, 10)) / 10;
      options.temporal_part = static_cast<double>(random.between(0, 10)) / 10;
      options.surge = 0.5 * static_cast<double>(random.between(0, 8));
    }
    uses expected;
    for (index_t i = 0; i < c.cells(); ++i) {
      expected.push_back(c.use(i / c.experts, i % c.experts, options));
    }
    for_each_load_type([&]<class T>(T) { check_uses(classified<P, T>(c, options), expected); });
    all.insert(all.end(), expected.begin(), expected.end());
  }
  report_hash("metrics.classes", all);
  // The trace has experts of several classes.
  for (expert_use const one :
       {expert_use::ordinary, expert_use::consistent, expert_use::temporal}) {
    CHECK(std::count(all.begin(), all.end(), one) > 20);
  }
}

PLIMSOLL_TEST_CASE("metrics: experts at the thresholds between classes", P, PLIMSOLL_POLICIES) {
  // Four experts share 16 tokens in each of ten steps. Returns the class of the first expert if it
  // has `load` in `steps` of them, and the mean, which is not busy, in the others.
  auto const use = [](std::int64_t load, index_t steps, expert_use_options const& options = {}) {
    steps_case c{.steps = 13, .experts = 4};
    for (index_t t = 0; t < 10; ++t) {
      std::int64_t const mine = t < steps ? load : 4;
      longs const row{mine, 0, 16 - mine, 0};
      c.loads.insert(c.loads.end(), row.begin(), row.end());
    }
    c.loads.resize(52, 0);  // steps without load do not count
    return classified<P>(c, options)[0];
  };
  CHECK(use(5, 7) == expert_use::consistent);
  CHECK(use(5, 6) == expert_use::ordinary);
  CHECK(use(8, 6) == expert_use::ordinary);
  CHECK(use(8, 3) == expert_use::temporal);
  CHECK(use(8, 4) == expert_use::ordinary);
  CHECK(use(7, 3) == expert_use::ordinary);
  CHECK(use(4, 10) == expert_use::ordinary);
  CHECK(use(6, 10, {.busy = 1.5}) == expert_use::ordinary);
  CHECK(use(7, 10, {.busy = 1.5}) == expert_use::consistent);
  // An expert that meets both conditions is consistent, one that is never busy meets neither.
  CHECK(use(8, 3, {.consistent_part = 0.3}) == expert_use::consistent);
  CHECK(use(4, 10, {.consistent_part = 0, .temporal_part = 1, .surge = 0}) == expert_use::ordinary);
  CHECK(use(16, 10, {.consistent_part = 1}) == expert_use::consistent);
  CHECK(use(0, 0, {.busy = 0}) == expert_use::consistent);
  CHECK(use(0, 10, {.busy = 0, .consistent_part = 0}) == expert_use::ordinary);

  uses const nothing(4, expert_use::ordinary);
  check_uses(classified<P>({.steps = 5, .experts = 4, .loads = longs(20, 0)}), nothing);
  check_uses(classified<P>({.steps = 5, .experts = 4, .loads = longs(20, 3)}), nothing);
  check_uses(classified<P>({.steps = 5, .layers = 0, .experts = 4}), {});
}

inline void check_pairs(std::vector<expert_pair> const& got,
                        std::vector<std::vector<double>> const& expected) {
  std::vector<std::vector<double>> rows;
  for (expert_pair const& pair : got) {
    rows.push_back({static_cast<double>(pair.layer), static_cast<double>(pair.first),
                    static_cast<double>(pair.second), pair.correlation});
  }
  CHECK(rows == expected);
}

PLIMSOLL_TEST_CASE("metrics: temporal experts that are busy together", P, PLIMSOLL_POLICIES) {
  SUBCASE("found in a trace whose averages do not show them") {
    steps_case c{.steps = 8, .experts = 8};
    for (index_t t = 0; t < c.steps; ++t) {
      std::int64_t const together = t == 5 ? 40 : 1;
      longs const row{together, together, 30, t == 1 ? 40 : 1, 5, 5, 5, 5};
      c.loads.insert(c.loads.end(), row.begin(), row.end());
    }
    uses const use = classified<P>(c);
    constexpr auto none = expert_use::ordinary;
    constexpr auto temporal = expert_use::temporal;
    check_uses(use, {temporal, temporal, expert_use::consistent, temporal, none, none, none, none});
    reals const matrix = correlated<P>(c, c.loads);
    array_in<double, P> const correlation(matrix);
    array_in<expert_use, P> const classes(use);
    auto const pairs = [&](double least) {
      return plimsoll::correlated_pairs(make_policy<P>(), correlation.view3(1, 8, 8),
                                        classes.view2(1, 8), least);
    };
    check_pairs(pairs(0.8), {{0, 0, 1, matrix[1]}});
    CHECK(matrix[1] == 1);
    CHECK(matrix[3] == doctest::Approx(-1.0 / 7).epsilon(1e-12));
    check_pairs(pairs(-1), {{0, 0, 1, matrix[1]}, {0, 0, 3, matrix[3]}, {0, 1, 3, matrix[3]}});
  }
  SUBCASE("sorted by descending correlation, then by layer and expert") {
    reals const layers{1, 0.9, 0.8, 0.9,  //
                       0.9, 1, 0.9, 0.5,  //
                       0.8, 0.9, 1, 1,    //
                       0.9, 0.5, 1, 1,    //
                       //
                       1, 0.9, 1, 1,    //
                       0.9, 1, 1, 0.7,  //
                       1, 1, 1, 1,      //
                       1, 0.7, 1, 1};
    constexpr auto yes = expert_use::temporal;
    array_in<double, P> const correlation(layers);
    array_in<expert_use, P> const use(
        uses{yes, yes, yes, yes, yes, yes, expert_use::consistent, expert_use::ordinary});
    auto const view = correlation.view3(2, 4, 4);
    check_pairs(plimsoll::correlated_pairs(make_policy<P>(), view, use.view2(2, 4)),
                {{0, 2, 3, 1},
                 {0, 0, 1, 0.9},
                 {0, 0, 3, 0.9},
                 {0, 1, 2, 0.9},
                 {1, 0, 1, 0.9},
                 {0, 0, 2, 0.8}});
    check_pairs(plimsoll::correlated_pairs(make_policy<P>(), view, use.view2(2, 4), 1),
                {{0, 2, 3, 1}});
    // Strided layers, rows and columns: the last three experts in reverse order.
    auto backwards = correlation.view3(2, 3, 3);
    backwards.data += 31;
    backwards.strides[0] = -16;
    backwards.strides[1] = -4;
    backwards.strides[2] = -1;
    array_in<expert_use, P> const all(8, yes);
    auto every_second = all.view2(2, 3);
    every_second.strides[0] = 1;
    every_second.strides[1] = 2;
    check_pairs(plimsoll::correlated_pairs(make_policy<P>(), backwards, every_second, 0.6),
                {{0, 0, 1, 1}, {0, 1, 2, 1}, {1, 0, 1, 1}, {1, 1, 2, 0.9}, {0, 0, 2, 0.7}});
  }
  SUBCASE("none") {
    array_in<double, P> const correlation(index_t{0});
    array_in<expert_use, P> const use(index_t{0});
    check_pairs(
        plimsoll::correlated_pairs(make_policy<P>(), correlation.view3(0, 3, 3), use.view2(0, 3)),
        {});
  }
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Tests of knapsack under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/knapsack.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/knapsack.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

using namespace knapsack_support;

PLIMSOLL_TEST_CASE("knapsack: an example by hand", P, PLIMSOLL_POLICIES) {
  // Two layers that may get 0, 1, 2 or 4 replicas, and the gains.
  knapsacks const k{.problems = 1,
                    .classes = 2,
                    .width = 4,
                    .weights = {0, 1, 2, 4, 0, 1, 2, 4},
                    .values = {0, 5, 6, 9, 0, 2, 5, 6},
                    .capacity = 4};
  knapsacks_in<P> const in(k);
  knapsack_result const got = in.solve(knapsack_fill::at_most, class_choice::one);
  CHECK(got.choices == ints{2, 2});  // 6 + 5
  CHECK(got.proofs() == reals{11, 11, 10, static_cast<double>(certificate_status::optimal)});
  CHECK(in.curve(knapsack_fill::at_most, class_choice::one).curve == reals{0, 5, 7, 10, 11});
}

PLIMSOLL_TEST_CASE("knapsack: equals exhaustive search", P, PLIMSOLL_POLICIES) {
  ints choices;
  reals proofs;
  reals curves;
  int infeasible = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    bool const whole = seed % 2 == 0;
    knapsacks const k = random_knapsacks(seed, whole);
    knapsacks_in<P> const in(k);
    for (knapsack_fill const fill : {knapsack_fill::at_most, knapsack_fill::exactly}) {
      for (class_choice const choose : {class_choice::one, class_choice::at_most_one}) {
        CAPTURE(static_cast<int>(fill));
        CAPTURE(static_cast<int>(choose));
        knapsack_result const got = in.solve(fill, choose);
        knapsack_result const curve = in.curve(fill, choose);
        CHECK(curve.proofs() == got.proofs());
        ints expected_choices;
        reals expected_curve;
        for (index_t problem = 0; problem < k.problems; ++problem) {
          every_choice const expected(k, problem, fill, choose);
          double const best = expected.curve[static_cast<std::size_t>(k.room(problem))];
          check_choice(k, problem, fill, choose, got, best);
          infeasible += best == -infinity ? 1 : 0;
          expected_choices.insert(expected_choices.end(), expected.choice.begin(),
                                  expected.choice.end());
          expected_curve.insert(expected_curve.end(), expected.curve.begin(), expected.curve.end());
        }
        CHECK(curve.curve == expected_curve);
        if (whole) {
          CHECK(got.choices == expected_choices);
        }
        reals const numbers = got.proofs();
        choices.insert(choices.end(), got.choices.begin(), got.choices.end());
        proofs.insert(proofs.end(), numbers.begin(), numbers.end());
        curves.insert(curves.end(), curve.curve.begin(), curve.curve.end());
      }
    }
  }
  CHECK(infeasible > 100);
  report_hash("knapsack.random", choices, proofs, curves);
}

PLIMSOLL_TEST_CASE("knapsack: ties between choices", P, PLIMSOLL_POLICIES) {
  auto const chosen = [](longs const& weights, reals const& values, index_t capacity,
                         knapsack_fill fill, class_choice choose) {
    auto const classes = static_cast<index_t>(weights.size()) / 2;
    return knapsacks_in<P>({1, classes, 2, weights, values, capacity}).solve(fill, choose).choices;
  };
  SUBCASE("the first option, whatever it weighs") {
    CHECK(chosen({3, 0}, {1, 1}, 5, knapsack_fill::at_most, class_choice::one) == ints{0});
  }
  SUBCASE("none before an option without value") {
    CHECK(chosen({0, 0}, {0, 0}, 5, knapsack_fill::at_most, class_choice::at_most_one) == ints{-1});
  }
  SUBCASE("the last class decides first") {
    CHECK(chosen({0, 1, 0, 1}, {0, 1, 0, 1}, 1, knapsack_fill::at_most, class_choice::one) ==
          ints{1, 0});
    CHECK(chosen({0, 1, 0, 1}, {0, 1, 0, 1}, 1, knapsack_fill::exactly, class_choice::one) ==
          ints{1, 0});
    CHECK(chosen({1, 2, 1, 2}, {1, 1, 1, 1}, 2, knapsack_fill::exactly,
                 class_choice::at_most_one) == ints{0, 0});
    CHECK(chosen({1, 2, 1, 2}, {1, 1, 1, 1}, 1, knapsack_fill::exactly,
                 class_choice::at_most_one) == ints{0, -1});
  }
}

/// Weights and values that every type represents exactly.
struct computed_weight {
  PLIMSOLL_HD std::int32_t operator()(index_t p, index_t l, index_t k) const {
    return static_cast<std::int32_t>((7 * p + 3 * l + 5 * k) % 8);
  }
};

struct computed_value {
  PLIMSOLL_HD float operator()(index_t p, index_t l, index_t k) const {
    return static_cast<float>((5 * p + 11 * l + 7 * k) % 13 - 4) / 4;
  }
};

PLIMSOLL_TEST_CASE("knapsack: every type and kind of view", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  constexpr index_t problems = 3;
  constexpr index_t classes = 4;
  constexpr index_t width = 5;
  knapsacks k{problems, classes, width, {}, {}, 13, {}, {13, 6, 9}};
  for (index_t i = 0; i < problems * classes * width; ++i) {
    index_t const p = i / (classes * width);
    index_t const l = i / width % classes;
    k.weights.push_back(computed_weight{}(p, l, i % width));
    k.values.push_back(static_cast<double>(computed_value{}(p, l, i % width)));
    if (i % width == 0) {
      k.counts.push_back(static_cast<std::int32_t>(1 + (p + 2 * l) % width));
    }
  }
  knapsacks_in<P> const in(k);
  knapsack_result const expected = in.solve(knapsack_fill::at_most, class_choice::one);
  knapsack_result const expected_curve = in.curve(knapsack_fill::at_most, class_choice::one);
  for (index_t p = 0; p < problems; ++p) {
    every_choice const best(k, p, knapsack_fill::at_most, class_choice::one);
    check_choice(k, p, knapsack_fill::at_most, class_choice::one, expected,
                 best.curve[static_cast<std::size_t>(k.room(p))]);
  }
  auto const same = [&](knapsack_result const& got, knapsack_result const& curve) {
    CHECK(got.choices == expected.choices);
    CHECK(got.proofs() == expected.proofs());
    CHECK(curve.curve == expected_curve.curve);
    CHECK(curve.proofs() == expected.proofs());
  };

  SUBCASE("int32 and float") {
    knapsacks_in<P, std::int32_t, float> const other(k);
    same(other.solve(knapsack_fill::at_most, class_choice::one),
         other.curve(knapsack_fill::at_most, class_choice::one));
  }
  SUBCASE("int64 and float") {
    knapsacks_in<P, std::int64_t, float> const other(k);
    same(other.solve(knapsack_fill::at_most, class_choice::one),
         other.curve(knapsack_fill::at_most, class_choice::one));
  }
  SUBCASE("int32 and double") {
    knapsacks_in<P, std::int32_t, double> const other(k);
    same(other.solve(knapsack_fill::at_most, class_choice::one),
         other.curve(knapsack_fill::at_most, class_choice::one));
  }
  SUBCASE("generated") {
    auto const weights = plimsoll::generate(computed_weight{}, problems, classes, width);
    auto const values = plimsoll::generate(computed_value{}, problems, classes, width);
    auto const options = in.options(knapsack_fill::at_most, class_choice::one);
    array_in<std::int32_t, P> choices(problems * classes, -7);
    array_in<double, P> best(problems * (k.capacity + 1), -7);
    auto const certificates =
        plimsoll::knapsack(policy, weights, values, options, choices.view2(problems, classes));
    auto const of_curve = plimsoll::knapsack_curve(policy, weights, values, options,
                                                   best.view2(problems, k.capacity + 1));
    same({choices.values(), {}, certificates}, {{}, best.values(), of_curve});
  }
  SUBCASE("strided") {
    // The index of the problem varies fastest, and elements are two apart.
    auto const transposed = [](auto const& row_major, index_t rows) {
      auto result = row_major;
      result.assign(2 * row_major.size(), -7);
      std::size_t const columns = row_major.size() / static_cast<std::size_t>(rows);
      for (std::size_t i = 0; i < row_major.size(); ++i) {
        result[2 * (i % columns * static_cast<std::size_t>(rows) + i / columns)] = row_major[i];
      }
      return result;
    };
    array_in<std::int64_t, P> const weights_in(transposed(k.weights, problems));
    array_in<double, P> const values_in(transposed(k.values, problems));
    array_in<std::int32_t, P> const counts_in(transposed(k.counts, problems));
    array_in<std::int64_t, P> const capacities_in(transposed(k.capacities, problems));
    array_in<std::int32_t, P> choices(2 * problems * classes, -7);
    array_in<double, P> best(2 * problems * (k.capacity + 1), -7);
    auto const spread3 = [](auto view) {
      view.strides[0] = 2;
      view.strides[1] = 2 * problems * width;
      view.strides[2] = 2 * problems;
      return view;
    };
    auto const spread2 = [](auto view) {
      view.strides[0] = 2;
      view.strides[1] = 2 * problems;
      return view;
    };
    auto const weights = spread3(weights_in.view3(problems, classes, width));
    auto const values = spread3(values_in.view3(problems, classes, width));
    plimsoll::knapsack_options options{.capacity = k.capacity};
    options.capacities = plimsoll::vector_ref<std::int64_t const>(capacities_in.data(), problems);
    options.capacities.strides[0] = 2;
    options.option_count = spread2(counts_in.view2(problems, classes));
    auto const certificates = plimsoll::knapsack(policy, weights, values, options,
                                                 spread2(choices.view2(problems, classes)));
    auto const of_curve = plimsoll::knapsack_curve(policy, weights, values, options,
                                                   spread2(best.view2(problems, k.capacity + 1)));
    CHECK(choices.values() == transposed(expected.choices, problems));
    CHECK(best.values() == transposed(expected_curve.curve, problems));
    CHECK(knapsack_result{{}, {}, certificates}.proofs() == expected.proofs());
    CHECK(knapsack_result{{}, {}, of_curve}.proofs() == expected.proofs());
  }
  report_hash("knapsack.views", expected.choices, expected.proofs(), expected_curve.curve);
}

PLIMSOLL_TEST_CASE("knapsack: a large table", P, PLIMSOLL_POLICIES) {
  constexpr index_t capacity = 5000;
  generator random(77);
  knapsacks k{
      .problems = 2, .classes = 60, .width = 8, .weights = {}, .values = {}, .capacity = capacity};
  for (index_t i = 0; i < k.problems * k.classes; ++i) {
    index_t const count = random.between(1, k.width);
    k.counts.push_back(static_cast<std::int32_t>(count));
    for (index_t o = 0; o < k.width; ++o) {
      k.weights.push_back(random.between(20, 160));
      k.values.push_back((random.unit() - 0.2) * 1000);
    }
  }
  k.capacities = {capacity, 4321};
  knapsacks_in<P> const in(k);
  for (knapsack_fill const fill : {knapsack_fill::at_most, knapsack_fill::exactly}) {
    CAPTURE(static_cast<int>(fill));
    knapsack_result const got = in.solve(fill, class_choice::one);
    knapsack_result const curve = in.curve(fill, class_choice::one);
    CHECK(curve.proofs() == got.proofs());
    for (index_t problem = 0; problem < k.problems; ++problem) {
      // The best value of every exact total; at_most takes the best of all totals up to c.
      reals best(capacity + 1, -infinity);
      best[0] = 0;
      for (index_t l = 0; l < k.classes; ++l) {
        reals next(best.size(), -infinity);
        for (std::size_t total = 0; total < best.size(); ++total) {
          for (index_t o = 0; o < k.count(problem, l); ++o) {
            std::size_t const i = k.at(problem, l, o);
            std::size_t const then = total + static_cast<std::size_t>(k.weights[i]);
            if (best[total] != -infinity && then < next.size()) {
              next[then] = std::max(next[then], best[total] + k.values[i]);
            }
          }
        }
        best = next;
      }
      index_t const room = k.room(problem);
      std::fill(best.begin() + room + 1, best.end(), -infinity);
      for (auto c = static_cast<std::size_t>(1);
           fill == knapsack_fill::at_most && c <= static_cast<std::size_t>(room); ++c) {
        best[c] = std::max(best[c], best[c - 1]);
      }
      REQUIRE(best[static_cast<std::size_t>(room)] > 0);
      CHECK(reals(curve.curve.begin() + problem * (capacity + 1),
                  curve.curve.begin() + (problem + 1) * (capacity + 1)) == best);
      check_choice(k, problem, fill, class_choice::one, got, best[static_cast<std::size_t>(room)]);
    }
    report_hash(fill == knapsack_fill::at_most ? "knapsack.large" : "knapsack.large_exactly",
                got.choices, got.proofs(), curve.curve);
  }
}

PLIMSOLL_TEST_CASE("knapsack: a curve equals one problem per capacity", P, PLIMSOLL_POLICIES) {
  constexpr index_t capacity = 40;
  generator random(5);
  knapsacks one{
      .problems = 1, .classes = 6, .width = 7, .weights = {}, .values = {}, .capacity = capacity};
  for (index_t i = 0; i < one.classes * one.width; ++i) {
    one.weights.push_back(2 * random.between(1, 9));
    one.values.push_back((random.unit() - 0.3) * 10);
  }
  knapsacks each = one;
  each.problems = capacity + 1;
  each.weights.clear();
  each.values.clear();
  for (index_t c = 0; c <= capacity; ++c) {
    each.capacities.push_back(c);
    each.weights.insert(each.weights.end(), one.weights.begin(), one.weights.end());
    each.values.insert(each.values.end(), one.values.begin(), one.values.end());
  }
  for (knapsack_fill const fill : {knapsack_fill::at_most, knapsack_fill::exactly}) {
    for (class_choice const choose : {class_choice::one, class_choice::at_most_one}) {
      reals const curve = knapsacks_in<P>(one).curve(fill, choose).curve;
      auto const separate = knapsacks_in<P>(each).solve(fill, choose).certificates;
      for (std::size_t c = 0; c <= static_cast<std::size_t>(capacity); ++c) {
        bool const feasible = separate[c].status == certificate_status::optimal;
        CHECK(curve[c] == (feasible ? separate[c].value : -infinity));
      }
      if (fill == knapsack_fill::at_most) {
        CHECK(std::is_sorted(curve.begin(), curve.end()));
      }
    }
  }
}

PLIMSOLL_TEST_CASE("knapsack: edges", P, PLIMSOLL_POLICIES) {
  constexpr auto optimal = static_cast<double>(certificate_status::optimal);
  constexpr auto infeasible = static_cast<double>(certificate_status::infeasible);
  SUBCASE("no problems") {
    knapsacks_in<P> const in({0, 3, 2, {}, {}, 4});
    CHECK(in.solve(knapsack_fill::at_most, class_choice::one).certificates.empty());
    CHECK(in.curve(knapsack_fill::at_most, class_choice::one).certificates.empty());
  }
  SUBCASE("no classes") {
    for (index_t const width : {index_t{2}, index_t{0}}) {
      knapsacks_in<P> const in({3, 0, width, {}, {}, 2, {}, {2, 0, 1}});
      CHECK(in.solve(knapsack_fill::at_most, class_choice::one).proofs() ==
            reals{0, 0, 0, optimal, 0, 0, 0, optimal, 0, 0, 0, optimal});
      CHECK(in.curve(knapsack_fill::at_most, class_choice::one).curve ==
            reals{0, 0, 0, 0, -infinity, -infinity, 0, 0, -infinity});
      CHECK(in.solve(knapsack_fill::exactly, class_choice::at_most_one).proofs() ==
            reals{0, 0, 0, infeasible, 0, 0, 0, optimal, 0, 0, 0, infeasible});
      CHECK(in.curve(knapsack_fill::exactly, class_choice::one).curve ==
            reals{0, -infinity, -infinity, 0, -infinity, -infinity, 0, -infinity, -infinity});
    }
  }
  SUBCASE("no capacity") {
    knapsacks_in<P> const in({1, 2, 2, {0, 1, 0, 0}, {-1, 5, 1, 2}, 0});
    CHECK(in.solve(knapsack_fill::exactly, class_choice::one).choices == ints{0, 1});
    CHECK(in.solve(knapsack_fill::exactly, class_choice::one).proofs() == reals{1, 1, 2, optimal});
    CHECK(in.solve(knapsack_fill::at_most, class_choice::at_most_one).choices == ints{-1, 1});
  }
  SUBCASE("no solution") {
    knapsacks_in<P> const in({1, 2, 1, {3, 4}, {1, 1}, 6});
    knapsack_result const got = in.solve(knapsack_fill::at_most, class_choice::one);
    CHECK(got.choices == ints{-1, -1});
    CHECK(got.proofs() == reals{0, 0, 14, infeasible});
  }
  SUBCASE("a solution of value 0 that chooses no options") {
    knapsacks_in<P> const in({1, 2, 1, {3, 4}, {-1, -1}, 6});
    knapsack_result const got = in.solve(knapsack_fill::at_most, class_choice::at_most_one);
    CHECK(got.choices == ints{-1, -1});
    CHECK(got.proofs() == reals{0, 0, 14, optimal});
  }
  SUBCASE("negative values only") {
    knapsacks_in<P> const in({1, 2, 2, {0, 2, 0, 2}, {-5, -3, -7, -4}, 2});
    knapsack_result const got = in.solve(knapsack_fill::at_most, class_choice::one);
    CHECK(got.choices == ints{0, 1});
    CHECK(got.proofs() == reals{-9, -9, 6, optimal});
  }
  SUBCASE("the largest numbers") {
    double const largest = std::nextafter(0x1p960, 0.0);
    constexpr std::int64_t heaviest = std::numeric_limits<std::int64_t>::max();
    knapsacks_in<P> const in(
        {1, 2, 2, {heaviest, 1, 0, heaviest}, {largest, -largest, -largest, largest}, 3});
    knapsack_result const got = in.solve(knapsack_fill::at_most, class_choice::one);
    CHECK(got.choices == ints{1, 0});
    CHECK(got.proofs() == reals{-2 * largest, -2 * largest, 8, optimal});
  }
  SUBCASE("the largest number of options") {
    knapsacks k{.problems = 1,
                .classes = 1,
                .width = plimsoll::expert_limit,
                .weights = {},
                .values = {},
                .capacity = 1};
    k.weights.assign(static_cast<std::size_t>(k.width), 1);
    k.values.assign(static_cast<std::size_t>(k.width), 1);
    k.values.back() = 2;
    CHECK(knapsacks_in<P>(k).solve(knapsack_fill::at_most, class_choice::at_most_one).choices ==
          ints{static_cast<std::int32_t>(plimsoll::expert_limit - 1)});
  }
}

/// The message with which `knapsack` and `knapsack_curve` refuse their input, without the name of
/// the function.
template <class P>
std::string refusal(knapsacks const& k) {
  std::string messages[2] = {"knapsack: no error", "knapsack_curve: no error"};
  try {
    static_cast<void>(knapsacks_in<P>(k).solve(knapsack_fill::at_most, class_choice::one));
  } catch (plimsoll::invalid_input const& error) {
    messages[0] = error.what();
  }
  try {
    static_cast<void>(knapsacks_in<P>(k).curve(knapsack_fill::at_most, class_choice::one));
  } catch (plimsoll::invalid_input const& error) {
    messages[1] = error.what();
  }
  CHECK(messages[0].substr(0, 10) == "knapsack: ");
  CHECK(messages[1] == "knapsack_curve: " + messages[0].substr(10));
  return messages[0].substr(10);
}

PLIMSOLL_TEST_CASE("knapsack: bad values are named", P, PLIMSOLL_POLICIES) {
  knapsacks k{2, 2, 2, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, 3};
  REQUIRE(refusal<P>(k) == "no error");
  SUBCASE("weights") {
    k.weights[7] = -3;
    CHECK(refusal<P>(k) == "weights: expected at least 0, got -3 in problem 1, class 1, option 1");
    k.weights[6] = -4;  // the first one is reported
    CHECK(refusal<P>(k) == "weights: expected at least 0, got -4 in problem 1, class 1, option 0");
  }
  SUBCASE("values") {
    std::string const in_there = " in problem 0, class 1, option 0";
    for (auto const& [value, text] :
         {std::tuple(std::nan(""), std::string("NaN")), std::tuple(infinity, std::string("inf")),
          std::tuple(-infinity, std::string("-inf")),
          std::tuple(0x1p960, std::string("9.7453140114e+288")),
          std::tuple(-0x1p960, std::string("-9.7453140114e+288"))}) {
      k.values[2] = value;
      CHECK(refusal<P>(k) == "values: expected numbers below 2^960, got " + text + in_there);
    }
  }
  SUBCASE("option counts") {
    k.counts = {2, 1, 1, 0};
    CHECK(refusal<P>(k) ==
          "options.option_count: expected 1 to 2 options of every class, got 0 in problem 1, "
          "class 1");
    k.counts = {2, 1, 3, 0};
    CHECK(refusal<P>(k) ==
          "options.option_count: expected 1 to 2 options of every class, got 3 in problem 1, "
          "class 0");
    k.counts = {2, -1, 1, 1};
    k.weights[0] = -1;  // counts are checked first
    CHECK(refusal<P>(k) ==
          "options.option_count: expected 1 to 2 options of every class, got -1 in problem 0, "
          "class 1");
  }
  SUBCASE("no options at all") {
    CHECK(refusal<P>({1, 2, 0, {}, {}, 3}) == "weights: expected 1 to 65535 options, got 0");
  }
  SUBCASE("capacities") {
    k.capacities = {3, -1};
    CHECK(refusal<P>(k) ==
          "options.capacities: expected values from 0 to options.capacity, 3, got -1 in problem 1");
    k.capacities = {4, 3};
    CHECK(refusal<P>(k) ==
          "options.capacities: expected values from 0 to options.capacity, 3, got 4 in problem 0");
  }
}

}  // namespace plimsoll_test

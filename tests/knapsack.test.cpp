// SPDX-License-Identifier: Apache-2.0
// Tests of knapsack under the host's policies; every team, shapes, temporaries.
#include "knapsack.cases.hpp"

#include "support/instances.hpp"
#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("knapsack: the same bits in every team") {
  std::vector<knapsacks> inputs;
  for (std::uint64_t const seed : {0u, 1u, 2u, 3u, 10u, 11u}) {
    inputs.push_back(random_knapsacks(seed, false));
  }
  // More units of capacity than threads of a team.
  knapsacks wide{
      .problems = 2, .classes = 3, .width = 40, .weights = {}, .values = {}, .capacity = 300};
  wide.weights = random_integers(1, 240, 0, 150);
  wide.values = random_reals(2, 240);
  inputs.push_back(wide);
  // Problems with an invalid weight, value, count and capacity, and a valid one.
  inputs.push_back({5,
                    1,
                    2,
                    {0, -1, 0, 1, 0, 1, 0, 1, 0, 1},
                    {0, 1, 0, infinity, 0, 1, 0, 1, 0, 1},
                    3,
                    {2, 2, 0, 2, 2},
                    {3, 3, 3, 4, 2}});
  for (knapsacks const& k : inputs) {
    knapsacks_in<plimsoll::seq_policy> const in(k);
    // All combinations of options with both outputs, then one combination with a single output.
    for (int const variant : {0, 1, 2, 3, 4, 11}) {
      auto const options = in.options(knapsack_fill::at_most, class_choice::one);
      ints choices(static_cast<std::size_t>(k.problems * k.classes), -7);
      reals curve(static_cast<std::size_t>(k.problems * (k.capacity + 1)), -7);
      std::vector<plimsoll::detail::problem_report> reports(static_cast<std::size_t>(k.problems));
      plimsoll::matrix_ref<std::int32_t> choices_out;
      plimsoll::matrix_ref<double> curve_out;
      if ((variant & 4) == 0) {
        choices_out = {choices.data(), k.problems, k.classes};
      }
      if ((variant & 8) == 0) {
        curve_out = {curve.data(), k.problems, k.capacity + 1};
      }
      using body_type = plimsoll::detail::knapsack_body<plimsoll::tensor_ref<std::int64_t const>,
                                                        plimsoll::tensor_ref<double const>>;
      body_type const body{.weights = in.weights(),
                           .values = in.values(),
                           .counts = options.option_count,
                           .capacity = options.capacities,
                           .largest_capacity = k.capacity,
                           .exact = (variant & 1) != 0,
                           .may_skip = (variant & 2) != 0,
                           .choices = choices_out,
                           .curve = curve_out,
                           .reports = reports.data()};
      check_all_teams(body, k.problems, choices, curve, [&] { return report_values(reports); });
    }
  }
}

// Values are integers in every other instance, so that sums are exact and `optimal` is proven.
TEST_CASE("knapsack: certificates against exhaustive search") {
  std::int64_t const count = instances(4000);
  for (std::int64_t i = 0; i < count; ++i) {
    CAPTURE(i);
    knapsacks const k = random_knapsacks(static_cast<std::uint64_t>(i) + 5000, i % 2 == 0);
    knapsack_fill const fill = i % 3 == 0 ? knapsack_fill::exactly : knapsack_fill::at_most;
    class_choice const choose = i % 5 < 2 ? class_choice::at_most_one : class_choice::one;
    knapsack_result const got = knapsacks_in<plimsoll::seq_policy>(k).solve(fill, choose);
    for (index_t problem = 0; problem < k.problems; ++problem) {
      every_choice const expected(k, problem, fill, choose);
      check_choice(k, problem, fill, choose, got,
                   expected.curve[static_cast<std::size_t>(k.room(problem))]);
    }
  }
}

/// The message with which `run` refuses its shapes.
template <class Run>
std::string message_of(Run run) {
  try {
    run();
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("knapsack: shapes and options are checked") {
  longs const weights(1000, 1);
  reals const values(1000, 1);
  ints const counts(1000, 1);
  longs const capacities(1000, 1);
  ints choices(1000);
  reals best(1000);
  struct shapes {
    index_t values[3] = {2, 3, 4};
    index_t choices[2] = {2, 3};
    index_t best[2] = {2, 6};
    index_t width = 4;
    index_t capacity = 5;
    index_t capacities = 2;
    index_t counts[2] = {2, 3};
  };
  auto const options = [&](shapes const& s) {
    plimsoll::knapsack_options result{.capacity = s.capacity};
    result.capacities = plimsoll::vector_ref<std::int64_t const>(capacities.data(), s.capacities);
    result.option_count =
        plimsoll::matrix_ref<std::int32_t const>(counts.data(), s.counts[0], s.counts[1]);
    return result;
  };
  auto const weights_of = [&](shapes const& s) {
    return plimsoll::tensor_ref<std::int64_t const>(weights.data(), 2, 3, s.width);
  };
  auto const values_of = [&](shapes const& s) {
    return plimsoll::tensor_ref<double const>(values.data(), s.values[0], s.values[1], s.values[2]);
  };
  auto const solve = [&](shapes const& s) {
    return message_of([&] {
      plimsoll::knapsack(
          plimsoll::seq, weights_of(s), values_of(s), options(s),
          plimsoll::matrix_ref<std::int32_t>(choices.data(), s.choices[0], s.choices[1]));
    });
  };
  auto const curve = [&](shapes const& s) {
    return message_of([&] {
      plimsoll::knapsack_curve(plimsoll::seq, weights_of(s), values_of(s), options(s),
                               plimsoll::matrix_ref<double>(best.data(), s.best[0], s.best[1]));
    });
  };
  CHECK(solve({}) == "no error");
  CHECK(curve({}) == "no error");

  CHECK(solve({.choices = {3, 3}}) == "knapsack: choices: expected 2 problems, got 3");
  CHECK(solve({.choices = {2, 4}}) == "knapsack: choices: expected 3 classes, got 4");
  CHECK(curve({.best = {1, 6}}) == "knapsack_curve: best: expected 2 problems, got 1");
  CHECK(curve({.best = {2, 5}}) ==
        "knapsack_curve: best: expected 6 capacities (options.capacity + 1), got 5");
  auto const both = [&](shapes const& s, std::string const& message) {
    CHECK(solve(s) == "knapsack: " + message);
    CHECK(curve(s) == "knapsack_curve: " + message);
  };
  both({.values = {1, 3, 4}}, "values: expected 2 problems, got 1");
  both({.values = {2, 2, 4}}, "values: expected 3 classes, got 2");
  both({.values = {2, 3, 5}}, "values: expected 4 options, got 5");
  both({.capacities = 3}, "options.capacities: expected 2 problems, got 3");
  both({.counts = {1, 3}}, "options.option_count: expected 2 problems, got 1");
  both({.counts = {2, 4}}, "options.option_count: expected 3 classes, got 4");
  both({.width = 65536}, "weights: expected 1 to 65535 options, got 65536");
  both({.best = {2, 0}, .capacity = -1},
       "options.capacity: expected 0 to 1073741824 units of weight, got -1");
  both({.best = {2, 1073741826}, .capacity = 1073741825},
       "options.capacity: expected 0 to 1073741824 units of weight, got 1073741825");
}

TEST_CASE("knapsack: temporaries come from the policy and go back, also when it throws") {
  knapsacks_in<plimsoll::seq_policy> const in({1, 2, 2, {0, 1, 2, 1}, {0, 1, 2, 3}, 3});
  auto const options = in.options(knapsack_fill::at_most, class_choice::one);
  ints choices(2);
  reals best(4);
  // The report and the scratch of one problem.
  check_temporaries(2, [&](auto& resource) {
    plimsoll::knapsack(plimsoll::seq(resource), in.weights(), in.values(), options,
                       plimsoll::matrix_ref<std::int32_t>(choices.data(), 1, 2));
  });
  check_temporaries(2, [&](auto& resource) {
    plimsoll::knapsack_curve(plimsoll::seq(resource), in.weights(), in.values(), options,
                             plimsoll::matrix_ref<double>(best.data(), 1, 4));
  });
}

TEST_CASE("knapsack: scratch takes the documented bytes") {
  knapsacks_in<plimsoll::seq_policy> const in({1, 2, 2, {0, 1, 2, 1}, {0, 1, 2, 3}, 1023});
  auto const options = in.options(knapsack_fill::at_most, class_choice::one);
  ints choices(2);
  reals best(1024);
  counting_resource of_choices;
  plimsoll::knapsack(plimsoll::seq(of_choices), in.weights(), in.values(), options,
                     plimsoll::matrix_ref<std::int32_t>(choices.data(), 1, 2));
  // 8 more bytes that keep arrays aligned.
  CHECK(of_choices.largest() == 1024 * (16 + 2 * 2) + 2 * 16 + 2 * 8 + 64);
  counting_resource of_curve;
  plimsoll::knapsack_curve(plimsoll::seq(of_curve), in.weights(), in.values(), options,
                           plimsoll::matrix_ref<double>(best.data(), 1, 1024));
  CHECK(of_curve.largest() == 1024 * 16 + 2 * 16 + 2 * 8 + 64);
}

TEST_CASE("knapsack_curve: the capacity is checked before the shape that depends on it") {
  std::vector<std::int64_t> const weights{1, 2};
  std::vector<double> const values{3, 4};
  std::vector<double> best(4);
  auto const run = [&](index_t capacity) {
    plimsoll::knapsack_curve(
        plimsoll::seq, plimsoll::tensor_ref<std::int64_t const>(weights.data(), 1, 1, 2),
        plimsoll::tensor_ref<double const>(values.data(), 1, 1, 2), {.capacity = capacity},
        plimsoll::matrix_ref<double>(best.data(), 1, 4));
  };
  CHECK_THROWS_WITH_AS(run(-1),
                       "knapsack_curve: options.capacity: expected 0 to 1073741824 units of "
                       "weight, got -1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(std::numeric_limits<index_t>::max()),
                       "knapsack_curve: options.capacity: expected 0 to 1073741824 units of "
                       "weight, got 9223372036854775807",
                       plimsoll::invalid_input);
}

}  // namespace plimsoll_test

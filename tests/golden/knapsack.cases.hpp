// SPDX-License-Identifier: Apache-2.0
// Multiple-choice knapsacks solved as integer programs, against ours: every capacity of a case, at
// most and exactly, in one call, one by one, and read off the curve.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/knapsack.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

/// Every problem has the same weights.
struct shared_weights {
  std::int64_t const* weights;  ///< [classes, width]
  index_t width;
  PLIMSOLL_HD std::int64_t operator()(index_t, index_t l, index_t k) const {
    return weights[l * width + k];
  }
};

struct knapsack_case {
  index_t classes;
  index_t width;
  index_t queries;
  std::vector<std::int64_t> weights;
  std::vector<double> values;
  std::vector<std::int32_t> counts;
  std::vector<std::int64_t> capacities;
  index_t largest;

  explicit knapsack_case(golden_case const& golden)
      : classes(golden.integer("params.classes")),
        width(golden.integer("params.options")),
        queries(golden.integer("params.queries")),
        weights(golden.array<std::int64_t>("weights")),
        values(golden.array<double>("values")),
        counts(golden.array<std::int32_t>("num_options")),
        capacities(golden.array<std::int64_t>("capacities")),
        largest(*std::max_element(capacities.begin(), capacities.end())) {
    REQUIRE(static_cast<index_t>(capacities.size()) == queries);
    REQUIRE(static_cast<index_t>(counts.size()) == classes);
    REQUIRE(static_cast<index_t>(weights.size()) == classes * width);
    REQUIRE(weights.size() == values.size());
  }

  /// Checks that the choice of a query weighs what it may and is worth `value`; -1 for
  /// `infeasible`.
  void check(std::vector<std::int32_t> const& choices, index_t query, bool exactly, bool feasible,
             double value) const {
    std::int64_t weight = 0;
    double sum = 0;
    for (index_t l = 0; l < classes; ++l) {
      std::int32_t const k = choices.at(static_cast<std::size_t>(query * classes + l));
      if (!feasible) {
        CHECK(k == -1);
        continue;
      }
      REQUIRE(k >= 0);
      REQUIRE(k < counts[static_cast<std::size_t>(l)]);
      weight += weights[static_cast<std::size_t>(l * width + k)];
      sum += values[static_cast<std::size_t>(l * width + k)];
    }
    if (feasible) {
      std::int64_t const capacity = capacities[static_cast<std::size_t>(query)];
      CHECK((exactly ? weight == capacity : weight <= capacity));
      CHECK(sum == value);
    }
  }
};

TEST_SUITE("golden.knapsack") {
  PLIMSOLL_TEST_CASE("golden: knapsack", P, PLIMSOLL_POLICIES) {
    auto const policy = make_policy<P>();
    int compared = 0;
    for (golden_case const& golden : golden_cases("knapsack")) {
      std::string const name = golden.name();
      CAPTURE(name);
      ++compared;
      knapsack_case const c(golden);
      array_in<std::int64_t, P> const weights_in(c.weights);
      array_in<double, P> const values_in(c.values);
      array_in<std::int32_t, P> const counts_in(c.counts);
      array_in<std::int64_t, P> const capacities_in(c.capacities);
      array_in<std::int32_t, P> choices(c.queries * c.classes);
      array_in<std::int32_t, P> choice(c.classes);
      array_in<double, P> best(c.largest + 1);
      auto const weights = plimsoll::generate(shared_weights{weights_in.data(), c.width}, c.queries,
                                              c.classes, c.width);
      auto values = values_in.view3(c.queries, c.classes, c.width);
      values.strides[0] = 0;
      auto counts = counts_in.view2(c.queries, c.classes);
      counts.strides[0] = 0;
      std::vector<double> numbers;
      for (bool const exactly : {false, true}) {
        CAPTURE(exactly);
        std::string const kind = exactly ? "exact" : "atmost";
        auto const fill =
            exactly ? plimsoll::knapsack_fill::exactly : plimsoll::knapsack_fill::at_most;
        auto const optimum = golden.array<double>("opt_" + kind);
        auto const feasible = golden.array<std::int32_t>("feasible_" + kind);
        CHECK(std::count(feasible.begin(), feasible.end(), 1) ==
              golden.integer("expected.num_feasible_" + kind));
        auto const certificates = plimsoll::knapsack(policy, weights, values,
                                                     {.capacity = c.largest,
                                                      .fill = fill,
                                                      .capacities = capacities_in.view1(),
                                                      .option_count = counts},
                                                     choices.view2(c.queries, c.classes));
        auto const got = choices.values();
        plimsoll::knapsack_curve(
            policy, weights_in.view3(1, c.classes, c.width), values_in.view3(1, c.classes, c.width),
            {.capacity = c.largest, .fill = fill, .option_count = counts_in.view2(1, c.classes)},
            best.view2(1, c.largest + 1));
        auto const curve = best.values();
        for (index_t q = 0; q < c.queries; ++q) {
          auto const i = static_cast<std::size_t>(q);
          CAPTURE(c.capacities[i]);
          plimsoll::certificate const& proof = certificates.at(i);
          bool const has_solution = feasible[i] != 0;
          CHECK(proof.status == (has_solution ? plimsoll::certificate_status::optimal
                                              : plimsoll::certificate_status::infeasible));
          CHECK(proof.lower_bound == proof.value);
          if (has_solution) {
            CHECK(std::abs(proof.value - optimum[i]) <= 1e-9 * std::max(1.0, std::abs(optimum[i])));
          } else {
            CHECK(proof.value == 0);
          }
          c.check(got, q, exactly, has_solution, proof.value);
          CHECK(curve[static_cast<std::size_t>(c.capacities[i])] ==
                (has_solution ? proof.value : -std::numeric_limits<double>::infinity()));

          auto const alone = plimsoll::knapsack(policy, weights_in.view3(1, c.classes, c.width),
                                                values_in.view3(1, c.classes, c.width),
                                                {.capacity = c.capacities[i],
                                                 .fill = fill,
                                                 .option_count = counts_in.view2(1, c.classes)},
                                                choice.view2(1, c.classes));
          CHECK(alone.at(0).value == proof.value);
          CHECK(alone.at(0).status == proof.status);
          CHECK(alone.at(0).work == c.classes * (c.capacities[i] + 1));
          CHECK(choice.values() == std::vector<std::int32_t>(got.begin() + q * c.classes,
                                                             got.begin() + (q + 1) * c.classes));
          numbers.push_back(proof.value);
        }
        numbers.insert(numbers.end(), got.begin(), got.end());
        numbers.insert(numbers.end(), curve.begin(), curve.end());
      }
      report_hash("golden.knapsack." + name, numbers);
    }
    CHECK(compared >= 3);
  }
}

}  // namespace plimsoll_test

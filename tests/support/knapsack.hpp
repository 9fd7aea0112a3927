// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of knapsack, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/knapsack.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"

namespace plimsoll_test::knapsack_support {

using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::class_choice;
using plimsoll::knapsack_fill;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Problems on the host. `counts` and `capacities` may be empty, as in the options.
struct knapsacks {
  index_t problems = 0;
  index_t classes = 0;
  index_t width = 0;
  longs weights;  ///< [problems, classes, width]
  reals values;   ///< [problems, classes, width]
  index_t capacity = 0;
  ints counts = {};
  longs capacities = {};

  [[nodiscard]] std::size_t at(index_t problem, index_t l, index_t k) const {
    return static_cast<std::size_t>((problem * classes + l) * width + k);
  }
  [[nodiscard]] index_t count(index_t problem, index_t l) const {
    return counts.empty() ? width : counts[static_cast<std::size_t>(problem * classes + l)];
  }
  [[nodiscard]] index_t room(index_t problem) const {
    return capacities.empty() ? capacity : capacities[static_cast<std::size_t>(problem)];
  }
};

/// Certificates that a call returned, and its output `choices` or `best`.
struct knapsack_result {
  ints choices;
  reals curve;
  std::vector<certificate> certificates;

  /// Returns the members of the certificates as numbers.
  [[nodiscard]] reals proofs() const {
    reals numbers;
    for (certificate const& c : certificates) {
      numbers.insert(numbers.end(), {c.value, c.lower_bound, static_cast<double>(c.work),
                                     static_cast<double>(c.status)});
    }
    return numbers;
  }
};

/// Problems in the memory of a policy.
template <class P, class W = std::int64_t, class V = double>
class knapsacks_in {
 public:
  explicit knapsacks_in(knapsacks const& k)
      : shape_(k),
        weights_(std::vector<W>(k.weights.begin(), k.weights.end())),
        values_(std::vector<V>(k.values.begin(), k.values.end())),
        counts_(k.counts),
        capacities_(k.capacities) {}

  [[nodiscard]] plimsoll::knapsack_options options(knapsack_fill fill, class_choice choose) const {
    plimsoll::knapsack_options result{.capacity = shape_.capacity, .fill = fill, .choice = choose};
    if (!shape_.counts.empty()) {
      result.option_count = counts_.view2(shape_.problems, shape_.classes);
    }
    if (!shape_.capacities.empty()) {
      result.capacities = capacities_.view1();
    }
    return result;
  }

  [[nodiscard]] knapsack_result solve(knapsack_fill fill, class_choice choose) const {
    array_in<std::int32_t, P> choices(shape_.problems * shape_.classes, -7);
    auto certificates =
        plimsoll::knapsack(make_policy<P>(), weights(), values(), options(fill, choose),
                           choices.view2(shape_.problems, shape_.classes));
    return {choices.values(), {}, certificates};
  }

  [[nodiscard]] knapsack_result curve(knapsack_fill fill, class_choice choose) const {
    array_in<double, P> best(shape_.problems * (shape_.capacity + 1), -7);
    auto certificates =
        plimsoll::knapsack_curve(make_policy<P>(), weights(), values(), options(fill, choose),
                                 best.view2(shape_.problems, shape_.capacity + 1));
    return {{}, best.values(), certificates};
  }

  [[nodiscard]] plimsoll::tensor_ref<W const> weights() const {
    return weights_.view3(shape_.problems, shape_.classes, shape_.width);
  }
  [[nodiscard]] plimsoll::tensor_ref<V const> values() const {
    return values_.view3(shape_.problems, shape_.classes, shape_.width);
  }

 private:
  knapsacks shape_;
  array_in<W, P> weights_;
  array_in<V, P> values_;
  array_in<std::int32_t, P> counts_;
  array_in<std::int64_t, P> capacities_;
};

/// Solution of one problem by exhaustive search.
struct every_choice {
  ints choice;  ///< the choice by the rule for ties, if sums are exact
  reals curve;  ///< [capacity + 1]

  every_choice(knapsacks const& k, index_t problem, knapsack_fill fill, class_choice choose)
      : choice(static_cast<std::size_t>(k.classes), -1),
        curve(static_cast<std::size_t>(k.capacity + 1), -infinity) {
    std::int32_t const first = choose == class_choice::one ? 0 : -1;
    index_t const room = k.room(problem);
    double best = -infinity;
    // The first class changes fastest, so that the first of equal choices is the one by the rule.
    ints picks(choice.size(), first);
    for (bool more = true; more;) {
      std::int64_t weight = 0;
      double value = 0;
      for (index_t l = 0; l < k.classes; ++l) {
        if (std::int32_t const pick = picks[static_cast<std::size_t>(l)]; pick >= 0) {
          weight += k.weights[k.at(problem, l, pick)];
          value += k.values[k.at(problem, l, pick)];
        }
      }
      for (index_t c = weight;
           c <= (fill == knapsack_fill::exactly ? std::min(weight, room) : room); ++c) {
        double& there = curve[static_cast<std::size_t>(c)];
        there = std::max(there, value);
      }
      if ((fill == knapsack_fill::exactly ? weight == room : weight <= room) && value > best) {
        best = value;
        choice = picks;
      }
      more = false;
      for (index_t l = 0; l < k.classes && !more; ++l) {
        std::int32_t& pick = picks[static_cast<std::size_t>(l)];
        more = ++pick < k.count(problem, l);
        pick = more ? pick : first;
      }
    }
  }
};

/// Checks one problem's certificate, and that its choice is valid and has the value of the
/// certificate.
inline void check_choice(knapsacks const& k, index_t problem, knapsack_fill fill,
                         class_choice choose, knapsack_result const& got, double expected) {
  certificate const& c = got.certificates.at(static_cast<std::size_t>(problem));
  index_t const room = k.room(problem);
  bool const feasible = expected != -infinity;
  CHECK(c.status == (feasible ? certificate_status::optimal : certificate_status::infeasible));
  CHECK(c.value == (feasible ? expected : 0));
  CHECK(c.lower_bound == c.value);
  CHECK(c.work == k.classes * (room + 1));
  std::int64_t weight = 0;
  double value = 0;
  bool legal = true;
  for (index_t l = 0; l < k.classes; ++l) {
    std::int32_t const pick = got.choices.at(static_cast<std::size_t>(problem * k.classes + l));
    bool const none = pick == -1 && (!feasible || choose == class_choice::at_most_one);
    legal = legal && (none || (feasible && pick >= 0 && pick < k.count(problem, l)));
    if (legal && !none) {
      weight += k.weights[k.at(problem, l, pick)];
      value += k.values[k.at(problem, l, pick)];
    }
  }
  CHECK(legal);
  if (feasible) {
    CHECK(value == expected);
    CHECK((fill == knapsack_fill::exactly ? weight == room : weight <= room));
  }
}

/// Random small problems. With `whole` values, all sums are exact.
inline knapsacks random_knapsacks(std::uint64_t seed, bool whole) {
  generator random(seed);
  knapsacks k;
  k.problems = random.between(1, 4);
  k.classes = random.between(0, 5);
  k.width = random.between(1, k.classes == 5 ? 3 : 4);
  k.capacity = random.between(0, seed % 7 == 0 ? 0 : 20);
  std::int64_t const step = seed % 5 == 0 ? 3 : 1;  // with 3, no other totals can be reached
  std::int64_t const lightest = seed % 3 == 0 ? 1 : 0;
  index_t const ragged = random.between(0, 1);
  for (index_t i = 0; i < k.problems * k.classes; ++i) {
    index_t const count = ragged == 0 ? k.width : random.between(1, k.width);
    if (ragged != 0) {
      k.counts.push_back(static_cast<std::int32_t>(count));
    }
    for (index_t o = 0; o < k.width; ++o) {
      double value = static_cast<double>(random.between(-2, 3));
      if (!whole) {
        value = random.unit() - 0.4;
        for (std::int64_t decade = random.between(0, 17); decade > 0; --decade) {
          value *= 10;  // so that sums depend on their order
        }
      }
      // Elements beyond the options are invalid: they must not be read.
      k.weights.push_back(o < count ? step * random.between(lightest, 6) : -1);
      k.values.push_back(o < count ? value : std::nan(""));
    }
  }
  if (random.between(0, 1) == 1) {
    k.capacities = random_integers(seed + 1000, k.problems, 0, k.capacity);
  }
  return k;
}

}  // namespace plimsoll_test::knapsack_support

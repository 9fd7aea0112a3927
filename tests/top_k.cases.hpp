// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/top_k.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

using plimsoll::bfloat16;
using plimsoll::float16;
using plimsoll::normalization;
using plimsoll::score_function;
using plimsoll::top_k_options;

using ints = std::vector<std::int32_t>;
using floats = std::vector<float>;

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr float infinity = std::numeric_limits<float>::infinity();

inline std::size_t at(index_t row, index_t columns, index_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

struct top_k_case {
  index_t tokens = 1;
  index_t experts = 1;
  floats scores = {};      ///< [tokens, experts]
  top_k_options how = {};  ///< without views
  floats bias = {};        ///< [experts] or empty
  index_t lists = 0;
  ints local = {};  ///< [lists, added()] or empty
  ints homes = {};  ///< [tokens] or empty

  [[nodiscard]] index_t added() const { return lists > 0 ? std::ssize(local) / lists : 0; }
  [[nodiscard]] index_t width() const { return how.k + added(); }
};

struct top_k_result {
  ints ids;
  floats weights;

  bool operator==(top_k_result const& other) const {
    return ids == other.ids && weights.size() == other.weights.size() &&
           std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0;
  }
};

// ----- element types -----------------------------------------------------------------------------

/// Converts a float to T, rounding towards 0, and back.
template <class T>
struct stored_as;
template <>
struct stored_as<float> {
  static float from(float x) { return x; }
  static float to(float x) { return x; }
};
template <>
struct stored_as<bfloat16> {
  static bfloat16 from(float x) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)};
  }
  static float to(bfloat16 x) { return x; }
};
template <>
struct stored_as<float16> {
  static float16 from(float x) {
    float const size = std::fabs(x);
    int bits = 0x7e00;
    if (size >= 65536) {
      bits = 0x7c00;
    } else if (size < 0x1p-14f) {
      bits = static_cast<int>(std::ldexp(size, 24));
    } else if (size == size) {
      int const exponent = std::ilogb(size);
      bits = ((exponent + 14) << 10) + static_cast<int>(std::ldexp(size, 10 - exponent));
    }
    return {static_cast<std::uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0))};
  }
  static float to(float16 x) { return x; }
};

// ----- the call ----------------------------------------------------------------------------------

/// Puts elements `step` apart.
template <class T>
std::vector<T> spread(std::vector<T> const& values, index_t step, T between) {
  std::vector<T> result(values.size() * static_cast<std::size_t>(step), between);
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i * static_cast<std::size_t>(step)] = values[i];
  }
  return result;
}
/// Reverses `spread`; checks that nothing was written between the elements.
template <class T>
std::vector<T> gathered(std::vector<T> const& values, index_t step, T between) {
  std::vector<T> result;
  bool untouched = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<std::size_t>(step) == 0) {
      result.push_back(values[i]);
    } else {
      untouched = untouched && values[i] == between;
    }
  }
  CHECK(untouched);
  return result;
}

/// Runs a case with the elements of all arrays `step` apart.
template <class P, class T, class Id = std::int32_t>
top_k_result top_k_of(top_k_case const& c, index_t step) {
  auto const apart = [step](auto view) {
    for (index_t& stride : view.strides) {
      stride *= step;
    }
    return view;
  };
  std::vector<T> scores;
  for (float const x : c.scores) {
    scores.push_back(stored_as<T>::from(x));
  }
  array_in<T, P> const scores_in(spread(scores, step, T{}));
  array_in<float, P> const bias(spread(c.bias, step, not_a_number));
  array_in<std::int32_t, P> const local(spread(c.local, step, -7));
  array_in<std::int32_t, P> const homes(spread(c.homes, step, -7));
  array_in<Id, P> ids(c.tokens * c.width() * step, -7);
  array_in<float, P> weights(c.tokens * c.width() * step, -7);
  top_k_options how = c.how;
  if (!c.bias.empty()) {
    how.bias = apart(plimsoll::vector_ref<float const>(bias.data(), c.experts));
  }
  if (c.lists > 0) {
    how.local_experts = apart(local.view2(c.lists, c.added()));
  }
  if (!c.homes.empty()) {
    how.homes = apart(plimsoll::vector_ref<std::int32_t const>(homes.data(), c.tokens));
  }
  plimsoll::top_k(make_policy<P>(), apart(scores_in.view2(c.tokens, c.experts)), how,
                  apart(ids.view2(c.tokens, c.width())), apart(weights.view2(c.tokens, c.width())));
  std::vector<Id> const written = gathered(ids.values(), step, Id{-7});
  return {ints(written.begin(), written.end()), gathered(weights.values(), step, -7.0f)};
}
// The checks of a case are compiled once for all policies.
using top_k_fn = top_k_result (*)(top_k_case const&, index_t);

// ----- the oracle --------------------------------------------------------------------------------

/// Sorts indices by descending value, NaN after all numbers, of equal values the lower index first.
inline std::vector<index_t> by_value(floats const& values) {
  std::vector<index_t> order(values.size());
  std::iota(order.begin(), order.end(), index_t{0});
  std::stable_sort(order.begin(), order.end(), [&](index_t a, index_t b) {
    float const x = values[static_cast<std::size_t>(a)];
    float const y = values[static_cast<std::size_t>(b)];
    return x > y || (x == x && y != y);
  });
  return order;
}

struct expected_row {
  ints ids;
  std::vector<double> weights;
};

/// Computes the row of one token by sorting.
inline expected_row expected_of(top_k_case const& c, index_t token) {
  top_k_options const& how = c.how;
  auto const n = static_cast<std::size_t>(c.experts);
  floats const row(c.scores.begin() + token * c.experts,
                   c.scores.begin() + (token + 1) * c.experts);
  std::vector<double> score(row.begin(), row.end());
  if (how.function == score_function::sigmoid) {
    for (double& x : score) {
      x = 1 / (1 + std::exp(-x));
    }
  } else if (how.function == score_function::softmax) {
    double highest = -infinity;
    for (double const x : score) {
      highest = x > highest ? x : highest;
    }
    double sum = 0;
    for (double& x : score) {
      x = std::exp(x - highest);
      sum += x == x ? x : 0;
    }
    for (double& x : score) {
      x /= sum;
    }
  }

  // Sums need scores; else experts are ranked by the router's outputs.
  floats choice = row;
  if (!c.bias.empty() || (how.groups > 1 && how.best_of_group > 1)) {
    for (std::size_t e = 0; e < n; ++e) {
      choice[e] = static_cast<float>(score[e]) + (c.bias.empty() ? 0 : c.bias[e]);
    }
  }
  std::vector<index_t> order = by_value(choice);
  if (how.groups > 1) {
    index_t const size = c.experts / how.groups;
    floats of_group;
    for (index_t g = 0; g < how.groups; ++g) {
      floats const own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::vector<index_t> const best = by_value(own);
      of_group.push_back(own[static_cast<std::size_t>(best[0])]);
      for (std::size_t i = 1; i < static_cast<std::size_t>(how.best_of_group); ++i) {
        of_group.back() += own[static_cast<std::size_t>(best[i])];
      }
    }
    std::vector<index_t> groups = by_value(of_group);
    groups.resize(static_cast<std::size_t>(how.kept_groups));
    std::erase_if(order, [&](index_t e) {
      return std::find(groups.begin(), groups.end(), e / size) == groups.end();
    });
  }
  expected_row result;
  result.ids.assign(order.begin(), order.begin() + how.k);

  double sum = 1;
  if (how.normalize == normalization::to_one) {
    sum = 0;
    for (std::int32_t const e : result.ids) {
      sum += score[static_cast<std::size_t>(e)];
    }
    sum = sum < 1e-20 ? 1e-20 : sum;
  }
  index_t const home = c.homes.empty() ? 0 : c.homes[static_cast<std::size_t>(token)];
  for (index_t i = 0; i < c.added(); ++i) {
    std::int32_t e = -2;
    if (home >= 0 && home < c.lists) {
      e = c.local[at(home, c.added(), i)];
      bool const there = std::find(result.ids.begin(), result.ids.end(), e) != result.ids.end();
      e = there ? -1 : e;
    }
    result.ids.push_back(e);
  }
  for (std::int32_t const e : result.ids) {
    bool const is_expert = e >= 0 && e < c.experts;
    result.weights.push_back(is_expert ? score[static_cast<std::size_t>(e)] / sum * how.scale : 0);
  }
  return result;
}

/// Compares a weight; a NaN must have the bits of the one that the library writes.
inline bool is_near(float got, double expected) {
  if (got != got && std::bit_cast<std::uint32_t>(got) != 0x7fc00000) {
    return false;
  }
  if (expected != expected || std::isinf(expected)) {
    return expected == expected ? static_cast<double>(got) == expected : got != got;
  }
  return std::fabs(static_cast<double>(got) - expected) <= 1e-6 * std::fabs(expected) + 1e-44;
}

inline void check_top_k(top_k_case const& c, top_k_result const& got) {
  REQUIRE(std::ssize(got.ids) == c.tokens * c.width());
  for (index_t token = 0; token < c.tokens; ++token) {
    CAPTURE(token);
    expected_row const expected = expected_of(c, token);
    auto const begin = static_cast<std::ptrdiff_t>(token * c.width());
    CHECK(ints(got.ids.begin() + begin, got.ids.begin() + begin + c.width()) == expected.ids);
    for (index_t j = 0; j < c.width(); ++j) {
      CAPTURE(j);
      float const weight = got.weights[at(token, c.width(), j)];
      double const wanted = expected.weights[static_cast<std::size_t>(j)];
      CAPTURE(weight);
      CAPTURE(wanted);
      CHECK(is_near(weight, wanted));
    }
  }
}

// ----- cases -------------------------------------------------------------------------------------

/// Draws a case with random options; scores have no ties, many ties, or also NaN, infinities and
/// zeros.
inline top_k_case random_top_k(std::uint64_t seed) {
  generator random(seed);
  auto const among = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random.between(low, high));
  };
  auto const one_of = [&](std::vector<index_t> const& values) {
    return values[static_cast<std::size_t>(random.between(0, std::ssize(values) - 1))];
  };
  top_k_case c;
  c.tokens = among(1, 5);
  c.experts = one_of({1, 2, 3, 8, 16, 17, 24, 32, 33, 64, 160, 256});
  top_k_options& how = c.how;
  how.k = std::min(c.experts, one_of({1, 2, 3, 8, c.experts}));
  how.function = static_cast<score_function>(among(0, 2));
  how.normalize = static_cast<normalization>(among(0, 1));
  how.scale = among(0, 1) == 0 ? 1 : 2.5;
  how.groups = one_of({1, 2, 4, 8});
  if (c.experts % how.groups != 0) {
    how.groups = 1;
  }
  index_t const size = c.experts / how.groups;
  how.kept_groups = random.between((how.k + size - 1) / size, how.groups);
  how.best_of_group = random.between(1, std::min(size, index_t{3}));

  int const kind = among(0, 2);
  // Terms of a sum should not cancel.
  bool const positive = how.function == score_function::none && how.normalize != normalization{};
  auto const number = [&]() -> float {
    double const x = kind == 0 ? random.unit() * 16 - 8 : 0.5 * among(-8, 8);
    return static_cast<float>(positive ? std::fabs(x) : x);
  };
  auto const value = [&] {
    int const what = kind == 2 ? among(0, 20) : 20;
    return what == 0               ? not_a_number
           : what == 1             ? -0.0f
           : what == 2             ? 0.0f
           : what == 3             ? infinity
           : what < 6 && !positive ? -infinity
                                   : number();
  };
  for (index_t token = 0; token < c.tokens; ++token) {
    for (index_t e = 0; e < c.experts; ++e) {
      c.scores.push_back(value());
    }
  }
  if (among(0, 1) == 0) {
    for (index_t e = 0; e < c.experts; ++e) {
      c.bias.push_back(kind == 2 && among(0, 9) == 0 ? -infinity
                                                     : static_cast<float>(among(-4, 4)) / 4);
    }
  }
  if (among(0, 1) == 0) {
    c.lists = among(1, 3);
    c.local.resize(at(c.lists, among(1, 5), 0));
    for (std::int32_t& e : c.local) {
      e = among(-3, static_cast<std::int32_t>(c.experts) + 2);
    }
    for (index_t token = 0; token < c.tokens && seed % 4 > 0; ++token) {
      c.homes.push_back(among(-1, static_cast<std::int32_t>(c.lists)));
    }
  }
  return c;
}

/// Returns a case of one token.
inline top_k_case one_token(floats const& scores, top_k_options const& how) {
  return {.experts = std::ssize(scores), .scores = scores, .how = how};
}

inline void check_by_hand(top_k_fn top_k_of) {
  ints all_ids;
  floats all_weights;
  auto const check = [&](top_k_case const& c, ints const& ids, floats const& weights) {
    top_k_result const got = top_k_of(c, 1);
    CHECK(got.ids == ids);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      CAPTURE(i);
      CHECK(is_near(got.weights[i], static_cast<double>(weights[i])));
    }
    all_ids.insert(all_ids.end(), got.ids.begin(), got.ids.end());
    all_weights.insert(all_weights.end(), got.weights.begin(), got.weights.end());
  };
  // Of equal scores the lower id; both zeros are equal; NaN after all numbers, also after -inf.
  check(one_token({5, 5, 5, 5}, {.k = 3}), {0, 1, 2}, {5, 5, 5});
  check(one_token({-0.0f, 0, -0.0f, 0}, {.k = 4}), {0, 1, 2, 3}, {0, 0, 0, 0});
  check(one_token({not_a_number, -infinity, 1, -not_a_number, infinity, 3}, {.k = 4}), {4, 5, 2, 1},
        {infinity, 3, 1, -infinity});
  check(one_token({not_a_number, -infinity, -not_a_number}, {.k = 3}), {1, 0, 2},
        {-infinity, not_a_number, not_a_number});
  // A NaN does not change the weights of others; -inf has a weight of 0.
  top_k_options const softmax{.k = 4, .function = score_function::softmax};
  float const e = 2.7182818f;
  float const sum = 1 + e + e * e;
  check(one_token({1, not_a_number, 2, 0, -infinity}, softmax), {2, 0, 3, 4},
        {e * e / sum, e / sum, 1 / sum, 0});
  check(one_token({1, not_a_number, 2, 0}, softmax), {2, 0, 3, 1},
        {e * e / sum, e / sum, 1 / sum, not_a_number});
  // If the highest logit is infinite, all weights are NaN.
  floats const none(4, not_a_number);
  check(one_token({1, infinity, 2, not_a_number}, softmax), {1, 2, 0, 3}, none);
  check(one_token({not_a_number, -infinity, -infinity, -infinity}, softmax), {1, 2, 3, 0}, none);
  // Logits far apart: no overflow, and experts of weight 0 are in the order of logits.
  check(one_token({-3e38f, 3e38f, -1e38f, 0}, softmax), {1, 3, 2, 0}, {1, 0, 0, 0});
  check(one_token({0, 50, 100, -100}, {.k = 4, .function = score_function::sigmoid}), {2, 1, 0, 3},
        {1, 1, 0.5f, 3.783506e-44f});
  // A bias changes the selection, not the weights; it can exclude an expert.
  top_k_case biased = one_token({1, 2, 3, 4}, {.k = 3});
  biased.bias = {5, 0, 0, -infinity};
  check(biased, {0, 2, 1}, {1, 3, 2});
  biased.how.normalize = normalization::to_one;
  biased.how.scale = 12;
  check(biased, {0, 2, 1}, {2, 6, 4});
  check(one_token({0, 0}, {.k = 2, .normalize = normalization::to_one}), {0, 1}, {0, 0});
  // Groups rank by their best expert, or by their best two; of equal groups the lower is kept.
  top_k_options groups{.k = 2, .groups = 3, .kept_groups = 1, .best_of_group = 1};
  check(one_token({6, 1, 5, 5, 9, 0}, groups), {4, 5}, {9, 0});
  groups.best_of_group = 2;
  check(one_token({6, 1, 5, 5, 9, 0}, groups), {2, 3}, {5, 5});
  check(one_token({6, 4, 5, 5, 0, 10}, groups), {0, 1}, {6, 4});
  check(one_token({9, -20, 5, 5, 8, -30}, {.k = 2, .groups = 3, .best_of_group = 1}), {0, 1},
        {9, -20});
  groups.kept_groups = 2;
  check(one_token({6, 1, 5, 5, 9, 0}, groups), {4, 2}, {9, 5});
  // NaN in groups.
  check(one_token({not_a_number, 9, 1, 1, not_a_number, 3}, groups), {1, 2}, {9, 1});
  // Local experts after the choices: some are chosen or listed already, some ids are invalid.
  top_k_case local{.tokens = 4,
                   .experts = 4,
                   .scores = {4, 7, 5, 6, 4, 7, 5, 6, 4, 7, 5, 6, 4, 7, 5, 6},
                   .how = {.k = 2, .scale = 2},
                   .lists = 2,
                   .local = {3, 0, 0, -1, 99, -4, 99, 2, 1, 2, 0, 4, -1, -2},
                   .homes = {0, 1, -1, 2}};
  ints const first{1, 3, -1, 0, -1, -1, 99, -4, -1};
  ints const second{1, 3, 2, -1, -1, 0, 4, -1, -2};
  ints const nobody{1, 3, -2, -2, -2, -2, -2, -2, -2};
  ints ids = first;
  for (ints const* row : {&second, &nobody, &nobody}) {
    ids.insert(ids.end(), row->begin(), row->end());
  }
  floats weights(36, 0);
  for (std::size_t token = 0; token < 4; ++token) {
    weights[9 * token] = 14;
    weights[9 * token + 1] = 12;
  }
  weights[3] = 8;
  weights[11] = 10;
  weights[14] = 8;
  check(local, ids, weights);
  local.homes.clear();
  local.tokens = 1;
  check(local, first, {14, 12, 0, 8, 0, 0, 0, 0, 0});
  report_hash("top_k.by_hand", all_ids, all_weights);
}

PLIMSOLL_TEST_CASE("top_k: by hand", P, PLIMSOLL_POLICIES) { check_by_hand(top_k_of<P, float>); }

inline void check_all_kinds(top_k_fn top_k_of) {
  ints ids;
  floats weights;
  auto const check = [&](top_k_case const& c, index_t step) {
    top_k_result const got = top_k_of(c, step);
    check_top_k(c, got);
    ids.insert(ids.end(), got.ids.begin(), got.ids.end());
    weights.insert(weights.end(), got.weights.begin(), got.weights.end());
  };
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    CAPTURE(seed);
    check(random_top_k(seed), seed % 5 == 0 ? 3 : 1);
  }
  // Many tokens, many choices, and the largest number of experts.
  for (auto const& shape :
       {std::array<index_t, 3>{1000, 16, 4}, {3, 3000, 700}, {2, plimsoll::expert_limit, 9}}) {
    top_k_case c;
    c.tokens = shape[0];
    c.experts = shape[1];
    CAPTURE(c.experts);
    c.how = {
        .k = shape[2], .function = score_function::softmax, .normalize = normalization::to_one};
    for (double const x : random_reals(7, c.tokens * c.experts)) {
      c.scores.push_back(static_cast<float>(std::log(std::fabs(x))));
    }
    check(c, 1);
  }
  report_hash("top_k.all_kinds", ids, weights);
}

PLIMSOLL_TEST_CASE("top_k: random options", P, PLIMSOLL_POLICIES) {
  check_all_kinds(top_k_of<P, float>);
}

/// Checks that scores of a type give the same result as the same numbers as floats, and ids of a
/// type the same as int32.
template <class P, class T, class Id = std::int32_t>
void check_type() {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    top_k_case c = random_top_k(seed);
    for (float& x : c.scores) {
      x = stored_as<T>::to(stored_as<T>::from(x));
    }
    CHECK(top_k_of<P, T, Id>(c, 1 + static_cast<index_t>(seed % 2)) == top_k_of<P, float>(c, 1));
  }
}

PLIMSOLL_TEST_CASE("top_k: scores of 16 bits, ids of 64 bits", P, PLIMSOLL_POLICIES) {
  check_type<P, float16>();
  check_type<P, bfloat16, std::int64_t>();
}

PLIMSOLL_TEST_CASE("top_k: no tokens, one expert", P, PLIMSOLL_POLICIES) {
  CHECK(top_k_of<P, float>({.tokens = 0, .experts = 3, .how = {.k = 2}}, 1).ids.empty());
  // One group of one expert: the default best_of_group, 2, does not matter.
  top_k_result const one = top_k_of<P, float>(
      one_token({-3}, {.k = 1, .function = score_function::softmax, .scale = 0.25}), 2);
  CHECK(one.ids == ints{0});
  CHECK(one.weights == floats{0.25f});
}

struct top_k_refusal {
  top_k_options how;
  std::string message;
  index_t tokens = 5;
  index_t experts = 8;
  index_t ids[2] = {5, 3};
  index_t weights[2] = {5, 3};
};

inline std::vector<top_k_refusal> top_k_refusals() {
  static float const bias[7] = {};
  static std::int32_t const homes[5] = {};
  top_k_options const good{.k = 3};
  std::vector<top_k_refusal> result;
  auto const option = [&](auto member, auto value, std::string const& message) {
    result.push_back({good, "top_k: options." + message});
    result.back().how.*member = value;
  };
  using how = top_k_options;
  option(&how::k, 0, "k: expected 1 to 8 experts, got 0");
  option(&how::k, 9, "k: expected 1 to 8 experts, got 9");
  option(&how::groups, 0, "groups: expected 1 to 8 groups, got 0");
  option(&how::groups, 9, "groups: expected 1 to 8 groups, got 9");
  option(&how::groups, 3, "groups: expected a divisor of 8 experts, got 3");
  option(&how::groups, 4, "kept_groups: expected 2 to 4 groups, got 1");
  option(&how::kept_groups, 0, "kept_groups: expected 1 to 1 groups, got 0");
  option(&how::kept_groups, 2, "kept_groups: expected 1 to 1 groups, got 2");
  option(&how::groups, 2, "best_of_group: expected 1 to 4 experts, got 0");
  result.back().how.best_of_group = 0;
  option(&how::groups, 2, "best_of_group: expected 1 to 4 experts, got 5");
  result.back().how.best_of_group = 5;
  option(&how::normalize, normalization::to_sum, "normalize: expected none or to_one, got to_sum");
  std::string const scale = "scale: expected a number from 2^-64 to 2^64, got ";
  option(&how::scale, 0, scale + "0");
  option(&how::scale, -1, scale + "-1");
  option(&how::scale, 0x1p65, scale + "36893488147419103232");
  option(&how::scale, std::numeric_limits<double>::quiet_NaN(), scale + "NaN");
  option(&how::bias, plimsoll::vector_ref<float const>(bias, 7), "bias: expected 8 experts, got 7");
  option(&how::homes, plimsoll::vector_ref<std::int32_t const>(homes, 4),
         "homes: expected 5 tokens, got 4");
  auto const shape = [&](std::string const& message) -> top_k_refusal& {
    return result.emplace_back(top_k_refusal{good, "top_k: " + message});
  };
  shape("scores: expected 1 to 65535 experts, got 0").experts = 0;
  shape("scores: expected 1 to 65535 experts, got 65536").experts = 65536;
  shape("scores: expected 0 to 715827882 tokens (below 2^31 candidates), got 715827883").tokens =
      715827883;
  shape("topk_ids: expected 5 tokens, got 4").ids[0] = 4;
  shape("topk_ids: expected 3 candidates, got 8").ids[1] = 8;
  shape("topk_weights: expected 5 tokens, got 6").weights[0] = 6;
  shape("topk_weights: expected 3 candidates, got 2").weights[1] = 2;
  // Local experts count as candidates.
  top_k_refusal local{good, "top_k: topk_ids: expected 10 candidates, got 3"};
  local.how.local_experts = {homes, 0, 7};
  result.push_back(local);
  local.message =
      "top_k: scores: expected 0 to 214748364 tokens (below 2^31 candidates), got "
      "214748365";
  local.tokens = 214748365;
  result.push_back(local);
  return result;
}

// Views have too little memory: every call is refused before it reads any.
using top_k_call = void (*)(plimsoll::matrix_ref<float const>, top_k_options const&,
                            plimsoll::matrix_ref<std::int32_t>, plimsoll::matrix_ref<float>);

inline void check_refusals(top_k_call call) {
  float real = 0;
  std::int32_t whole = 0;
  for (top_k_refusal const& bad : top_k_refusals()) {
    std::string got = "nothing";
    try {
      call({&real, bad.tokens, bad.experts}, bad.how, {&whole, bad.ids[0], bad.ids[1]},
           {&real, bad.weights[0], bad.weights[1]});
    } catch (plimsoll::invalid_input const& error) {
      got = error.what();
    }
    CHECK(got == bad.message);
  }
}

PLIMSOLL_TEST_CASE("top_k: refuses invalid input", P, PLIMSOLL_POLICIES) {
  check_refusals([](plimsoll::matrix_ref<float const> scores, top_k_options const& how,
                    plimsoll::matrix_ref<std::int32_t> ids, plimsoll::matrix_ref<float> weights) {
    plimsoll::top_k(make_policy<P>(), scores, how, ids, weights);
  });
}

}  // namespace plimsoll_test

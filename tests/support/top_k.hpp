// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of top_k, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/top_k.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace plimsoll_test::top_k_support {

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

#if defined(__CUDACC__)
// CUDA's own conversions, which are independent of Plimsoll's.
template <>
struct stored_as<__half> {
  static __half from(float x) { return __float2half(x); }
  static float to(__half x) { return __half2float(x); }
};
template <>
struct stored_as<__nv_bfloat16> {
  static __nv_bfloat16 from(float x) { return __float2bfloat16(x); }
  static float to(__nv_bfloat16 x) { return __bfloat162float(x); }
};
#endif

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

}  // namespace plimsoll_test::top_k_support

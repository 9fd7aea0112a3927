// SPDX-License-Identifier: Apache-2.0
// Tests of top_k under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/top_k.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/top_k.hpp"

namespace plimsoll_test {

using namespace top_k_support;

// ----- cases -------------------------------------------------------------------------------------

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

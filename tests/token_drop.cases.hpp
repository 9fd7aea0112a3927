// SPDX-License-Identifier: Apache-2.0
// Tests of token_drop under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/token_drop.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/token_drop.hpp"

namespace plimsoll_test {

using namespace token_drop_support;

PLIMSOLL_TEST_CASE("token_drop: four tokens by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  // Tokens 0, 1 and 2 choose expert 0, which keeps the two of them with the largest weights.
  drop_case c{.tokens = 4, .logits = {2, 0, 3, 0, 1, 0, 0, 1}};
  c.options = {.route = {.k = 1}, .limit = {.experts = 2, .max_tokens = 4, .factor = 1}};
  drop_result const got = drop_of<P>(c);
  CHECK(got.ids == ints{0, 0, -1, 1});
  CHECK(got.counts == ints{2, 1});
  CHECK(got.weights[1] == doctest::Approx(1 / (1 + std::exp(-3.0))));
  CHECK(got.weights[2] == 0);
  CHECK(got.report.dropped_fraction == 0.25);
}

inline void check_literal(drop_fn drop_of) {
  fnv1a all;
  index_t displaced = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (index_t const ranks : {0, 4}) {
      for (double const factor : {0.01, 0.5, 1.0, 1.7}) {
        CAPTURE(seed);
        CAPTURE(ranks);
        CAPTURE(factor);
        drop_case c = make_drop_case(seed, 30 + static_cast<index_t>(seed), 8, 2, ranks);
        c.options.limit.factor = factor;
        drop_case literal = c;
        literal.options.limit = plimsoll::literal_token_drop(c.options.limit);
        drop_result const got = drop_of(literal);
        std::vector<std::vector<bool>> kept(static_cast<std::size_t>(c.tokens),
                                            std::vector<bool>(8, false));
        bool weighed = true;
        for (std::size_t i = 0; i < got.ids.size(); ++i) {
          if (got.ids[i] >= 0) {
            kept[i / static_cast<std::size_t>(c.width())][static_cast<std::size_t>(got.ids[i])] =
                true;
          }
          weighed = weighed && (got.weights[i] > 0) == (got.ids[i] >= 0);
        }
        CHECK(weighed);
        CHECK((kept == as_in_the_paper(literal)));
        // By the paper's text, expanded candidates change nothing for a token's own choices.
        drop_case alone = c;
        alone.local.clear();
        alone.local_width = 0;
        alone.homes.clear();
        drop_result const extended = drop_of(c);
        CHECK(extended.report.kept_choices == drop_of(alone).report.kept);
        displaced += extended.report.kept_choices - got.report.kept_choices;
        all.add(got.ids);
        all.add(extended.ids);
      }
    }
  }
  CHECK(displaced > 0);
  report_hash("token_drop.literal", all.value());
}

PLIMSOLL_TEST_CASE("token_drop: the paper's algorithms", P, PLIMSOLL_PREPARED_POLICIES) {
  check_literal(drop_of<P>);
}

inline void check_parts(drop_fn drop_of, drop_fn parts_of) {
  using plimsoll::drop_policy;
  using plimsoll::normalization;
  std::vector<drop_case> cases;
  cases.push_back(make_drop_case(1, 50, 8, 2, 0));
  cases.push_back(make_drop_case(2, 300, 16, 4, 4));
  cases.back().options.limit.factor = 0.75;
  cases.back().options.limit.normalize = normalization::to_one;
  // Lists with a -1 and one expert twice; tokens of all homes and of invalid ones.
  drop_case odd = make_drop_case(3, 60, 8, 2, 2);
  odd.local = {0, -1, 2, 2, 7, 1, 4, 5};
  odd.homes[3] = -1;
  odd.homes[4] = 2;
  odd.options.limit.classes = 3;
  odd.options.limit.expert_drop = 0.25;
  odd.options.limit.max_selected = 3;
  odd.options.limit.ranks = 3;
  for (std::int32_t t = 0; t < 60; ++t) {
    odd.priorities.push_back(t % 4 - 1);
  }
  cases.push_back(odd);
  odd.options.function = plimsoll::score_function::sigmoid;
  odd.options.route.normalize = normalization::to_one;
  odd.options.route.scale = 2.5;
  odd.options.route.groups = 2;
  odd.options.limit.drop_by = drop_policy::random;
  odd.options.limit.seed = 9;
  odd.options.limit.normalize = normalization::to_sum;
  odd.stream = 4;
  odd.first_token = 1000;
  cases.push_back(odd);
  // Without homes, all tokens are at the first.
  odd.homes.clear();
  cases.push_back(odd);
  cases.push_back(make_drop_case(5, 0, 8, 2, 2));
  cases.push_back(make_drop_case(6, 1, 1, 1, 1));
  fnv1a all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    drop_result const got = drop_of(cases[i]);
    CHECK(difference(got, parts_of(cases[i])) == "");
    all.add(got.ids);
    all.add(got.weights);
    all.add(got.positions);
    all.add(got.offsets);
    all.add(numbers_in(got.report));
  }
  drop_result const got = drop_of(cases[2]);
  CHECK(got.report.out_of_range == 2 * 4);  // two tokens of an invalid home
  CHECK(got.report.unrouted > 0);
  CHECK(got.report.unknown_class > 0);
  CHECK(got.report.kept > got.report.kept_choices);
  CHECK(drop_of(cases[3]).ids != drop_of(cases[4]).ids);
  report_hash("token_drop.parts", all.value());
}

PLIMSOLL_TEST_CASE("token_drop: top_k, then capacity_mask", P, PLIMSOLL_PREPARED_POLICIES) {
  check_parts(drop_of<P>, parts_of<P>);
}

inline void check_same(drop_result const& got, drop_result const& expected) {
  CHECK(difference(got, expected) == "");
}

PLIMSOLL_TEST_CASE("token_drop: logits of 16 bits, strides, one object", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  drop_case c = make_drop_case(11, 70, 8, 2, 2);
  std::vector<plimsoll::bfloat16> brief;
  for (float& logit : c.logits) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &logit, sizeof(bits));
    brief.push_back({static_cast<std::uint16_t>(bits >> 16)});
    bits &= 0xffff0000u;
    std::memcpy(&logit, &bits, sizeof(bits));
  }
  drop_in<P> const in(c);
  plimsoll::token_drop drop(make_policy<P>(), in.options());
  CHECK(drop.width() == 6);
  CHECK(drop.capacity(70) == 18);
  drop_result const expected = in.run(drop, in.logits());
  array_in<plimsoll::bfloat16, P> const shorter(brief);
  check_same(in.template run<std::int64_t>(drop, shorter.view2(c.tokens, c.experts())), expected);
  // A smaller batch after a larger one.
  drop_case few = c;
  few.tokens = 5;
  few.logits.resize(40);
  few.homes.resize(5);
  drop_in<P> const in_few(few);
  check_same(in_few.run(drop, in_few.logits()), in_few.run_parts());
  // Every second logit of a wider matrix.
  floats wide(2 * c.logits.size(), 100);
  for (std::size_t i = 0; i < c.logits.size(); ++i) {
    wide[2 * i] = c.logits[i];
  }
  array_in<float, P> const spread(wide);
  auto view = spread.view2(c.tokens, c.experts());
  view.strides[0] = 2 * c.experts();
  view.strides[1] = 2;
  check_same(in.run(drop, view), expected);
  // Lists of local experts in column-major order.
  token_drop_options turned = in.options();
  auto const& lists = turned.route.local_experts;
  ints columns;
  for (index_t i = 0; i < lists.extent(1); ++i) {
    for (index_t home = 0; home < lists.extent(0); ++home) {
      columns.push_back(c.local[static_cast<std::size_t>(home * lists.extent(1) + i)]);
    }
  }
  array_in<std::int32_t, P> const by_column(columns);
  auto const homes = lists.extent(0);
  turned.route.local_experts = by_column.view2(homes, lists.extent(1));
  turned.route.local_experts.strides[0] = 1;
  turned.route.local_experts.strides[1] = homes;
  plimsoll::token_drop drop_turned(make_policy<P>(), turned);
  check_same(in.run(drop_turned, in.logits()), expected);
}

/// Views the elements of a matrix as a vector.
inline plimsoll::vector_ref<std::int32_t const> elements_of(
    plimsoll::matrix_ref<std::int32_t const> const& matrix) {
  return {matrix.data, matrix.extent(0) * matrix.extent(1)};
}

struct refused_drop {
  drop_case c;
  std::string message;
};

inline std::vector<refused_drop> refusals() {
  std::vector<refused_drop> all;
  auto const next = [&](std::string message) -> drop_case& {
    all.push_back({make_drop_case(1, 6, 8, 2, 2), std::move(message)});
    return all.back().c;
  };
  next("token_drop: options.route.k: expected 1 to 8 experts, got 0").options.route.k = 0;
  next("token_drop: options.route.k: expected 1 to 8 experts, got 9").options.route.k = 9;
  next("token_drop: scores: expected 1 to 65535 experts, got 0").options.limit.experts = 0;
  next("token_drop: options.route.groups: expected a divisor of 8 experts, got 3")
      .options.route.groups = 3;
  next("token_drop: options.route.normalize: expected none or to_one, got to_sum")
      .options.route.normalize = plimsoll::normalization::to_sum;
  next("token_drop: options.route.scale: expected a number from 2^-64 to 2^64, got 0")
      .options.route.scale = 0;
  next("token_drop: options.route.local_experts: expected -1 or an expert, got 8 for home 1")
      .local[5] = 8;
  next("token_drop: options.route.local_experts: expected -1 or an expert, got -2 for home 0")
      .local[2] = -2;
  next(
      "token_drop: options.route.function: expected none, as options.function applies, got "
      "sigmoid")
      .options.route.function = plimsoll::score_function::sigmoid;
  next("token_drop: options.limit.factor: expected at least 0, got -1").options.limit.factor = -1;
  next(
      "token_drop: options.limit.max_tokens: expected 0 to 357913941 tokens (below 2^31 pairs), "
      "got "
      "-1")
      .options.limit.max_tokens = -1;
  return all;
}

PLIMSOLL_TEST_CASE("token_drop: refuses invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (refused_drop const& bad : refusals()) {
    drop_in<P> const in(bad.c);
    check_message(refusal_of([&] { plimsoll::token_drop drop(policy, in.options()); }),
                  bad.message);
  }
  drop_case const c = make_drop_case(1, 6, 8, 2, 2);
  drop_in<P> const in(c);
  token_drop_options biased = in.options();
  array_in<float, P> const bias(7);
  biased.route.bias = bias.view1();
  CHECK(refusal_of([&] { plimsoll::token_drop drop(policy, biased); }) ==
        "token_drop: options.route.bias: expected 8 experts, got 7");
  array_in<std::int32_t, P> const numbers(40);
  token_drop_options placed = in.options();
  placed.route.homes = {numbers.data(), 6};
  CHECK(refusal_of([&] { plimsoll::token_drop drop(policy, placed); }) ==
        "token_drop: options.route.homes: expected none, as batch.homes applies, got 6 tokens");

  // The function may be set twice to the same value.
  token_drop_options twice = in.options();
  twice.route.function = twice.function;
  plimsoll::token_drop drop(policy, twice);
  array_in<float, P> const logits(200);
  drop_outputs<P> out(c);
  auto const message = [&](index_t tokens, index_t experts, token_drop_batch const& batch,
                           kept_pairs const& kept) {
    return refusal_of([&] { drop.apply(logits.view2(tokens, experts), batch, kept); });
  };
  kept_pairs const good = out.views();
  CHECK(message(6, 8, {}, good) == "no error");
  CHECK(message(10, 8, {}, good) ==
        "token_drop::apply: logits: expected 0 to 9 tokens (limit.max_tokens), got 10");
  CHECK(message(6, 7, {}, good) == "token_drop::apply: logits: expected 8 experts, got 7");
  CHECK(message(6, 8, {.homes = {numbers.data(), 5}}, good) ==
        "token_drop::apply: batch.homes: expected 6 tokens, got 5");
  CHECK(message(6, 8, {.priorities = {numbers.data(), 7}}, good) ==
        "token_drop::apply: batch.priorities: expected 6 tokens, got 7");
  kept_pairs narrow = good;
  narrow.ids.extents[1] = 2;
  CHECK(message(6, 8, {}, narrow) == "token_drop::apply: kept.ids: expected 6 candidates, got 2");
  kept_pairs none = good;
  none.report = {};
  CHECK(message(6, 8, {}, none) == "token_drop::apply: kept.report: expected 1 element, got 0");
  // A refused call keeps the routed ids of the last batch.
  auto const routed = [&] { return plimsoll::read(policy, elements_of(drop.routed_ids(6))); };
  array_in<float, P> const risen(floats{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7,
                                        0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7,
                                        0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  drop.apply(logits.view2(6, 8), good);
  ints const before = routed();
  CHECK(refusal_of([&] { drop.apply(risen.view2(6, 8), narrow); }) != "no error");
  CHECK(routed() == before);
  drop.apply(risen.view2(6, 8), good);
  CHECK(routed() != before);
  CHECK(refusal_of([&] { drop.apply(logits.view2(6, 8), good); }) == "no error");
}

}  // namespace plimsoll_test

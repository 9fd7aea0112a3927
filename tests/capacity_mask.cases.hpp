// SPDX-License-Identifier: Apache-2.0
// Tests of capacity_mask under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/random.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/capacity_mask.hpp"
#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using namespace capacity_mask_support;

// ----- by hand -----------------------------------------------------------------------------------

inline void check_by_hand(mask_fn mask_of) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // Two of four tokens stay at expert 0, whose capacity is 4 * 1 / 2.
  mask_case c;
  c.options = {.experts = 2, .top_k = 1, .max_tokens = 4};
  c.tokens = 4;
  c.ids = {0, 0, 0, 1};
  c.scores = {0.5f, 0.25f, 0.75f, 0.125f};
  masked const two = mask_of(c);
  CHECK(two.ids == ints{0, -1, 0, 1});
  CHECK(two.weights == bits_of({0.5f, 0, 0.75f, 0.125f}));
  CHECK(two.positions == ints{0, -1, 1, 0});
  CHECK(two.counts == ints{2, 1});
  CHECK(two.offsets == ints{0, 2, 3});
  CHECK(numbers_in(two.report) == longs{4, 3, 4, 3, 0, 0, 0, 0, 0, 3});
  CHECK(two.report.dropped_fraction == 0.25);
  CHECK(two.report.overflow_fraction == 0.25);
  auto const kept_ids = [&](capacity_options const& o, ints const& priorities = {}) {
    mask_case other = c;
    other.options = o;
    other.priorities = priorities;
    return mask_of(other).ids;
  };
  capacity_options o = c.options;
  o.drop_by = drop_policy::order;
  CHECK(kept_ids(o) == ints{0, 0, -1, 1});
  o.drop_by = drop_policy::reverse_order;
  CHECK(kept_ids(o) == ints{-1, 0, 0, 1});
  o.drop_by = drop_policy::score;
  o.factor = 0.9;  // 1.8
  CHECK(kept_ids(o) == ints{0, -1, 0, 1});
  o.round = rounding_mode::down;
  CHECK(kept_ids(o) == ints{-1, -1, 0, 1});
  o.factor = 0.4;
  CHECK(kept_ids(o) == ints{-1, -1, 0, 1});  // at least one
  o.min_capacity = 0;
  CHECK(kept_ids(o) == ints{-1, -1, -1, -1});
  o.min_tokens = 5;
  CHECK(kept_ids(o) == ints{0, 0, 0, 1});
  o.min_tokens = 4;
  o.factor = std::numeric_limits<double>::infinity();
  CHECK(kept_ids(o) == ints{0, 0, 0, 1});
  o.max_capacity = 1;
  o.sentinel = 2;
  CHECK(kept_ids(o) == ints{2, 2, 0, 1});
  // Text has a higher priority than images; the third token is of an image.
  o = c.options;
  o.classes = 2;
  CHECK(kept_ids(o, {1, 1, 0, 0}) == ints{0, 0, -1, 1});
  // A rank with both experts has a capacity of four.
  o = c.options;
  o.ranks = 1;
  CHECK(kept_ids(o) == ints{0, 0, 0, 1});
  o.factor = 0.5;
  CHECK(kept_ids(o) == ints{0, -1, 0, -1});
  // Expert Drop: the expert that the fewest tokens chose gets none.
  o = c.options;
  o.expert_drop = 0.5;
  CHECK(kept_ids(o) == ints{0, -1, 0, -1});

  // Two choices and one expanded candidate. The lower token wins ties, NaN is last, invalid ids are
  // counted, and positions of expanded candidates come after those of top-k pairs.
  mask_case wide;
  wide.options = {.experts = 3, .top_k = 2, .candidates = 3, .max_tokens = 4, .max_capacity = 2};
  wide.options.normalize = normalization::to_sum;
  wide.options.pad = padding_mode::to_multiple;
  wide.options.multiple = 4;
  wide.tokens = 4;
  wide.ids = {0, 1, 2, 0, 0, 1, -1, 1, 0, 7, 1, 2};
  wide.scores = {0.5f, 0.5f, 0.25f, 0.5f, 1, 0.75f, 1, nan, 1, 1, 0.5f, 0.5f};
  masked const three = mask_of(wide);
  CHECK(three.ids == ints{0, 1, 2, 0, -1, -1, -1, -1, -1, -1, 1, 2});
  CHECK(three.positions == ints{0, 0, 0, 1, -1, -1, -1, -1, -1, -1, 1, 1});
  CHECK(three.weights == bits_of({0.4f, 0.4f, 0.2f, 0.5f, 0, 0, 0, 0, 0, 0, 0.25f, 0.25f}));
  CHECK(three.counts == ints{2, 2, 2});
  CHECK(three.offsets == ints{0, 4, 8, 12});
  CHECK(numbers_in(three.report) == longs{9, 6, 5, 4, 1, 1, 1, 1, 0, 12});
  CHECK(three.report.dropped_fraction == 0.2);
  wide.options.order = plimsoll::candidate_order::together;
  masked const free = mask_of(wide);
  CHECK(free.ids == ints{0, 1, 2, -1, -1, 1, -1, -1, 0, -1, -1, 2});
  wide.options.max_selected = 1;
  CHECK(mask_of(wide).ids == ints{0, -1, -1, -1, -1, 1, -1, -1, 0, -1, -1, 2});
  report_hash("capacity_mask.by_hand", two.ids, three.ids, three.weights, free.ids);
}

PLIMSOLL_TEST_CASE("capacity_mask: by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  check_by_hand(mask_of<P>);
}

// ----- random batches ----------------------------------------------------------------------------

inline void check_random(mask_fn mask_of) {
  fnv1a all;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    mask_case const c = random_mask(seed);
    check_mask(c, mask_of(c), all);
  }
  report_hash("capacity_mask.random", all.value());
}

PLIMSOLL_TEST_CASE("capacity_mask: random batches, against sorting", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_random(mask_of<P>);
}

// ----- more than one tile, many experts ----------------------------------------------------------

inline mask_case large_mask(std::uint64_t seed, index_t tokens, index_t experts, index_t k,
                            index_t more) {
  mask_draws draw(seed);
  mask_case c;
  c.tokens = tokens;
  c.options = {.experts = experts, .top_k = k, .candidates = k + more, .max_tokens = tokens + 5};
  draw_ids(c, draw, 50);
  for (index_t i = 0; i < c.pairs(); ++i) {
    c.scores.push_back(draw.score());
  }
  return c;
}

inline void check_large(mask_fn mask_of) {
  fnv1a all;
  // Ties over twelve tiles; 128 tokens of four pairs fill exactly one tile.
  for (index_t const tokens : {1500, 128, 129}) {
    for (drop_policy const keep : {drop_policy::score, drop_policy::order}) {
      mask_case c = large_mask(1, tokens, 10, 4, 0);
      c.options.drop_by = keep;
      c.options.factor = 0.8;
      check_mask(c, mask_of(c), all);
    }
  }
  // Equal scores everywhere, as of an untrained router.
  mask_case equal = large_mask(2, 1100, 4, 2, 2);
  equal.scores.assign(equal.scores.size(), 0.25f);
  equal.options.order = plimsoll::candidate_order::together;
  check_mask(equal, mask_of(equal), all);
  // Priorities, expanded candidates, ranks.
  mask_case c = large_mask(3, 700, 60, 3, 3);
  c.options.classes = 300;
  c.options.factor = 0.6;
  c.options.max_selected = 2;
  c.options.normalize = normalization::to_one;
  mask_draws draw(4);
  for (index_t t = 0; t < c.tokens; ++t) {
    c.priorities.push_back(draw.among(-1, 300));
  }
  check_mask(c, mask_of(c), all);
  for (index_t e = 0; e < c.options.experts; ++e) {
    c.rank_of.push_back(draw.among(0, 6));
  }
  c.options.ranks = 7;
  c.options.expert_drop = 0.3;
  check_mask(c, mask_of(c), all);
  // Many experts.
  mask_case many = large_mask(5, 300, 3000, 6, 2);
  many.options.pad = padding_mode::to_capacity;
  check_mask(many, mask_of(many), all);
  report_hash("capacity_mask.large", all.value());
}

PLIMSOLL_TEST_CASE("capacity_mask: many tiles, many experts", P, PLIMSOLL_PREPARED_POLICIES) {
  check_large(mask_of<P>);
}

// ----- types, strides, in place, one object ------------------------------------------------------

inline void check_same(masked const& got, masked const& expected) {
  CHECK(difference(got, expected) == "");
}

PLIMSOLL_TEST_CASE("capacity_mask: types of ids and scores", P, PLIMSOLL_PREPARED_POLICIES) {
  for (std::uint64_t seed = 3; seed < 12; ++seed) {
    CAPTURE(seed);
    mask_case half = short_scores<plimsoll::float16>(random_mask(seed));
    // Not an expert's id, though its lower half is one.
    std::replace(half.ids.begin(), half.ids.end(), std::int64_t{-2}, std::int64_t{1} << 32);
    check_same(mask_of<P, std::int64_t, plimsoll::float16>(half), mask_by_sorting(half));
    mask_case const brief = short_scores<plimsoll::bfloat16>(random_mask(seed));
    check_same(mask_of<P, std::int32_t, plimsoll::bfloat16>(brief), mask_by_sorting(brief));
  }
}

/// Views every second element of a wider array whose rows are `row` elements apart.
template <class T>
std::vector<T> spread_out(std::vector<T> const& values, index_t columns, index_t row, T gap) {
  std::vector<T> result(at(std::ssize(values) / columns * row), gap);
  for (index_t i = 0; i < std::ssize(values); ++i) {
    result[at(i / columns, row, 2 * (i % columns))] = values[at(i)];
  }
  return result;
}

PLIMSOLL_TEST_CASE("capacity_mask: strides, in place, one object", P, PLIMSOLL_PREPARED_POLICIES) {
  mask_case c = large_mask(8, 200, 6, 2, 1);
  c.options.factor = 0.7;
  c.options.classes = 3;
  c.options.max_selected = 2;
  c.options.normalize = normalization::to_sum;
  mask_draws draw(9);
  for (index_t t = 0; t < c.tokens; ++t) {
    c.priorities.push_back(draw.among(0, 2));
  }
  masked const expected = mask_by_sorting(c);
  index_t const width = c.width();
  index_t const experts = c.options.experts;
  plimsoll::capacity_mask mask(make_policy<P>(), c.options);
  array_in<capacity_report, P> report(1);

  index_t const row = 2 * width + 3;
  array_in<std::int32_t, P> const ids(spread_out(ints(c.ids.begin(), c.ids.end()), width, row, 1));
  array_in<float, P> const scores(spread_out(c.scores, width, row, 9.0f));
  array_in<std::int32_t, P> const priorities(spread_out(c.priorities, 1, 2, 2));
  array_in<std::int32_t, P> out_ids(c.tokens * row, -7);
  array_in<float, P> out_weights(c.tokens * row, 7.0f);
  array_in<std::int32_t, P> out_positions(c.tokens * row, -7);
  array_in<std::int32_t, P> out_counts(2 * experts, -7);
  array_in<std::int32_t, P> out_offsets(2 * experts + 2, -7);
  auto const spaced = [&](auto view) {
    view.extents[0] = c.tokens;
    view.extents[1] = width;
    view.strides[0] = row;
    view.strides[1] = 2;
    return view;
  };
  auto const halved = [](auto view) {
    view.extents[0] /= 2;
    view.strides[0] = 2;
    return view;
  };
  auto const seen = [&](auto const& array) { return spaced(array.view2(1, 1)); };
  auto const seen_in = [&](auto& array) { return spaced(array.view2(1, 1)); };
  mask.apply(seen(ids), seen(scores), {.priorities = halved(priorities.view1())},
             {seen_in(out_ids), seen_in(out_weights), seen_in(out_positions),
              halved(out_counts.view1()), halved(out_offsets.view1()), report.view1()});
  check_same({out_ids.values(), bits_of(out_weights.values()), out_positions.values(),
              out_counts.values(), out_offsets.values(), report.values()[0]},
             {spread_out(expected.ids, width, row, -7),
              spread_out(expected.weights, width, row, bits_of({7})[0]),
              spread_out(expected.positions, width, row, -7), spread_out(expected.counts, 1, 2, -7),
              spread_out(expected.offsets, 1, 2, -7), expected.report});

  // Outputs overwrite ids and scores, after a batch of another size.
  mask_case small = c;
  small.tokens = 3;
  small.ids.resize(at(small.pairs()));
  small.scores.resize(at(small.pairs()));
  small.priorities.resize(3);
  check_same(mask_in<P>(small).run(mask), mask_by_sorting(small));
  mask_case none = small;
  none.tokens = 0;
  none.ids.clear();
  none.scores.clear();
  none.priorities.clear();
  check_same(mask_in<P>(none).run(mask), mask_by_sorting(none));
  array_in<std::int32_t, P> own_ids(ints(c.ids.begin(), c.ids.end()));
  array_in<float, P> own_scores(c.scores);
  array_in<std::int32_t, P> const own_priorities(c.priorities);
  array_in<std::int32_t, P> counts(experts, -7);
  mask.apply(own_ids.view2(c.tokens, width), own_scores.view2(c.tokens, width),
             {.priorities = own_priorities.view1()},
             {.ids = own_ids.view2(c.tokens, width),
              .weights = own_scores.view2(c.tokens, width),
              .counts = counts.view1(),
              .report = report.view1()});
  masked in_place = expected;
  in_place.report.rows = 0;  // without offsets
  check_same({own_ids.values(), bits_of(own_scores.values()), expected.positions, counts.values(),
              expected.offsets, report.values()[0]},
             in_place);
  check_same(mask_in<P>(c).run(mask), expected);
}

// ----- refused input -----------------------------------------------------------------------------

struct refused_options {
  mask_case c;  ///< options, factors and rank_of
  std::string message;
};

inline std::vector<refused_options> refusals() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<refused_options> all;
  mask_case good;
  good.options = {.experts = 8, .top_k = 2, .max_tokens = 16};
  auto const next = [&](std::string message) -> mask_case& {
    all.push_back({good, "capacity_mask: options." + message});
    return all.back().c;
  };
  auto const with = [&](std::string message) -> capacity_options& {
    return next(std::move(message)).options;
  };
  with("experts: expected 1 to 65535 experts, got 0").experts = 0;
  with("experts: expected 1 to 65535 experts, got 65536").experts = 65536;
  with("top_k: expected 1 to 8 choices, got 0").top_k = 0;
  with("top_k: expected 1 to 8 choices, got 9").top_k = 9;
  with("candidates: expected 2 to 2147483647 columns, got 1").candidates = 1;
  with("candidates: expected 2 to 2147483647 columns, got -1").candidates = -1;
  with("max_tokens: expected 0 to 1073741823 tokens (below 2^31 pairs), got -1").max_tokens = -1;
  with("max_tokens: expected 0 to 1073741823 tokens (below 2^31 pairs), got 1073741824")
      .max_tokens = 1 << 30;
  capacity_options& wide =
      with("max_tokens: expected 0 to 429496729 tokens (below 2^31 pairs), got 429496730");
  wide.candidates = 5;
  wide.max_tokens = 429496730;
  with("factor: expected at least 0, got -1").factor = -1;
  with("factor: expected at least 0, got NaN").factor = nan;
  with("min_capacity: expected 0 to 2147483647 tokens, got -1").min_capacity = -1;
  with("min_capacity: expected 0 to 2147483647 tokens, got 2147483648").min_capacity =
      std::int64_t{1} << 31;
  with("max_capacity: expected 1 to 2147483647 tokens, got 0").max_capacity = 0;
  with("max_capacity: expected 1 to 2147483647 tokens, got 2147483648").max_capacity =
      std::int64_t{1} << 31;
  with("min_tokens: expected 0 to 9223372036854775807 tokens, got -1").min_tokens = -1;
  with("ranks: expected 0 to 32767 ranks, got -1").ranks = -1;
  with("ranks: expected 0 to 32767 ranks, got 32768").ranks = 32768;
  with("classes: expected 1 to 32768 classes, got 0").classes = 0;
  with("classes: expected 1 to 32768 classes, got 32769").classes = 32769;
  with("max_selected: expected 0 to 2 pairs, got -1").max_selected = -1;
  with("max_selected: expected 0 to 2 pairs, got 3").max_selected = 3;
  with("expert_drop: expected a share from 0 to 1, got -1").expert_drop = -1;
  with("expert_drop: expected a share from 0 to 1, got 1.5").expert_drop = 1.5;
  with("expert_drop: expected a share from 0 to 1, got NaN").expert_drop = nan;
  with("sentinel: expected no expert's id, got 0").sentinel = 0;
  with("sentinel: expected no expert's id, got 7").sentinel = 7;
  capacity_options& shared =
      with("pad: expected none or to_multiple, as ranks share a capacity, got to_capacity");
  shared.ranks = 2;
  shared.pad = padding_mode::to_capacity;
  with("multiple: expected 1 to 2147483647 rows, got 0").multiple = 0;
  with("min_rows: expected 0 to 2147483647 rows, got -1").min_rows = -1;
  with("multiple: expected 1 to 2147483647 rows, got 2147483648").multiple = std::int64_t{1} << 31;

  next("factors: expected 8 experts, got 7").factors = reals(7, 1.0);
  reals factors(8, 1.0);
  factors[3] = -0.5;
  next("factors: expected at least 0, got -0.5 for expert 3").factors = factors;
  factors[3] = 2;
  factors[7] = nan;
  next("factors: expected at least 0, got NaN for expert 7").factors = factors;
  next("ranks: expected the number of ranks in options.rank_of, got 0").rank_of = ints(8, 0);
  good.options.ranks = 3;
  next("rank_of: expected 8 experts, got 9").rank_of = ints(9, 0);
  next("rank_of: expected 0 to 2 as rank, got 3 for expert 2").rank_of = {0, 2, 3, 0, 1, 1, 1, 3};
  next("rank_of: expected 0 to 2 as rank, got -1 for expert 7").rank_of = {0, 1, 2, 0, 1, 1, 1, -1};
  return all;
}

/// Extents of a call.
struct call_shapes {
  std::array<index_t, 2> ids{6, 3};
  std::array<index_t, 2> scores{6, 3};
  index_t priorities = 6;
  std::array<index_t, 2> weights{6, 3};
  std::array<index_t, 2> kept_ids{6, 3};
  std::array<index_t, 2> kept_weights{6, 3};
  std::array<index_t, 2> positions{6, 3};
  index_t counts = 4;
  index_t offsets = 5;
  index_t report = 1;
};

struct refused_shapes {
  call_shapes x;
  std::string message;
};

inline std::vector<refused_shapes> wrong_shapes() {
  std::vector<refused_shapes> all;
  auto const with = [&](std::string message) -> call_shapes& {
    all.push_back({{}, "capacity_mask::apply: " + message});
    return all.back().x;
  };
  with("topk_ids: expected 0 to 9 tokens (options.max_tokens), got 10").ids[0] = 10;
  with("topk_ids: expected 3 candidates, got 2").ids[1] = 2;
  with("topk_scores: expected 6 tokens, got 5").scores[0] = 5;
  with("topk_scores: expected 3 candidates, got 4").scores[1] = 4;
  with("batch.priorities: expected 6 tokens, got 7").priorities = 7;
  with("batch.weights: expected 6 tokens, got 5").weights[0] = 5;
  with("batch.weights: expected 3 candidates, got 2").weights[1] = 2;
  with("kept.ids: expected 6 tokens, got 7").kept_ids[0] = 7;
  with("kept.ids: expected 3 candidates, got 1").kept_ids[1] = 1;
  with("kept.weights: expected 6 tokens, got 7").kept_weights[0] = 7;
  with("kept.weights: expected 3 candidates, got 1").kept_weights[1] = 1;
  with("kept.positions: expected 6 tokens, got 7").positions[0] = 7;
  with("kept.positions: expected 3 candidates, got 1").positions[1] = 1;
  with("kept.counts: expected 4 experts, got 3").counts = 3;
  with("kept.offsets: expected 5 offsets, got 4").offsets = 4;
  with("kept.report: expected 1 element, got 2").report = 2;
  with("kept.report: expected 1 element, got 0").report = 0;
  return all;
}

PLIMSOLL_TEST_CASE("capacity_mask: refuses invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (refused_options const& bad : refusals()) {
    mask_in<P> const in(bad.c);
    check_message(refusal_of([&] { plimsoll::capacity_mask mask(policy, in.options()); }),
                  bad.message);
  }
  capacity_options const o{.experts = 4, .top_k = 2, .candidates = 3, .max_tokens = 9};
  plimsoll::capacity_mask mask(policy, o);
  array_in<std::int32_t, P> numbers(100, 1);
  array_in<float, P> values(100, 1);
  array_in<capacity_report, P> reports(2);
  auto const message = [&](call_shapes const& x) {
    return refusal_of([&] {
      mask.apply(numbers.view2(x.ids[0], x.ids[1]), values.view2(x.scores[0], x.scores[1]),
                 {.priorities = {numbers.data(), x.priorities},
                  .weights = {values.data(), x.weights[0], x.weights[1]}},
                 {numbers.view2(x.kept_ids[0], x.kept_ids[1]),
                  values.view2(x.kept_weights[0], x.kept_weights[1]),
                  numbers.view2(x.positions[0], x.positions[1]),
                  {numbers.data(), x.counts},
                  {numbers.data(), x.offsets},
                  plimsoll::vector_ref<capacity_report>(reports.data(), x.report)});
    });
  };
  for (refused_shapes const& bad : wrong_shapes()) {
    check_message(message(bad.x), bad.message);
  }
  CHECK(numbers.values() == ints(100, 1));
  // Optional outputs may be null; counts and report may not.
  CHECK(refusal_of([&] {
          mask.apply(numbers.view2(6, 3), values.view2(6, 3),
                     {.report = plimsoll::scalar_ref<capacity_report>(reports.data())});
        }) == "capacity_mask::apply: kept.counts: expected 4 experts, got 0");
  CHECK(refusal_of([&] {
          mask.apply(numbers.view2(6, 3), values.view2(6, 3),
                     {.counts = {numbers.data() + 50, 4},
                      .report = plimsoll::scalar_ref<capacity_report>(reports.data())});
        }) == "no error");
}

}  // namespace plimsoll_test

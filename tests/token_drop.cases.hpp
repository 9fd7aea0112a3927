// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/token_drop.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using plimsoll::capacity_options;
using plimsoll::capacity_report;
using plimsoll::kept_pairs;
using plimsoll::token_drop_batch;
using plimsoll::token_drop_options;

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using floats = std::vector<float>;

/// A batch on the host.
struct drop_case {
  token_drop_options options = {};  ///< the arrays fill in the views
  index_t tokens = 0;
  floats logits = {};  ///< [tokens, experts]
  index_t local_width = 0;
  ints local = {};       ///< [homes, local_width]: experts of every home, or empty
  ints homes = {};       ///< [tokens] or empty
  ints priorities = {};  ///< the same
  std::uint64_t stream = 0;
  std::uint64_t first_token = 0;

  [[nodiscard]] index_t experts() const { return options.limit.experts; }
  [[nodiscard]] index_t width() const { return options.route.k + local_width; }
  [[nodiscard]] index_t pairs() const { return tokens * width(); }
};

struct drop_result {
  ints routed;
  ints ids;
  floats weights;
  ints positions;
  ints counts;
  ints offsets;
  capacity_report report;
};

inline longs numbers_in(capacity_report const& r) {
  return {r.routed,       r.kept,       r.choices,     r.kept_choices,  r.unrouted,
          r.out_of_range, r.duplicates, r.not_numbers, r.unknown_class, r.rows};
}

/// Returns "" or the name of the first output that differs.
inline std::string difference(drop_result const& a, drop_result const& b) {
  auto const same_bits = [](floats const& x, floats const& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return a.routed != b.routed                           ? "routed ids"
         : a.ids != b.ids                               ? "ids"
         : !same_bits(a.weights, b.weights)             ? "weights"
         : a.positions != b.positions                   ? "positions"
         : a.counts != b.counts                         ? "counts"
         : a.offsets != b.offsets                       ? "offsets"
         : numbers_in(a.report) != numbers_in(b.report) ? "report"
         : a.report.dropped_fraction != b.report.dropped_fraction ||
                 a.report.overflow_fraction != b.report.overflow_fraction
             ? "fractions"
             : "";
}

/// Outputs in the memory of a policy.
template <class P, class Id = std::int32_t>
class drop_outputs {
 public:
  explicit drop_outputs(drop_case const& c)
      : tokens_(c.tokens),
        width_(c.width()),
        ids_(c.pairs(), -99),
        weights_(c.pairs(), -99.0f),
        positions_(c.pairs(), -99),
        counts_(c.experts(), -99),
        offsets_(c.experts() + 1, -99),
        report_(1) {}
  [[nodiscard]] plimsoll::kept_pairs_of<Id> views() {
    return {ids_.view2(tokens_, width_),
            weights_.view2(tokens_, width_),
            positions_.view2(tokens_, width_),
            counts_.view1(),
            offsets_.view1(),
            report_.view1()};
  }
  [[nodiscard]] drop_result values(ints routed) const {
    std::vector<Id> const ids = ids_.values();
    return {std::move(routed),  ints(ids.begin(), ids.end()),
            weights_.values(),  positions_.values(),
            counts_.values(),   offsets_.values(),
            report_.values()[0]};
  }

 private:
  index_t tokens_;
  index_t width_;
  array_in<Id, P> ids_;
  array_in<float, P> weights_;
  array_in<std::int32_t, P> positions_;
  array_in<std::int32_t, P> counts_;
  array_in<std::int32_t, P> offsets_;
  array_in<capacity_report, P> report_;
};

/// A case in the memory of a policy.
template <class P>
class drop_in {
 public:
  explicit drop_in(drop_case const& c)
      : c_(c), logits_(c.logits), local_(c.local), homes_(c.homes), priorities_(c.priorities) {}

  [[nodiscard]] token_drop_options options() const {
    token_drop_options result = c_.options;
    if (!c_.local.empty()) {
      result.route.local_experts =
          local_.view2(std::ssize(c_.local) / c_.local_width, c_.local_width);
    }
    return result;
  }
  [[nodiscard]] plimsoll::matrix_ref<float const> logits() const {
    return logits_.view2(c_.tokens, c_.experts());
  }
  [[nodiscard]] token_drop_batch batch() const {
    return {homes_.view1(), priorities_.view1(), c_.stream, c_.first_token};
  }
  /// Runs `token_drop`.
  template <class Id = std::int32_t, class Drop, class Logits>
  [[nodiscard]] drop_result run(Drop& drop, Logits const& logits) const {
    drop_outputs<P, Id> out(c_);
    drop.apply(logits, batch(), out.views());
    return out.values(plimsoll::read(
        make_policy<P>(),
        plimsoll::vector_ref<std::int32_t const>(drop.routed_ids(c_.tokens).data, c_.pairs())));
  }
  /// Runs `top_k`, then `capacity_mask`.
  [[nodiscard]] drop_result run_parts() const {
    auto const policy = make_policy<P>();
    plimsoll::top_k_options route = options().route;
    route.function = c_.options.function;
    route.homes = homes_.view1();
    array_in<std::int32_t, P> ids(c_.pairs(), -99);
    array_in<float, P> weights(c_.pairs(), -99.0f);
    plimsoll::top_k(policy, logits(), route, ids.view2(c_.tokens, c_.width()),
                    weights.view2(c_.tokens, c_.width()));
    capacity_options limit = c_.options.limit;
    limit.top_k = route.k;
    limit.candidates = c_.width();
    plimsoll::capacity_mask mask(policy, limit);
    drop_outputs<P> out(c_);
    mask.apply(ids.view2(c_.tokens, c_.width()), weights.view2(c_.tokens, c_.width()),
               {priorities_.view1(), {}, c_.stream, c_.first_token}, out.views());
    return out.values(ids.values());
  }

 private:
  drop_case c_;
  array_in<float, P> logits_;
  array_in<std::int32_t, P> local_;
  array_in<std::int32_t, P> homes_;
  array_in<std::int32_t, P> priorities_;
};

template <class P>
drop_result drop_of(drop_case const& c) {
  drop_in<P> const in(c);
  plimsoll::token_drop drop(make_policy<P>(), in.options());
  return in.run(drop, in.logits());
}
template <class P>
drop_result parts_of(drop_case const& c) {
  return drop_in<P>(c).run_parts();
}
// The checks of a case are compiled once for all policies.
using drop_fn = drop_result (*)(drop_case const&);

/// Draws a case in which one expert is popular; `ranks` hold the experts in order.
inline drop_case make_drop_case(std::uint64_t seed, index_t tokens, index_t experts, index_t k,
                                index_t ranks) {
  generator random(seed);
  drop_case c;
  c.tokens = tokens;
  c.options.route.k = k;
  c.options.limit.experts = experts;
  c.options.limit.max_tokens = tokens + 3;
  for (index_t i = 0; i < tokens * experts; ++i) {
    c.logits.push_back(static_cast<float>(random.unit() * 4 + (i % experts == 1 ? 2 : 0)));
  }
  if (ranks > 0) {
    c.local_width = experts / ranks;
    for (std::int32_t e = 0; e < c.local_width * ranks; ++e) {
      c.local.push_back(e);
    }
    for (index_t t = 0; t < tokens; ++t) {
      c.homes.push_back(static_cast<std::int32_t>(random.between(0, ranks - 1)));
    }
  }
  return c;
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

/// Runs the paper's algorithms 1 and 2, column by column. Returns the tokens of every expert.
inline std::vector<std::vector<bool>> as_in_the_paper(drop_case const& c) {
  auto const experts = static_cast<std::size_t>(c.experts());
  auto const tokens = static_cast<std::size_t>(c.tokens);
  std::vector<std::vector<double>> scores(tokens, std::vector<double>(experts));
  std::vector<std::vector<bool>> wanted(tokens, std::vector<bool>(experts, false));
  for (std::size_t t = 0; t < tokens; ++t) {
    float const* const row = c.logits.data() + t * experts;
    double sum = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      sum += std::exp(static_cast<double>(row[e]));
    }
    std::vector<std::size_t> order(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      scores[t][e] = std::exp(static_cast<double>(row[e])) / sum;
      order[e] = e;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[t][a] > scores[t][b]; });
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.options.route.k); ++i) {
      wanted[t][order[i]] = true;
    }
    for (index_t i = 0; i < c.local_width; ++i) {
      wanted[t][static_cast<std::size_t>(c.homes[t] * c.local_width + i)] = true;
    }
  }
  auto const capacity = static_cast<std::size_t>(c.options.limit.factor *
                                                 static_cast<double>(c.tokens * c.options.route.k) /
                                                 static_cast<double>(c.experts()));
  std::vector<std::vector<bool>> kept(tokens, std::vector<bool>(experts, false));
  for (std::size_t e = 0; e < experts; ++e) {
    std::vector<std::pair<double, std::size_t>> column;
    for (std::size_t t = 0; t < tokens; ++t) {
      if (wanted[t][e]) {
        column.emplace_back(scores[t][e], t);
      }
    }
    std::sort(column.rbegin(), column.rend());
    for (std::size_t i = 0; i < std::min(capacity, column.size()); ++i) {
      kept[column[i].second][e] = true;
    }
  }
  return kept;
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
  next("token_drop: options.k: expected 1 to 8 experts, got 0").options.route.k = 0;
  next("token_drop: options.k: expected 1 to 8 experts, got 9").options.route.k = 9;
  next("token_drop: scores: expected 1 to 65535 experts, got 0").options.limit.experts = 0;
  next("token_drop: options.groups: expected a divisor of 8 experts, got 3").options.route.groups =
      3;
  next("token_drop: options.normalize: expected none or to_one, got to_sum")
      .options.route.normalize = plimsoll::normalization::to_sum;
  next("token_drop: options.scale: expected a number from 2^-64 to 2^64, got 0")
      .options.route.scale = 0;
  next("token_drop: options.route.local_experts: expected -1 or an expert, got 8 for home 1")
      .local[5] = 8;
  next("token_drop: options.route.local_experts: expected -1 or an expert, got -2 for home 0")
      .local[2] = -2;
  next(
      "token_drop: options.route.function: expected none, as options.function applies, got "
      "sigmoid")
      .options.route.function = plimsoll::score_function::sigmoid;
  next("capacity_mask: options.factor: expected at least 0, got -1").options.limit.factor = -1;
  next(
      "capacity_mask: options.max_tokens: expected 0 to 357913941 tokens (below 2^31 pairs), got "
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
        "token_drop: options.bias: expected 8 experts, got 7");
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
  CHECK(message(6, 8, {}, none) == "token_drop::apply: kept.report: expected 1 reports, got 0");
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

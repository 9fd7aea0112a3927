// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using plimsoll::capacity_batch;
using plimsoll::capacity_options;
using plimsoll::capacity_report;
using plimsoll::drop_policy;
using plimsoll::kept_pairs;
using plimsoll::normalization;
using plimsoll::padding_mode;
using plimsoll::rounding_mode;

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using floats = std::vector<float>;
using words = std::vector<std::uint32_t>;

inline std::size_t at(index_t row, index_t columns, index_t column) {
  return static_cast<std::size_t>(row * columns + column);
}
inline std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

/// Value of outputs before a call.
inline constexpr std::int32_t untouched = -99;

/// A batch on the host. The arrays fill in the views of the options.
struct mask_case {
  capacity_options options = {};
  index_t tokens = 0;
  longs ids = {};                                ///< [tokens, width]
  floats scores = {};                            ///< the same
  std::vector<std::uint16_t> short_scores = {};  ///< the same, as scores of 16 bits
  floats weights = {};                           ///< the same, or empty
  ints priorities = {};                          ///< [tokens] or empty
  reals factors = {};                            ///< [experts] or empty
  ints rank_of = {};                             ///< the same
  std::uint64_t stream = 0;
  std::uint64_t first_token = 0;
  bool sums_only = false;  ///< requests only counts and report

  [[nodiscard]] index_t width() const { return std::max(options.candidates, options.top_k); }
  [[nodiscard]] index_t pairs() const { return tokens * width(); }
};

struct masked {
  ints ids;
  words weights;  ///< bits, with the same bits for all NaN
  ints positions;
  ints counts;
  ints offsets;
  capacity_report report;

  [[nodiscard]] bool stays(std::size_t pair) const { return positions[pair] >= 0; }
};

inline words bits_of(floats const& values) {
  words result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    float const value = std::isnan(values[i]) ? std::numeric_limits<float>::quiet_NaN() : values[i];
    std::memcpy(&result[i], &value, sizeof(value));
  }
  return result;
}

inline longs numbers_in(capacity_report const& r) {
  return {r.routed,       r.kept,       r.choices,     r.kept_choices,  r.unrouted,
          r.out_of_range, r.duplicates, r.not_numbers, r.unknown_class, r.rows};
}

/// Returns "" or the name of the first output that differs.
inline std::string difference(masked const& got, masked const& expected) {
  auto const close = [](double a, double b) { return std::fabs(a - b) <= 1e-12; };
  return got.ids != expected.ids                                 ? "ids"
         : got.weights != expected.weights                       ? "weights"
         : got.positions != expected.positions                   ? "positions"
         : got.counts != expected.counts                         ? "counts"
         : got.offsets != expected.offsets                       ? "offsets"
         : numbers_in(got.report) != numbers_in(expected.report) ? "report"
         : !close(got.report.dropped_fraction, expected.report.dropped_fraction)
             ? "dropped_fraction"
         : !close(got.report.overflow_fraction, expected.report.overflow_fraction)
             ? "overflow_fraction"
             : "";
}

/// A case in the memory of a policy.
template <class P, class Id = std::int32_t, class Score = float>
class mask_in {
 public:
  explicit mask_in(mask_case const& c)
      : c_(c),
        ids_(std::vector<Id>(c.ids.begin(), c.ids.end())),
        scores_(scores_of(c)),
        weights_(c.weights),
        priorities_(c.priorities),
        factors_(c.factors),
        rank_of_(c.rank_of) {}

  [[nodiscard]] capacity_options options() const {
    capacity_options result = c_.options;
    if (!c_.factors.empty()) {
      result.factors = factors_.view1();
    }
    if (!c_.rank_of.empty()) {
      result.rank_of = rank_of_.view1();
    }
    return result;
  }
  [[nodiscard]] capacity_batch batch() const {
    return {priorities_.view1(),
            c_.weights.empty() ? plimsoll::matrix_ref<float const>()
                               : weights_.view2(c_.tokens, c_.width()),
            c_.stream, c_.first_token};
  }
  template <class Mask>
  [[nodiscard]] masked run(Mask& mask) const {
    array_in<Id, P> ids(c_.pairs(), untouched);
    array_in<float, P> weights(c_.pairs(), static_cast<float>(untouched));
    array_in<std::int32_t, P> positions(c_.pairs(), untouched);
    array_in<std::int32_t, P> counts(c_.options.experts, untouched);
    array_in<std::int32_t, P> offsets(c_.options.experts + 1, untouched);
    array_in<capacity_report, P> report(1);
    plimsoll::kept_pairs_of<Id> kept;
    if (!c_.sums_only) {
      kept.ids = ids.view2(c_.tokens, c_.width());
      kept.weights = weights.view2(c_.tokens, c_.width());
      kept.positions = positions.view2(c_.tokens, c_.width());
      kept.offsets = offsets.view1();
    }
    kept.counts = counts.view1();
    kept.report = report.view1();
    mask.apply(ids_.view2(c_.tokens, c_.width()), scores_.view2(c_.tokens, c_.width()), batch(),
               kept);
    std::vector<Id> const written = ids.values();
    return {ints(written.begin(), written.end()),
            bits_of(weights.values()),
            positions.values(),
            counts.values(),
            offsets.values(),
            report.values()[0]};
  }
  [[nodiscard]] masked run() const {
    plimsoll::capacity_mask mask(make_policy<P>(), options());
    return run(mask);
  }

 private:
  static std::vector<Score> scores_of(mask_case const& c) {
    if constexpr (std::is_same_v<Score, float>) {
      return c.scores;
    } else {
      std::vector<Score> result;
      for (std::uint16_t const bits : c.short_scores) {
        result.push_back(Score{bits});
      }
      return result;
    }
  }

  mask_case c_;
  array_in<Id, P> ids_;
  array_in<Score, P> scores_;
  array_in<float, P> weights_;
  array_in<std::int32_t, P> priorities_;
  array_in<double, P> factors_;
  array_in<std::int32_t, P> rank_of_;
};

template <class P, class Id = std::int32_t, class Score = float>
masked mask_of(mask_case const& c) {
  return mask_in<P, Id, Score>(c).run();
}
// The checks of a case are compiled once for all policies.
using mask_fn = masked (*)(mask_case const&);

// ----- the oracle --------------------------------------------------------------------------------

inline double exact_capacity(mask_case const& c, index_t e) {
  double const factor = c.factors.empty() ? c.options.factor : c.factors[at(e)];
  return c.tokens == 0 ? 0
                       : factor * static_cast<double>(c.tokens * c.options.top_k) /
                             static_cast<double>(c.options.experts);
}

inline std::int64_t capacity_of(mask_case const& c, index_t e) {
  capacity_options const& o = c.options;
  if (c.tokens < o.min_tokens) {
    return c.tokens;
  }
  double const exact = exact_capacity(c, e);
  double const whole = o.round == rounding_mode::up ? std::ceil(exact) : std::floor(exact);
  double const most = static_cast<double>(std::min(o.max_capacity, c.tokens));
  return static_cast<std::int64_t>(
      std::min(std::max(whole, static_cast<double>(o.min_capacity)), most));
}

inline index_t pools_of(mask_case const& c) {
  return c.options.ranks > 0 ? c.options.ranks : c.options.experts;
}
inline index_t pool_of(mask_case const& c, index_t e) {
  index_t const ranks = c.options.ranks;
  if (ranks == 0) {
    return e;
  }
  if (!c.rank_of.empty()) {
    return c.rank_of[at(e)];
  }
  index_t rank = 0;
  while (!(e < (rank + 1) * c.options.experts / ranks)) {
    ++rank;
  }
  return rank;
}

/// A routed pair.
struct candidate {
  std::size_t pair;
  index_t token;
  std::int32_t expert;
  bool is_choice;
  std::int32_t priority;
};

/// Returns the routed pairs, token by token, and counts the others.
inline std::vector<candidate> candidates_in(mask_case const& c, capacity_report& report) {
  std::vector<candidate> result;
  for (index_t t = 0; t < c.tokens; ++t) {
    longs seen;
    for (index_t j = 0; j < c.width(); ++j) {
      std::int64_t const id = c.ids[at(t, c.width(), j)];
      if (id == -1) {
        ++report.unrouted;
      } else if (id < 0 || id >= c.options.experts) {
        ++report.out_of_range;
      } else if (std::count(seen.begin(), seen.end(), id) > 0) {
        ++report.duplicates;
      } else {
        std::int32_t priority = c.priorities.empty() ? 0 : c.priorities[at(t)];
        if (priority < 0 || priority >= c.options.classes) {
          ++report.unknown_class;
          priority = 0;
        }
        bool const is_choice = j < c.options.top_k;
        result.push_back(
            {at(t, c.width(), j), t, static_cast<std::int32_t>(id), is_choice, priority});
        seen.push_back(id);
        ++report.routed;
        report.choices += is_choice;
      }
    }
  }
  return result;
}

/// Rank of a pair: larger ones are kept first.
using order_key = std::tuple<bool, std::int32_t, bool, double>;

/// Returns the rank by score, with NaN below all numbers.
inline order_key key_by_score(float score, bool is_choice, std::int32_t priority) {
  bool const is_number = !std::isnan(score);
  return {is_choice, priority, is_number, is_number ? static_cast<double>(score) : 0.0};
}

inline order_key key_of(mask_case const& c, candidate const& x) {
  bool const choice = c.options.topk_first && c.width() > c.options.top_k && x.is_choice;
  switch (c.options.drop_by) {
    case drop_policy::score:
      return key_by_score(c.scores[x.pair], choice, x.priority);
    case drop_policy::reverse_order:
      return {choice, x.priority, true, static_cast<double>(x.token)};
    case drop_policy::random: {
      auto const experts = static_cast<std::uint64_t>(c.options.experts);
      std::uint64_t const index = (c.first_token + static_cast<std::uint64_t>(x.token)) * experts +
                                  static_cast<std::uint64_t>(x.expert);
      // The key has 31 bits of the random number.
      return {choice, x.priority, true,
              static_cast<double>(plimsoll::random::bits(c.options.seed, c.stream, index) >> 33)};
    }
    default:
      return {choice, x.priority, true, 0.0};
  }
}

/// Writes the weights of one token, given its kept pairs.
inline void weigh(mask_case const& c, index_t token, std::vector<bool> const& kept,
                  std::vector<bool> const& routed, floats& out) {
  floats const& weights = c.weights.empty() ? c.scores : c.weights;
  double all = 0;
  double left = 0;
  for (index_t j = 0; j < c.width(); ++j) {
    std::size_t const pair = at(token, c.width(), j);
    all += routed[pair] && j < c.options.top_k ? static_cast<double>(weights[pair]) : 0.0;
    left += kept[pair] ? static_cast<double>(weights[pair]) : 0.0;
  }
  left = left < 1e-20 ? 1e-20 : left;
  for (index_t j = 0; j < c.width(); ++j) {
    std::size_t const pair = at(token, c.width(), j);
    auto const w = static_cast<double>(weights[pair]);
    double const to = c.options.normalize == normalization::to_sum ? all : 1.0;
    out[pair] = !kept[pair]                                  ? 0.0f
                : c.options.normalize == normalization::none ? weights[pair]
                                                             : static_cast<float>(w * to / left);
  }
}

/// Masks a case by sorting the pairs of every pool and applying one option after the other.
inline masked mask_by_sorting(mask_case const& c) {
  capacity_options const& o = c.options;
  masked result{ints(at(c.pairs()), o.sentinel), {}, ints(at(c.pairs()), -1),
                ints(at(o.experts), 0),          {}, {}};
  std::vector<candidate> all = candidates_in(c, result.report);
  longs load(at(o.experts), 0);
  std::vector<bool> routed(at(c.pairs()), false);
  for (candidate const& x : all) {
    load[at(x.expert)] += x.is_choice;
    routed[x.pair] = true;
    result.report.not_numbers += o.drop_by == drop_policy::score && std::isnan(c.scores[x.pair]);
  }
  // Expert Drop.
  std::vector<bool> skipped(at(o.experts), false);
  if (c.tokens >= o.min_tokens) {
    ints order;
    for (auto e = static_cast<std::int32_t>(o.experts); e-- > 0;) {
      order.push_back(e);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return load[at(a)] < load[at(b)]; });
    order.resize(
        at(static_cast<index_t>(std::floor(o.expert_drop * static_cast<double>(o.experts)))));
    for (std::int32_t const e : order) {
      skipped[at(e)] = true;
    }
  }
  // Pools.
  std::vector<bool> kept(at(c.pairs()), false);
  double overflow = 0;
  for (index_t pool = 0; pool < pools_of(c); ++pool) {
    std::int64_t room = 0;
    double over = 0;
    for (index_t e = 0; e < o.experts; ++e) {
      if (pool_of(c, e) == pool) {
        room += skipped[at(e)] ? 0 : capacity_of(c, e);
        over += static_cast<double>(load[at(e)]) - exact_capacity(c, e);
      }
    }
    overflow += over > 0 ? over : 0;
    std::vector<std::pair<order_key, candidate>> here;
    for (candidate const& x : all) {
      if (pool_of(c, x.expert) == pool && !skipped[at(x.expert)]) {
        here.emplace_back(key_of(c, x), x);
      }
    }
    std::stable_sort(here.begin(), here.end(),
                     [](auto const& a, auto const& b) { return a.first > b.first; });
    here.resize(std::min(here.size(), at(room)));
    for (auto const& x : here) {
      kept[x.second.pair] = true;
    }
  }
  // Tokens.
  floats weights(at(c.pairs()), 0);
  for (index_t t = 0; t < c.tokens; ++t) {
    std::vector<std::pair<order_key, std::size_t>> row;
    for (index_t j = 0; j < c.width(); ++j) {
      if (std::size_t const pair = at(t, c.width(), j); kept[pair]) {
        row.emplace_back(key_by_score(c.scores[pair], o.topk_first && j < o.top_k, 0), pair);
      }
    }
    std::stable_sort(row.begin(), row.end(),
                     [](auto const& a, auto const& b) { return a.first > b.first; });
    for (std::size_t i = o.max_selected > 0 ? at(o.max_selected) : row.size(); i < row.size();
         ++i) {
      kept[row[i].second] = false;
    }
    weigh(c, t, kept, routed, weights);
  }
  for (bool const choices : {true, false}) {
    for (candidate const& x : all) {
      if (x.is_choice == choices && kept[x.pair]) {
        result.ids[x.pair] = x.expert;
        result.positions[x.pair] = result.counts[at(x.expert)]++;
        ++result.report.kept;
        result.report.kept_choices += choices;
      }
    }
  }
  result.weights = bits_of(weights);
  std::int64_t rows = 0;
  for (index_t e = 0; e < o.experts; ++e) {
    result.offsets.push_back(static_cast<std::int32_t>(rows));
    std::int64_t const count = result.counts[at(e)];
    std::int64_t padded = o.pad == padding_mode::to_capacity ? capacity_of(c, e) : count;
    while (o.pad == padding_mode::to_multiple && padded % o.multiple != 0) {
      ++padded;
    }
    rows += padded;
  }
  result.offsets.push_back(static_cast<std::int32_t>(rows));
  result.report.rows = rows;
  if (auto const choices = static_cast<double>(result.report.choices); choices > 0) {
    result.report.dropped_fraction =
        (choices - static_cast<double>(result.report.kept_choices)) / choices;
    result.report.overflow_fraction = overflow / choices;
  }
  if (c.sums_only) {
    result.ids.assign(result.ids.size(), untouched);
    result.weights = bits_of(floats(weights.size(), static_cast<float>(untouched)));
    result.positions.assign(result.ids.size(), untouched);
    result.offsets.assign(result.offsets.size(), untouched);
    result.report.rows = 0;
  }
  return result;
}

// ----- random batches ----------------------------------------------------------------------------

/// Draws for a case.
class mask_draws : public draws {
 public:
  using draws::draws;
  /// Draws one of few values, among them NaN, infinities, zeros and subnormals.
  float score() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (one_in(12)) {
      return any({std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, -0.0f, 0.0f, 1e-44f,
                  -1e-44f});
    }
    return static_cast<float>(among(-2, 8)) / 8;
  }
};

/// Draws ids, most of a few experts; one in `odd` is not an expert's.
inline void draw_ids(mask_case& c, mask_draws& draw, std::int64_t odd) {
  auto const experts = static_cast<std::int64_t>(c.options.experts);
  std::int64_t const few = draw.among(1, experts);
  for (index_t i = 0; i < c.pairs(); ++i) {
    constexpr auto least = std::numeric_limits<std::int32_t>::min();
    c.ids.push_back(!draw.one_in(odd) ? draw.among(0, (draw.one_in(3) ? experts : few) - 1)
                    : draw.one_in(2)  ? -1
                                      : draw.any<std::int64_t>({experts, -2, least, 0x7fffffff}));
  }
}

/// Draws a case with a random mix of all options.
inline mask_case random_mask(std::uint64_t seed) {
  mask_draws draw(seed);
  mask_case c;
  capacity_options& o = c.options;
  c.tokens = draw.one_in(8) ? draw.among(0, 1) : draw.among(2, 60);
  o.experts = draw.among(1, 12);
  o.top_k = draw.among(1, std::min<index_t>(o.experts, 4));
  o.candidates = draw.one_in(2) ? 0 : o.top_k + draw.among(0, 4);
  o.max_tokens = c.tokens + draw.among(0, 9);
  auto const factor = [&] {
    return draw.any(
        {0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.3, 2.0, 1e300, std::numeric_limits<double>::infinity()});
  };
  o.factor = factor();
  for (index_t e = draw.one_in(4) ? 0 : o.experts; e < o.experts; ++e) {
    c.factors.push_back(factor());
  }
  o.round = draw.any({rounding_mode::down, rounding_mode::up});
  o.min_capacity = draw.any({0, 0, 1, 1, 2, 5});
  if (draw.one_in(3)) {
    o.max_capacity = o.min_capacity + draw.among(0, 6);
  }
  o.min_tokens = draw.one_in(5) ? draw.among(0, 70) : 0;
  if (draw.one_in(2)) {
    o.ranks = draw.among(1, 6);
    for (index_t e = draw.one_in(2) ? 0 : o.experts; e < o.experts; ++e) {
      c.rank_of.push_back(draw.among(0, o.ranks - 1));
    }
  }
  o.drop_by = draw.any({drop_policy::score, drop_policy::score, drop_policy::score,
                        drop_policy::order, drop_policy::reverse_order, drop_policy::random});
  o.seed = draw.bits();
  c.stream = draw.bits();
  c.first_token = draw.one_in(2) ? draw.bits() : 0;
  o.classes = draw.among(1, 5);
  for (index_t t = draw.one_in(2) ? 0 : c.tokens; t < c.tokens; ++t) {
    c.priorities.push_back(draw.one_in(9) ? draw.any<std::int32_t>({-1, 5, -0x7fffffff, 0x7fffffff})
                                          : draw.among(0, o.classes - 1));
  }
  o.topk_first = !draw.one_in(3);
  o.max_selected = draw.one_in(3) ? draw.among(0, c.width()) : 0;
  o.expert_drop = draw.one_in(4) ? draw.any({0.1, 0.25, 0.5, 1.0}) : 0;
  o.normalize = draw.any({normalization::none, normalization::to_one, normalization::to_sum});
  o.sentinel = draw.any<std::int32_t>(
      {-1, -7, static_cast<std::int32_t>(o.experts), std::numeric_limits<std::int32_t>::min()});
  o.pad = draw.any({padding_mode::none, padding_mode::to_multiple,
                    o.ranks > 0 ? padding_mode::none : padding_mode::to_capacity});
  o.multiple = draw.among(1, 9);
  c.sums_only = draw.one_in(12);
  draw_ids(c, draw, 10);
  for (index_t i = 0; i < c.pairs(); ++i) {
    c.scores.push_back(draw.score());
  }
  for (index_t i = draw.one_in(3) ? 0 : c.pairs(); i < c.pairs(); ++i) {
    c.weights.push_back(draw.score());
  }
  return c;
}

/// Checks a case against the oracle and adds the outputs to the hash `all`.
inline void check_mask(mask_case const& c, masked const& got, fnv1a& all) {
  masked const expected = mask_by_sorting(c);
  REQUIRE(difference(got, expected) == "");
  all.add(got.ids);
  all.add(got.weights);
  all.add(got.positions);
  all.add(got.counts);
  all.add(got.offsets);
  all.add(numbers_in(got.report));
  all.add(got.report.dropped_fraction);
  all.add(got.report.overflow_fraction);
}

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
  wide.options.topk_first = false;
  masked const free = mask_of(wide);
  CHECK(free.ids == ints{0, 1, 2, -1, -1, 1, -1, -1, 0, -1, -1, 2});
  wide.options.max_selected = 1;
  CHECK(mask_of(wide).ids == ints{0, -1, -1, -1, -1, 1, -1, -1, 0, -1, -1, 2});
  report_hash("capacity_mask.by_hand", two.ids, three.ids, three.weights, free.ids);
}

PLIMSOLL_TEST_CASE("capacity_mask: by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  check_by_hand(mask_of<P>);
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
  equal.options.topk_first = false;
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

/// Draws arbitrary scores of 16 bits of type `Score`.
template <class Score>
mask_case short_scores(mask_case c) {
  generator random(17);
  c.scores.clear();
  c.sums_only = false;
  for (index_t i = 0; i < c.pairs(); ++i) {
    c.short_scores.push_back(static_cast<std::uint16_t>(random.bits()));
    c.scores.push_back(static_cast<float>(Score{c.short_scores.back()}));
  }
  return c;
}

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
  with("kept.report: expected 1 reports, got 2").report = 2;
  with("kept.report: expected 1 reports, got 0").report = 0;
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
                  {reports.data(), x.report}});
    });
  };
  for (refused_shapes const& bad : wrong_shapes()) {
    check_message(message(bad.x), bad.message);
  }
  CHECK(numbers.values() == ints(100, 1));
  // Optional outputs may be null; counts and report may not.
  CHECK(refusal_of([&] {
          mask.apply(numbers.view2(6, 3), values.view2(6, 3), {.report = {reports.data(), 1}});
        }) == "capacity_mask::apply: kept.counts: expected 4 experts, got 0");
  CHECK(refusal_of([&] {
          mask.apply(numbers.view2(6, 3), values.view2(6, 3),
                     {.counts = {numbers.data() + 50, 4}, .report = {reports.data(), 1}});
        }) == "no error");
}

}  // namespace plimsoll_test

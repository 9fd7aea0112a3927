// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of capacity_mask, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test::capacity_mask_support {

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
/// Rank of a pair: larger ones are kept first.
using order_key = std::tuple<bool, std::int32_t, bool, double>;

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

/// Rows of an expert's buffer with padding_mode::to_capacity.
inline std::int64_t width_of(mask_case const& c, index_t e) {
  capacity_options const& o = c.options;
  if (c.tokens < o.min_tokens) {
    return std::max(c.tokens, o.min_capacity);
  }
  double const exact = exact_capacity(c, e);
  double const whole = o.round == rounding_mode::up ? std::ceil(exact) : std::floor(exact);
  return static_cast<std::int64_t>(std::min(std::max(whole, static_cast<double>(o.min_capacity)),
                                            static_cast<double>(o.max_capacity)));
}

inline std::int64_t capacity_of(mask_case const& c, index_t e) {
  return c.tokens < c.options.min_tokens ? c.tokens
                                         : std::min<std::int64_t>(width_of(c, e), c.tokens);
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

/// Returns the rank by score, with NaN below all numbers.
inline order_key key_by_score(float score, bool is_choice, std::int32_t priority) {
  bool const is_number = !std::isnan(score);
  return {is_choice, priority, is_number, is_number ? static_cast<double>(score) : 0.0};
}

inline order_key key_of(mask_case const& c, candidate const& x) {
  bool const choice = (c.options.order == plimsoll::candidate_order::topk_first) &&
                      c.width() > c.options.top_k && x.is_choice;
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
        row.emplace_back(
            key_by_score(c.scores[pair],
                         (o.order == plimsoll::candidate_order::topk_first) && j < o.top_k, 0),
            pair);
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
    std::int64_t padded = o.pad == padding_mode::to_capacity ? width_of(c, e) : count;
    padded = std::max<std::int64_t>(padded, o.min_rows);
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
  o.order =
      !draw.one_in(3) ? plimsoll::candidate_order::topk_first : plimsoll::candidate_order::together;
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
  o.min_rows = draw.one_in(3) ? draw.among(1, 9) : 0;
  if (o.pad == padding_mode::to_capacity) {  // without a limit, no buffer is large enough
    o.max_capacity = std::min<index_t>(o.max_capacity, 1 << 20);
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

}  // namespace plimsoll_test::capacity_mask_support

// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of token_drop, calls under every policy, and what the results must be.
#pragma once

#include <plimsoll/systems/token_drop.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"

namespace plimsoll_test::token_drop_support {

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

}  // namespace plimsoll_test::token_drop_support

// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of waterline, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/memory.hpp>
#include <plimsoll/waterline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "draws.hpp"
#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "spread.hpp"

namespace plimsoll_test::waterline_support {

using plimsoll::candidate_ranks;
using plimsoll::fill_method;
using plimsoll::waterline_options;
using plimsoll::waterline_report;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using floats = std::vector<float>;

inline std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

/// One step of all ranks. The arrays fill in the views of the options.
struct line_case {
  waterline_options options = {};
  std::vector<longs> ids = {};            ///< [tokens, top_k] for every rank
  ints offsets = {};                      ///< [ranks + 1] or empty
  std::vector<std::uint8_t> active = {};  ///< [ranks] or empty
  /// [ranks] or empty: four times the speeds. All equal, or 1 to 8 with at least one 8, so that
  /// they are multiples of 1/65536 of the fastest.
  ints paces = {};
  std::uint64_t stream = 0;
  index_t step = 1;  ///< stride between elements of all views

  [[nodiscard]] index_t ranks() const { return options.on.ranks; }
  [[nodiscard]] index_t tokens(index_t source) const {
    return std::ssize(ids[at(source)]) / options.top_k;
  }
  [[nodiscard]] bool lives(index_t r) const { return active.empty() || active[at(r)] != 0; }
  [[nodiscard]] std::int64_t pace(index_t r) const {
    return !lives(r) ? 0 : paces.empty() ? 1 : paces[at(r)];
  }
  [[nodiscard]] reals speeds() const {
    reals result;
    for (std::int32_t const one : paces) {
      result.push_back(0.25 * one);
    }
    return result;
  }
  [[nodiscard]] std::int64_t begin(index_t r) const {
    return offsets.empty() ? r * options.slots / ranks() : offsets[at(r)];
  }
  /// Returns the rank of every slot; -1 for a slot of no rank.
  [[nodiscard]] ints owners() const {
    ints result(at(options.slots), -1);
    for (index_t r = 0; r < ranks(); ++r) {
      std::fill(result.begin() + begin(r), result.begin() + begin(r + 1),
                static_cast<std::int32_t>(r));
    }
    return result;
  }
};

/// Outputs for one rank's rows.
struct poured {
  longs ids;       ///< [tokens, top_k + 1]
  floats weights;  ///< the same
  ints ranks;      ///< [tokens]
  waterline_report report;
  longs slack;  ///< [ranks]
};

struct outcome {
  std::vector<longs> counts;  ///< [2, ranks] for every source
  std::vector<poured> of;     ///< outputs of every source
};

inline longs sum_of(std::vector<longs> const& rows) {
  longs result(rows.at(0).size(), 0);
  for (longs const& row : rows) {
    std::transform(row.begin(), row.end(), result.begin(), result.begin(), std::plus<>());
  }
  return result;
}

inline longs numbers_in(waterline_report const& r) {
  return {r.surplus,
          r.rows,
          r.moved,
          r.unplaced,  //
          r.new_destinations,
          r.without_expert,
          r.unrouted,
          r.out_of_range,
          static_cast<std::int64_t>(r.refused.kind),
          r.refused.where,
          r.refused.also};
}

/// Returns "" or the name of the first output that differs.
inline std::string difference(poured const& got, poured const& expected) {
  auto const reals_in = [](waterline_report const& r) {
    return reals{r.level, r.home_peak, r.refused.got};
  };
  return got.ids != expected.ids                                 ? "ids"
         : got.weights != expected.weights                       ? "weights"
         : got.ranks != expected.ranks                           ? "ranks"
         : numbers_in(got.report) != numbers_in(expected.report) ? "report"
         : reals_in(got.report) != reals_in(expected.report)     ? "levels"
         : got.slack != expected.slack                           ? "slack"
                                                                 : "";
}

inline std::string difference(outcome const& got, outcome const& expected) {
  REQUIRE(got.of.size() == expected.of.size());
  for (std::size_t r = 0; r < got.of.size(); ++r) {
    if (std::string const found = difference(got.of[r], expected.of[r]); !found.empty()) {
      return found + " of rank " + std::to_string(r);
    }
  }
  return got.counts != expected.counts ? "counts" : "";
}

inline void add_to(fnv1a& hash, outcome const& all) {
  for (poured const& one : all.of) {
    hash.add(one.ids);
    hash.add(one.weights);
    hash.add(one.ranks);
    hash.add(numbers_in(one.report));
    hash.add(reals{one.report.level, one.report.home_peak, one.report.refused.got});
    hash.add(one.slack);
  }
  for (longs const& counts : all.counts) {
    hash.add(counts);
  }
}

inline float weight_of(index_t i) { return 0.25f + 0.125f * static_cast<float>(i % 64); }

/// A step in the memory of a policy.
template <class P, class Id = std::int32_t>
class line_in {
 public:
  using line = plimsoll::waterline<policy_of<P>>;

  explicit line_in(line_case const& c)
      : c_(c),
        offsets_(spread(c.offsets, 1)),
        active_(spread(c.active, 1)),
        speeds_(spread(c.speeds(), 1)) {}

  [[nodiscard]] waterline_options options() const {
    waterline_options result = c_.options;
    result.rank_offsets = vector_in(offsets_, std::ssize(c_.offsets));
    result.on.active = vector_in(active_, std::ssize(c_.active));
    result.on.speeds = vector_in(speeds_, std::ssize(c_.paces));
    return result;
  }
  [[nodiscard]] line make() const { return line(make_policy<P>(), options()); }

  [[nodiscard]] longs count(line& l, index_t source) const {
    array_in<Id, P> const ids(ids_of(source));
    array_in<std::int64_t, P> loads(spread(longs(at(2 * c_.ranks()), gap_value), c_.ranks()));
    l.count(matrix_in(ids, c_.tokens(source), c_.options.top_k), source,
            matrix_in(loads, 2, c_.ranks()));
    return gathered(loads.values(), c_.ranks(), c_.step);
  }
  [[nodiscard]] poured pour(line& l, longs const& all_loads, index_t source) const {
    index_t const tokens = c_.tokens(source);
    index_t const k = c_.options.top_k;
    floats given;
    for (index_t i = 0; i < tokens * k; ++i) {
      given.push_back(weight_of(i));
    }
    array_in<std::int64_t, P> const loads(spread(all_loads, c_.ranks()));
    array_in<Id, P> const ids(ids_of(source));
    array_in<float, P> const weights(spread(given, k));
    array_in<Id, P> out_ids(spread(std::vector<Id>(at(tokens * (k + 1)), gap_value), k + 1));
    array_in<float, P> out_weights(spread(floats(at(tokens * (k + 1)), gap_value), k + 1));
    array_in<std::int32_t, P> out_ranks(spread(ints(at(tokens), gap_value), 1));
    l.plan(matrix_in(loads, 2, c_.ranks()), source);
    l.fill(matrix_in(ids, tokens, k), source, {matrix_in(weights, tokens, k), c_.stream},
           matrix_in(out_ids, tokens, k + 1),
           {matrix_in(out_weights, tokens, k + 1), vector_in(out_ranks, tokens)});
    auto const policy = make_policy<P>();
    std::vector<Id> const written = gathered(out_ids.values(), k + 1, c_.step);
    return {longs(written.begin(), written.end()), gathered(out_weights.values(), k + 1, c_.step),
            gathered(out_ranks.values(), 1, c_.step), plimsoll::read(policy, l.report()),
            plimsoll::read(policy, l.slack())};
  }
  /// Plans and fills with an object that is used once.
  [[nodiscard]] poured pour(longs const& all_loads, index_t source) const {
    line l = make();
    return pour(l, all_loads, source);
  }
  /// Runs the step of all ranks, one after the other, with one object.
  [[nodiscard]] outcome run(line& l) const {
    outcome result;
    for (index_t r = 0; r < c_.ranks(); ++r) {
      result.counts.push_back(count(l, r));
    }
    longs const loads = sum_of(result.counts);
    for (index_t r = 0; r < c_.ranks(); ++r) {
      result.of.push_back(pour(
          l, (c_.options.counts == plimsoll::counted_ranks::own) ? result.counts[at(r)] : loads,
          r));
    }
    return result;
  }
  [[nodiscard]] outcome run() const {
    line l = make();
    return run(l);
  }

 private:
  template <class T>
  [[nodiscard]] std::vector<T> spread(std::vector<T> const& values, index_t columns) const {
    return spread_out(values, columns, c_.step);
  }
  [[nodiscard]] std::vector<Id> ids_of(index_t source) const {
    longs const& ids = c_.ids[at(source)];
    return spread(std::vector<Id>(ids.begin(), ids.end()), c_.options.top_k);
  }
  template <class Array>
  [[nodiscard]] auto matrix_in(Array& array, index_t rows, index_t columns) const {
    return spread_matrix(array, rows, columns, c_.step);
  }
  template <class Array>
  [[nodiscard]] auto vector_in(Array& array, index_t n) const {
    return spread_vector(array, n, c_.step);
  }

  line_case c_;
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
};

template <class P, class Id = std::int32_t>
outcome pour_all(line_case const& c) {
  return line_in<P, Id>(c).run();
}

// The checks of a case are compiled once for all policies.
using pour_fn = outcome (*)(line_case const&);

// ----- the oracle --------------------------------------------------------------------------------

/// Counts the routed load and rows of every rank in a plain loop.
inline longs counted(line_case const& c, index_t source, ints const& owners) {
  longs result(at(2 * c.ranks()), 0);
  longs const& ids = c.ids[at(source)];
  index_t const k = c.options.top_k;
  for (index_t t = 0; t < c.tokens(source); ++t) {
    bool has_row = c.options.arithmetic == plimsoll::fill_arithmetic::sglang;
    for (index_t j = 0; j < k; ++j) {
      std::int64_t const id = ids[at(t * k + j)];
      if (id >= 0 && id < c.options.slots && owners[at(id)] >= 0) {
        ++result[at(owners[at(id)])];
        has_row = true;
      }
    }
    result[at(c.ranks() + source)] += has_row;
  }
  return result;
}

/// Checks ids, weights and counters, given the ranks; and that rows went to allowed ranks.
inline void check_rows(line_case const& c, index_t source, ints const& owners, poured const& got) {
  index_t const k = c.options.top_k;
  longs ids;
  floats weights;
  waterline_report counts = got.report;
  counts.rows = counts.moved = counts.new_destinations = counts.without_expert = counts.unrouted =
      counts.out_of_range = 0;
  bool allowed = true;
  for (index_t t = 0; t < c.tokens(source); ++t) {
    std::int32_t const rank = got.ranks[at(t)];
    bool has_row = false;
    bool visited = false;
    for (index_t j = 0; j < k; ++j) {
      std::int64_t const id = c.ids[at(source)][at(t * k + j)];
      std::int32_t const owner = id >= 0 && id < c.options.slots ? owners[at(id)] : -1;
      has_row = has_row || owner >= 0;
      visited = visited || (owner >= 0 && owner == rank);
      counts.unrouted += id == -1;
      counts.out_of_range += owner < 0 && id != -1;
      ids.push_back(owner < 0 ? -1 : id + owner);
      weights.push_back(owner < 0 ? 0.0f : weight_of(t * k + j));
    }
    bool const moved = has_row && rank != source;
    allowed = allowed && (has_row ? rank >= 0 && rank < c.ranks() : rank == -1) &&
              (!moved || (c.lives(rank) &&
                          (visited || (c.options.arithmetic == plimsoll::fill_arithmetic::sglang) ||
                           c.options.candidates == candidate_ranks::all)));
    ids.push_back(has_row ? c.begin(std::max(rank, 0) + 1) + rank : -1);
    weights.push_back(has_row ? c.options.weight : 0.0f);
    counts.rows += has_row;
    counts.without_expert += !has_row;
    counts.moved += moved;
    counts.new_destinations += moved && !visited;
  }
  REQUIRE(allowed);
  REQUIRE(difference(got, {ids, weights, got.ranks, counts, got.slack}) == "");
}

/// Units of time that a rank of pace 1 takes for a token; all paces, 1 to 8, take whole units.
inline constexpr std::int64_t whole_time = 840;

inline std::int64_t room_below(line_case const& c, std::int64_t time, index_t r) {
  return time * c.pace(r) / whole_time;
}

/// Returns the earliest time by which ranks can compute all tokens, at least `least` on each.
inline std::int64_t lowest_time(line_case const& c, std::int64_t tokens, longs const& least) {
  auto const suffices = [&](std::int64_t time) {
    std::int64_t room = 0;
    bool fits = true;
    for (index_t r = 0; r < c.ranks(); ++r) {
      room += room_below(c, time, r);
      fits = fits && room_below(c, time, r) >= least[at(r)];
    }
    return fits && room >= tokens;
  };
  std::int64_t low = -1;
  std::int64_t high = tokens * whole_time;
  while (high - low > 1) {
    std::int64_t const middle = low + (high - low) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return high;
}

/// Loads of all ranks.
struct totals {
  longs routed;
  longs rows;
  longs home;   ///< load with all rows at home
  longs final;  ///< load after rows moved
  double home_peak = 0;
  std::int64_t tokens = 0;  ///< routed load plus rows

  totals(line_case const& c, outcome const& got) {
    longs const loads = sum_of(got.counts);
    routed.assign(loads.begin(), loads.begin() + c.ranks());
    rows.assign(loads.begin() + c.ranks(), loads.end());
    home = sum_of({routed, rows});
    final = routed;
    for (poured const& one : got.of) {
      for (std::int32_t const r : one.ranks) {
        r >= 0 ? ++final[at(r)] : 0;
      }
    }
    double const unit = c.paces.empty() ? 1 : 0.25;
    for (index_t r = 0; r < c.ranks(); ++r) {
      tokens += home[at(r)];
      home_peak = c.lives(r) ? std::max(home_peak, static_cast<double>(home[at(r)]) /
                                                       (unit * static_cast<double>(c.pace(r))))
                             : home_peak;
    }
  }
};

/// Checks values that all ranks must report equally. Speeds are exact to 2^-16, and a level is not
/// below the lowest one.
inline void check_agreement(line_case const& c, outcome const& got, double home_peak,
                            std::int64_t time, std::int64_t surplus, longs const& slack) {
  double const level = static_cast<double>(time) / whole_time * (c.paces.empty() ? 1 : 4);
  double const fastest = c.paces.empty() ? 1 : 2;
  for (poured const& one : got.of) {
    REQUIRE(one.report.home_peak == home_peak);
    REQUIRE(one.report.level >= level * (1 - 1e-15));
    REQUIRE(one.report.level <= level * (1 + 1e-15) + (c.paces.empty() ? 0 : 0x1p-15 / fastest));
    REQUIRE(one.report.surplus == surplus);
    REQUIRE(one.slack == slack);
  }
}

/// Counts of events in many cases.
struct tally {
  std::int64_t moved = 0;
  std::int64_t unplaced = 0;
  std::int64_t relieved = 0;  ///< rows that ranks without slack took in
  std::int64_t raised = 0;    ///< levels above the mean
};

/// Checks the contract of the surplus method.
inline void check_surplus(line_case const& c, outcome const& got, tally& happened) {
  totals const all(c, got);
  index_t const n = c.ranks();
  // Rows of small batches cannot leave.
  longs least = all.routed;
  for (index_t r = 0; r < n; ++r) {
    least[at(r)] += all.rows[at(r)] < c.options.min_tokens ? all.rows[at(r)] : 0;
  }
  std::int64_t const time = lowest_time(c, all.tokens, least);
  happened.raised += time > lowest_time(c, all.tokens, longs(at(n), 0));
  longs slack;
  std::int64_t surplus = 0;
  std::int64_t above = 0;
  for (index_t r = 0; r < n; ++r) {
    CAPTURE(r);
    std::int64_t const room = room_below(c, time, r);
    std::int64_t const need = std::max(all.home[at(r)] - room, std::int64_t{0});
    waterline_report const& one = got.of[at(r)].report;
    slack.push_back(std::max(room - all.home[at(r)], std::int64_t{0}));
    surplus += one.moved + one.unplaced;
    above += need;
    // Ranks with slack move no rows; others move the rows above the level, and as many more as they
    // take in.
    REQUIRE(one.moved + one.unplaced >= need);
    REQUIRE((slack.back() == 0 || one.moved == 0));
    REQUIRE(all.final[at(r)] <= room + one.unplaced);
    REQUIRE(static_cast<double>(all.final[at(r)]) <=
            all.home_peak * static_cast<double>(c.pace(r)) * (c.paces.empty() ? 1 : 0.25) + 1e-6);
    if (c.options.candidates == candidate_ranks::all) {
      REQUIRE(one.moved == need);
      REQUIRE(one.unplaced == 0);
    }
    happened.moved += one.moved;
    happened.unplaced += one.unplaced;
  }
  happened.relieved += surplus - above;
  REQUIRE((surplus == above || c.options.candidates == candidate_ranks::visited));
  check_agreement(c, got, all.home_peak, time, surplus, slack);
}

/// Places the rows of one rank as SGLang's kernel does.
inline ints ranks_by_waterfill(line_case const& c, longs const& loads, index_t source,
                               ints const& owners) {
  waterline_options const& o = c.options;
  index_t const n = c.ranks();
  longs load(loads.begin(), loads.begin() + n);
  std::int64_t const routed = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  for (index_t r = 0; r < n && (o.counts != plimsoll::counted_ranks::own); ++r) {
    load[at(r)] += loads[at(n + r)];
  }
  std::int64_t const total = std::accumulate(load.begin(), load.end(), routed / o.top_k);
  std::int64_t const level = (total + n - 1) / n;
  bool const anywhere = (o.counts == plimsoll::counted_ranks::own) ||
                        *std::max_element(load.begin(), load.end()) <= level;
  ints result;
  for (index_t t = 0; t < c.tokens(source); ++t) {
    longs weights(at(n), 0);
    std::vector<bool> is_candidate(at(n), anywhere);
    is_candidate[at(source)] = true;
    bool has_row = false;
    for (index_t j = 0; j < o.top_k; ++j) {
      std::int64_t const id = c.ids[at(source)][at(t * o.top_k + j)];
      if (id >= 0 && id < o.slots && owners[at(id)] >= 0) {
        is_candidate[at(owners[at(id)])] = true;
        has_row = true;
      }
    }
    for (index_t r = 0; r < n; ++r) {
      std::int64_t const slack = std::max(level - load[at(r)], std::int64_t{0});
      weights[at(r)] = !is_candidate[at(r)] ? 0 : r == source ? slack : slack * 10 / 11;
    }
    auto const whole = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    index_t rank = source;
    if (whole > 0) {
      auto const token = static_cast<std::uint32_t>(t);
      std::uint32_t const hash =
          (token ^ static_cast<std::uint32_t>(source) * 0x9E3779B9u) * 1664525u + 1013904223u;
      std::int64_t left = hash % whole;
      for (rank = 0; left >= weights[at(rank)]; ++rank) {
        left -= weights[at(rank)];
      }
    } else {
      for (index_t r = 0; r < n; ++r) {
        rank = is_candidate[at(r)] && load[at(r)] * 11 < load[at(rank)] * 10 ? r : rank;
      }
    }
    bool const stays = loads[at(n + source)] < o.min_tokens;
    result.push_back(static_cast<std::int32_t>(!has_row ? -1 : stays ? source : rank));
  }
  return result;
}

/// Checks that sampled rows go to candidates with slack. Another test checks the probabilities.
inline void check_sampled(line_case const& c, outcome const& got, ints const& owners) {
  waterline_options const& o = c.options;
  totals const all(c, got);
  std::int64_t const time = lowest_time(c, all.tokens, longs(at(c.ranks()), 0));
  longs slack;
  for (index_t r = 0; r < c.ranks(); ++r) {
    slack.push_back(std::max(room_below(c, time, r) - all.routed[at(r)], std::int64_t{0}));
  }
  check_agreement(c, got, all.home_peak, time, 0, slack);
  for (index_t source = 0; source < c.ranks(); ++source) {
    poured const& one = got.of[at(source)];
    bool const stays = all.rows[at(source)] < o.min_tokens;
    REQUIRE(one.report.unplaced == 0);
    REQUIRE((one.report.moved == 0 || !stays));
    for (index_t t = 0; t < c.tokens(source); ++t) {
      std::int32_t const rank = one.ranks[at(t)];
      std::int64_t most = slack[at(source)];
      for (index_t j = 0; j < o.top_k; ++j) {
        std::int64_t const id = c.ids[at(source)][at(t * o.top_k + j)];
        most = id >= 0 && id < o.slots && owners[at(id)] >= 0
                   ? std::max(most, slack[at(owners[at(id)])])
                   : most;
      }
      most = o.candidates == candidate_ranks::all ? *std::max_element(slack.begin(), slack.end())
                                                  : most;
      REQUIRE((rank < 0 || slack[at(rank)] > 0 || most == 0 || stays));
    }
  }
}

/// Checks a case against the oracle and adds the outputs to `hash`.
inline void check_outcome(line_case const& c, outcome const& got, tally& happened, fnv1a& hash) {
  ints const owners = c.owners();
  longs const loads = sum_of(got.counts);
  for (index_t r = 0; r < c.ranks(); ++r) {
    CAPTURE(r);
    REQUIRE(got.counts[at(r)] == counted(c, r, owners));
    check_rows(c, r, owners, got.of[at(r)]);
    REQUIRE(!got.of[at(r)].report.refused);
    if (c.options.arithmetic == plimsoll::fill_arithmetic::sglang) {
      REQUIRE(got.of[at(r)].ranks ==
              ranks_by_waterfill(
                  c, (c.options.counts == plimsoll::counted_ranks::own) ? got.counts[at(r)] : loads,
                  r, owners));
    }
  }
  if (c.options.method == fill_method::surplus) {
    check_surplus(c, got, happened);
  } else if (c.options.arithmetic != plimsoll::fill_arithmetic::sglang) {
    check_sampled(c, got, owners);
  }
  add_to(hash, got);
}

// ----- random steps ------------------------------------------------------------------------------

/// Draws tokens of all live ranks, up to `most` of each. A larger `skew` skews the ids more; one
/// id in `odd` is not a slot, and of one token in `odd` no id is.
inline void draw_tokens(line_case& c, draws& draw, std::int64_t most, int skew, std::int64_t odd) {
  ints const owners = c.owners();
  reals sums;
  for (std::int32_t const owner : owners) {
    double weight = owner < 0 || !c.lives(owner) ? 0 : 1e-3;
    weight += weight > 0 ? std::pow(draw.unit(), skew) : 0.0;
    sums.push_back((sums.empty() ? 0 : sums.back()) + weight);
  }
  for (index_t r = 0; r < c.ranks(); ++r) {
    longs ids;
    std::int64_t const tokens = !c.lives(r) || draw.one_in(5) ? 0 : draw.among(0, most);
    for (index_t t = 0; t < tokens; ++t) {
      bool const lost = draw.one_in(odd);
      for (index_t j = 0; j < c.options.top_k; ++j) {
        double const position = draw.unit() * sums.back();
        auto const slot = std::upper_bound(sums.begin(), sums.end(), position) - sums.begin();
        auto const none = std::find(owners.begin(), owners.end(), -1) - owners.begin();
        ids.push_back(!lost && !draw.one_in(odd)
                          ? slot
                          : draw.any<std::int64_t>({-1, -1, -2, none, c.options.slots, 0x7fffffff,
                                                    std::numeric_limits<std::int32_t>::min()}));
      }
    }
    c.ids.push_back(ids);
    c.options.max_tokens = std::max<index_t>(c.options.max_tokens, tokens);
  }
}

/// Draws a case with a random mix of all options.
inline line_case random_line(std::uint64_t seed, fill_method rule) {
  draws draw(seed);
  line_case c;
  waterline_options& o = c.options;
  o.method = rule;
  o.on.ranks = draw.one_in(10) ? 1 : draw.one_in(6) ? draw.among(13, 40) : draw.among(2, 12);
  o.on.nodes = draw.one_in(2) ? 1 : draw.among(1, o.on.ranks);
  o.top_k = draw.among(1, 8);
  o.candidates = draw.any({candidate_ranks::visited, candidate_ranks::all});
  o.min_tokens = draw.one_in(3) ? draw.among(0, 90) : 0;
  o.weight = draw.any({1.0f, 0.4f, 0.0f, -1.0f});
  o.local_preference = draw.any({1.1, 1.0, 1.5, 16.0});
  o.node_preference = draw.any({1.0, 2.0});
  o.seed = draw.bits();
  c.stream = draw.bits();
  o.arithmetic = rule == fill_method::sampled && draw.one_in(3) ? plimsoll::fill_arithmetic::sglang
                                                                : plimsoll::fill_arithmetic::exact;
  o.counts = (o.arithmetic == plimsoll::fill_arithmetic::sglang) && draw.one_in(2)
                 ? plimsoll::counted_ranks::own
                 : plimsoll::counted_ranks::all;
  bool const all_alike = o.arithmetic == plimsoll::fill_arithmetic::sglang;
  if (!all_alike && draw.one_in(3)) {
    for (index_t r = 0; r < o.on.ranks; ++r) {
      c.active.push_back(static_cast<std::uint8_t>(draw.any({0, 1, 1, 255})));
    }
    c.active[at(draw.among(0, o.on.ranks - 1))] = 1;
  }
  if (!all_alike && draw.one_in(3)) {
    std::int32_t const slowest = draw.any({1, 1, 3, 8});
    for (index_t r = 0; r < o.on.ranks; ++r) {
      c.paces.push_back(draw.among(slowest, 8));
    }
    c.paces[at(std::find_if(c.active.begin(), c.active.end(), [](int is) { return is != 0; }) -
               c.active.begin())] = 8;
  }
  if (draw.one_in(2)) {
    c.offsets.push_back(0);
    for (index_t r = 0; r < o.on.ranks; ++r) {
      c.offsets.push_back(c.offsets.back() + draw.among(c.lives(r) ? 1 : 0, 4));
    }
    o.slots = c.offsets.back() + draw.among(0, 3);
  } else {
    o.slots = o.on.ranks * draw.among(1, 4);
    o.slots += draw.among(0, o.on.ranks - 1);
  }
  int const skew = draw.any({0, 1, 4, 12});
  std::int64_t const most = draw.any({1, 20, 90});
  draw_tokens(c, draw, most, skew, 15);
  o.max_tokens += draw.among(0, 5);
  return c;
}

}  // namespace plimsoll_test::waterline_support

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/waterfill.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using plimsoll::candidate_ranks;
using plimsoll::fill_method;
using plimsoll::waterfill_options;
using plimsoll::waterline_options;
using plimsoll::waterline_report;

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using floats = std::vector<float>;

/// One rank's part of a step, on the host.
struct fill_case {
  waterfill_options options = {};
  index_t layers = 1;
  index_t ranks = 1;
  index_t slots = 1;
  ints offsets = {};  ///< [layers, ranks + 1] or empty
  ints ids = {};      ///< [tokens, top_k]
  longs others = {};  ///< [2, ranks]: sum of the other ranks' counts
  std::uint64_t stream = 0;

  [[nodiscard]] index_t k() const { return options.line.top_k; }
  [[nodiscard]] index_t tokens() const { return std::ssize(ids) / k(); }
  /// Returns the first slot of a rank in the layer of the options.
  [[nodiscard]] std::int32_t begin(index_t r) const {
    return offsets.empty() ? static_cast<std::int32_t>(r * slots / ranks)
                           : offsets[static_cast<std::size_t>(options.layer * (ranks + 1) + r)];
  }
  /// Returns the rank of a slot, -1 for a slot of no rank.
  [[nodiscard]] std::int32_t rank_of(std::int32_t slot) const {
    std::int32_t result = -1;
    for (index_t r = 0; r < ranks; ++r) {
      result = slot >= begin(r) && slot < begin(r + 1) ? static_cast<std::int32_t>(r) : result;
    }
    return result;
  }
  [[nodiscard]] floats weights() const {
    floats result(ids.size());
    std::iota(result.begin(), result.end(), 1.0f);
    return result;
  }
};

struct fill_result {
  longs counts;  ///< [2, ranks]: this rank's counts
  longs loads;   ///< [2, ranks]: sum over all ranks
  longs slack;
  ints ids;
  floats weights;
  ints ranks;
  waterline_report report;
};

inline std::vector<double> numbers_in(waterline_report const& r) {
  std::vector<double> result{r.level, r.home_peak, static_cast<double>(r.refused.kind),
                             r.refused.got};
  for (std::int64_t const x :
       {r.surplus, r.rows, r.moved, r.unplaced, r.new_destinations, r.without_expert, r.unrouted,
        r.out_of_range, r.refused.where, r.refused.also}) {
    result.push_back(static_cast<double>(x));
  }
  return result;
}

/// Returns "" or the name of the first output that differs.
inline std::string difference(fill_result const& a, fill_result const& b) {
  return a.counts != b.counts                           ? "counts"
         : a.loads != b.loads                           ? "loads"
         : a.slack != b.slack                           ? "slack"
         : a.ids != b.ids                               ? "ids"
         : a.weights != b.weights                       ? "weights"
         : a.ranks != b.ranks                           ? "ranks"
         : numbers_in(a.report) != numbers_in(b.report) ? "report"
                                                        : "";
}

/// Replaces the all-reduce.
struct add_others {
  using device_team = plimsoll::detail::block<128>;

  std::int64_t const* others;
  std::int64_t* own;
  std::int64_t* loads;
  index_t size;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch, index_t) const {
    team.for_each(size, [this](index_t i) {
      own[i] = loads[i];
      loads[i] += others[i];
    });
  }
};

/// A case and its outputs in the memory of a policy.
template <class P, class Id = std::int32_t>
class fill_in {
 public:
  explicit fill_in(fill_case const& c)
      : c_(c),
        map_(c.layers * c.slots),
        offsets_(c.offsets),
        ids_(std::vector<Id>(c.ids.begin(), c.ids.end())),
        weights_(c.weights()),
        others_(c.others.empty() ? longs(static_cast<std::size_t>(2 * c.ranks), 0) : c.others),
        counts_(2 * c.ranks, -7),
        loads_(2 * c.ranks, -7),
        out_ids_(c.tokens() * (c.k() + 1), Id{-7}),
        out_weights_(c.tokens() * (c.k() + 1), -7.0f),
        out_ranks_(c.tokens(), -7) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result{
        map_.view2(c_.layers, c_.slots), {nullptr, c_.layers, 1}, c_.ranks, {}};
    if (offsets_.size() > 0) {
      result.rank_offsets = offsets_.view2(c_.layers, c_.ranks + 1);
    }
    return result;
  }
  void assign(fill_case const& c) {
    ids_.assign(std::vector<Id>(c.ids.begin(), c.ids.end()));
    others_.assign(c.others);
  }

  template <class Fill>
  void step(Fill& fill) {
    fill.count(ids());
    add_others_to(fill.loads().data);
    fill.fill(ids(), batch(), out_ids_.view2(c_.tokens(), c_.k() + 1), rows());
  }
  template <class Fill>
  [[nodiscard]] fill_result result(Fill const& fill) const {
    return result(fill, {fill.loads().data, 2 * c_.ranks});
  }
  /// Runs the step with `waterline` alone.
  [[nodiscard]] fill_result by_hand() {
    waterline_options options = c_.options.line;
    options.on.ranks = c_.ranks;
    options.slots = c_.slots;
    if (offsets_.size() > 0) {
      options.rank_offsets = {offsets_.data() + c_.options.layer * (c_.ranks + 1), c_.ranks + 1};
    }
    plimsoll::waterline line(make_policy<P>(), options);
    line.count(ids(), c_.options.rank, loads_.view2(2, c_.ranks));
    add_others_to(loads_.data());
    line.plan(loads_.view2(2, c_.ranks), c_.options.rank);
    line.fill(ids(), c_.options.rank, batch(), out_ids_.view2(c_.tokens(), c_.k() + 1), rows());
    return result(line, loads_.view1());
  }

 private:
  [[nodiscard]] auto ids() const { return ids_.view2(c_.tokens(), c_.k()); }
  [[nodiscard]] plimsoll::waterline_batch batch() const {
    return {weights_.view2(c_.tokens(), c_.k()), c_.stream};
  }
  [[nodiscard]] plimsoll::filled_rows rows() {
    return {out_weights_.view2(c_.tokens(), c_.k() + 1), out_ranks_.view1()};
  }
  void add_others_to(std::int64_t* loads) {
    auto const policy = make_policy<P>();
    plimsoll::detail::launch(plimsoll::detail::resolve(policy), 1,
                             add_others{others_.data(), counts_.data(), loads, 2 * c_.ranks});
  }
  template <class Line>
  [[nodiscard]] fill_result result(Line const& line,
                                   plimsoll::vector_ref<std::int64_t const> loads) const {
    auto const policy = make_policy<P>();
    std::vector<Id> const ids = out_ids_.values();
    return {counts_.values(),
            plimsoll::read(policy, loads),
            plimsoll::read(policy, line.slack()),
            ints(ids.begin(), ids.end()),
            out_weights_.values(),
            out_ranks_.values(),
            plimsoll::read(policy, line.report())[0]};
  }

  fill_case c_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> offsets_;
  array_in<Id, P> ids_;
  array_in<float, P> weights_;
  array_in<std::int64_t, P> others_;
  array_in<std::int64_t, P> counts_;
  array_in<std::int64_t, P> loads_;
  array_in<Id, P> out_ids_;
  array_in<float, P> out_weights_;
  array_in<std::int32_t, P> out_ranks_;
};

template <class P, class Id = std::int32_t>
fill_result fill_of(fill_case const& c) {
  fill_in<P, Id> in(c);
  plimsoll::waterfill fill(make_policy<P>(), in.placement(), c.options);
  in.step(fill);
  return in.result(fill);
}
template <class P>
fill_result by_hand_of(fill_case const& c) {
  return fill_in<P>(c).by_hand();
}
// The checks of a case are compiled once for all policies.
using fill_fn = fill_result (*)(fill_case const&);

// ----- SGLang's procedure ------------------------------------------------------------------------

/// Counts of the branches that steps or tokens took.
struct ways {
  index_t small = 0;
  index_t open = 0;  ///< steps in which all ranks were candidates
  index_t drawn = 0;
  index_t stayed = 0;  ///< tokens without slack that stay
  index_t left = 0;
  index_t empty = 0;

  [[nodiscard]] longs counts() const { return {small, open, drawn, stayed, left, empty}; }
};

struct sglang_output {
  ints ids;
  floats weights;
};

/// Runs SGLang's step. Integers have 64 bits except in the hash; the waterline's quotient is
/// computed in double.
inline sglang_output sglang_step(fill_case const& c, ways& seen) {
  auto const ranks = static_cast<std::size_t>(c.ranks);
  auto const k = static_cast<std::size_t>(c.k());
  auto const me = static_cast<std::size_t>(c.options.rank);
  auto const tokens = static_cast<std::size_t>(c.tokens());
  std::int64_t const experts_here = c.slots / c.ranks;
  bool const is_static = c.options.line.local_counts_only;
  auto const rank_of = [&](std::int32_t id) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(id / experts_here, 0, c.ranks - 1));
  };

  longs height(ranks, 0);
  for (std::int32_t const id : c.ids) {
    if (id >= 0) {
      ++height[rank_of(id)];
    }
  }
  if (!is_static) {
    for (std::size_t r = 0; r < ranks; ++r) {
      height[r] += c.others[r];
    }
  }
  std::int64_t const shared =
      std::accumulate(height.begin(), height.end(), std::int64_t{0}) / c.k();
  if (!is_static) {
    for (std::size_t r = 0; r < ranks; ++r) {
      height[r] += r == me ? c.tokens() : c.others[ranks + r];
    }
  }
  std::int64_t const sum = std::accumulate(height.begin(), height.end(), shared);
  auto const line =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(sum) / static_cast<double>(c.ranks)));
  bool const everyone = is_static || *std::max_element(height.begin(), height.end()) <= line;
  seen.open += everyone;
  seen.small += tokens < 64;

  sglang_output out;
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<bool> may(ranks, everyone);
    may[me] = true;
    bool any = false;
    for (std::size_t j = 0; j < k; ++j) {
      std::int32_t const id = c.ids[t * k + j];
      out.ids.push_back(id < 0 ? -1 : id + static_cast<std::int32_t>(rank_of(id)));
      out.weights.push_back(id < 0 ? 0.0f : static_cast<float>(t * k + j + 1));
      any = any || id >= 0;
      if (id >= 0) {
        may[rank_of(id)] = true;
      }
    }
    if (!any) {
      out.ids.push_back(-1);
      out.weights.push_back(0);
      ++seen.empty;
      continue;
    }
    std::size_t best = me;
    longs pull(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      std::int64_t const slack = std::max<std::int64_t>(line - height[r], 0);
      pull[r] = !may[r] ? 0 : r == me ? slack : slack * 10 / 11;
    }
    std::int64_t const all = std::accumulate(pull.begin(), pull.end(), std::int64_t{0});
    if (tokens < 64) {
      // stays
    } else if (all > 0) {
      auto const word =
          static_cast<std::uint32_t>(t) ^ static_cast<std::uint32_t>(me * 0x9E3779B9u);
      std::int64_t rest = static_cast<std::int64_t>(word * 1664525u + 1013904223u) % all;
      for (best = 0; rest >= pull[best]; ++best) {
        rest -= pull[best];
      }
      ++seen.drawn;
    } else {
      for (std::size_t r = 0; r < ranks; ++r) {
        best = may[r] && height[r] * 11 < height[best] * 10 ? r : best;
      }
      ++(best == me ? seen.stayed : seen.left);
    }
    auto const slots_here = static_cast<std::int32_t>(experts_here) + 1;
    out.ids.push_back(static_cast<std::int32_t>(best) * slots_here + slots_here - 1);
    out.weights.push_back(c.options.line.weight);
  }
  return out;
}

/// Draws ids, some of them -1 and for some tokens all; the slot `hot` is drawn more often.
inline ints make_ids(generator& random, index_t tokens, index_t k, index_t slots) {
  ints result;
  auto const hot = random.between(0, slots - 1);
  for (index_t t = 0; t < tokens; ++t) {
    bool const none = random.between(0, 19) == 0;
    for (index_t j = 0; j < k; ++j) {
      std::int64_t const draw = random.between(0, 9);
      result.push_back(static_cast<std::int32_t>(none || draw == 0 ? -1
                                                 : draw < 4        ? hot
                                                                   : random.between(0, slots - 1)));
    }
  }
  return result;
}

inline fill_case make_literal_case(std::uint64_t seed, index_t least_ranks, index_t most_ranks) {
  generator random(seed);
  fill_case c;
  c.ranks = random.between(least_ranks, most_ranks);
  c.slots = c.ranks * random.between(1, 6);
  c.options.rank = random.between(0, c.ranks - 1);
  waterline_options line;
  line.top_k = random.between(1, 8);
  line.max_tokens = 200;
  line.weight = 1 / 2.5f;
  line.local_counts_only = random.between(0, 3) == 0;
  c.options.line = plimsoll::literal_waterfill(line);
  auto const tokens = random.between(0, 5) == 0 ? random.between(0, 63) : random.between(64, 200);
  c.ids = make_ids(random, tokens, line.top_k, c.slots);
  // Loads are similar, arbitrary, or either high or low; batches are equal or arbitrary.
  auto const kind = random.between(0, 2);
  auto const size = random.between(0, 1) == 0 ? 3000 : 1000000;
  for (index_t r = 0; r < c.ranks; ++r) {
    bool const low = random.between(0, 3) == 0;
    c.others.push_back(kind == 0   ? size + random.between(0, tokens)
                       : kind == 1 ? random.between(0, size)
                                   : (low ? 0 : size) + random.between(0, size / 3));
  }
  bool const alike = random.between(0, 1) == 0;
  for (index_t r = 0; r < c.ranks; ++r) {
    c.others.push_back(r == c.options.rank ? 0 : alike ? tokens : random.between(0, 300));
  }
  if (line.local_counts_only) {
    c.others.assign(c.others.size(), 0);
  }
  return c;
}

inline void check_literal(fill_fn fill_of) {
  fnv1a all;
  ways seen;
  auto const check = [&](fill_case const& c) {
    CAPTURE(c.ranks);
    sglang_output const expected = sglang_step(c, seen);
    fill_result const got = fill_of(c);
    CHECK(got.ids == expected.ids);
    CHECK(got.weights == expected.weights);
    all.add(got.ids);
  };
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    check(make_literal_case(seed, 1, 31));
  }
  for (std::int64_t const way : seen.counts()) {
    CHECK(way > static_cast<std::int64_t>(cases_of(20)));
  }
  // A rank at the level but none above it: all ranks are candidates.
  fill_case level = make_literal_case(0, 2, 2);
  level.slots = 2;
  level.options.rank = 0;
  level.options.line.top_k = 1;
  level.options.line.local_counts_only = false;
  level.ids.assign(64, 0);
  level.others = {0, 0, 0, 64};
  check(level);
  // More ranks than SGLang's mask has bits.
  for (std::uint64_t seed = 0; seed < cases_of(20); ++seed) {
    CAPTURE(seed);
    check(make_literal_case(1000 + seed, 32, 200));
  }
  report_hash("waterfill.literal", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: SGLang's choices, id for id", P, PLIMSOLL_PREPARED_POLICIES) {
  check_literal(fill_of<P>);
}

// ----- placements --------------------------------------------------------------------------------

/// Runs a step of all ranks; `ids` replaces the ids of `c`, and the other ranks' counts are summed.
inline std::vector<fill_result> step_of(fill_fn fill_of, fill_case c,
                                        std::vector<ints> const& ids) {
  std::vector<fill_result> results;
  longs sum(static_cast<std::size_t>(2 * c.ranks), 0);
  for (int const turn : {0, 1}) {
    for (index_t r = 0; r < c.ranks; ++r) {
      auto const at = static_cast<std::size_t>(r);
      c.options.rank = r;
      c.ids = ids[at];
      c.others.assign(sum.size(), 0);
      if (turn == 0) {
        longs const counts = fill_of(c).counts;
        results.push_back({counts, {}, {}, {}, {}, {}, {}});
        std::transform(sum.begin(), sum.end(), counts.begin(), sum.begin(), std::plus<>{});
      } else {
        std::transform(sum.begin(), sum.end(), results[at].counts.begin(), c.others.begin(),
                       std::minus<>{});
        results[at] = fill_of(c);
      }
    }
  }
  return results;
}

/// Checks ids, and returns the final load and the routed load of every rank.
inline std::pair<longs, longs> loads_after(fill_case c, std::vector<ints> const& ids,
                                           std::vector<fill_result> const& results) {
  longs routed(static_cast<std::size_t>(c.ranks), 0);
  longs loads = routed;
  bool good = true;
  for (std::size_t source = 0; source < results.size(); ++source) {
    fill_result const& got = results[source];
    for (std::size_t i = 0; i < got.ids.size(); ++i) {
      auto const width = static_cast<std::size_t>(c.k()) + 1;
      std::size_t const t = i / width;
      std::size_t const j = i % width;
      std::int32_t const row = got.ranks[t];
      if (j + 1 == width) {
        good = good && got.ids[i] == (row < 0 ? -1 : c.begin(row + 1) + row);
        if (row >= 0) {
          ++loads.at(static_cast<std::size_t>(row));
        }
      } else {
        std::int32_t const id = ids[source][t * (width - 1) + j];
        std::int32_t const r = c.rank_of(id);
        good = good && got.ids[i] == (r < 0 ? -1 : id + r) && (r < 0 || row >= 0);
        if (r >= 0) {
          ++routed.at(static_cast<std::size_t>(r));
          ++loads.at(static_cast<std::size_t>(r));
        }
      }
    }
  }
  CHECK(good);
  return {loads, routed};
}

inline std::int64_t highest_of(longs const& loads) {
  return *std::max_element(loads.begin(), loads.end());
}
inline std::int64_t mean_of(longs const& loads) {
  auto const ranks = static_cast<std::int64_t>(loads.size());
  return (std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) + ranks - 1) / ranks;
}

/// Returns a case of three layers with different slots per rank; the last has a slot of no rank.
inline fill_case make_placed_case() {
  fill_case c;
  c.layers = 3;
  c.ranks = 5;
  c.slots = 23;
  c.offsets = {0, 4, 9, 14, 18, 23, 0, 1, 2, 12, 21, 23, 0, 9, 14, 16, 21, 22};
  c.options.line.top_k = 3;
  c.options.line.max_tokens = 700;
  c.options.line.min_tokens = 0;
  c.options.line.seed = 3;
  c.stream = 4;
  return c;
}

inline void check_placed(fill_fn fill_of, fill_fn by_hand_of) {
  fill_case c = make_placed_case();
  generator random(1);
  std::vector<ints> ids;
  for (index_t const tokens : {700, 90, 0, 40, 530}) {
    ids.push_back(make_ids(random, tokens, c.k(), c.slots));
  }
  fnv1a all;
  std::vector<ints> ranks_of_layers;
  for (bool const even : {false, true}) {
    c.offsets = even ? ints{} : make_placed_case().offsets;
    for (c.options.layer = 0; c.options.layer < c.layers; ++c.options.layer) {
      for (auto const& [rule, candidates] :
           {std::pair(fill_method::surplus, candidate_ranks::all),
            std::pair(fill_method::surplus, candidate_ranks::visited),
            std::pair(fill_method::sampled, candidate_ranks::visited)}) {
        CAPTURE(even);
        CAPTURE(c.options.layer);
        c.options.line.method = rule;
        c.options.line.candidates = candidates;
        CAPTURE(static_cast<int>(c.options.line.method));
        auto const got = step_of(fill_of, c, ids);
        auto const expected = step_of(by_hand_of, c, ids);
        for (std::size_t r = 0; r < got.size(); ++r) {
          CHECK(difference(got[r], expected[r]) == "");
          CHECK(got[r].loads == got[0].loads);
          all.add(got[r].ids);
        }
        auto const [loads, routed] = loads_after(c, ids, got);
        CHECK(longs(got[0].loads.begin(), got[0].loads.begin() + c.ranks) == routed);
        if (rule == fill_method::surplus) {
          std::int64_t const lowest = std::max(mean_of(loads), highest_of(routed));
          CHECK(got[0].report.level == static_cast<double>(lowest));
          if (candidates == candidate_ranks::all) {
            CHECK(highest_of(loads) == lowest);
            ranks_of_layers.push_back(got[0].ranks);
          }
        }
      }
    }
  }
  // Offsets are those of the layer; without them all layers are equal.
  CHECK(ranks_of_layers[0] != ranks_of_layers[1]);
  CHECK(ranks_of_layers[1] != ranks_of_layers[2]);
  CHECK(ranks_of_layers[3] == ranks_of_layers[5]);
  report_hash("waterfill.placed", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: the same as waterline for a layer's ranks", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_placed(fill_of<P>, by_hand_of<P>);
}

// ----- after LPLB --------------------------------------------------------------------------------

struct split_case {
  index_t experts;
  index_t ranks;
  index_t k;
  ints map;  ///< [slots]
  ints ids;  ///< [tokens, k]
};
struct split_result {
  ints slots;  ///< [tokens, k]
  std::int64_t peak;
};
using split_fn = split_result (*)(split_case const&);

template <class P>
split_result split_of(split_case const& c) {
  auto const policy = make_policy<P>();
  index_t const tokens = std::ssize(c.ids) / c.k;
  ints counted(static_cast<std::size_t>(c.experts), 0);
  for (std::int32_t const id : c.ids) {
    if (id >= 0) {
      ++counted[static_cast<std::size_t>(id)];
    }
  }
  array_in<std::int32_t, P> const map(c.map);
  array_in<std::int32_t, P> const counts(counted);
  array_in<std::int32_t, P> const ids(c.ids);
  array_in<std::int32_t, P> slots(std::ssize(c.ids), -7);
  array_in<plimsoll::dispatch_counters, P> counters(1);
  plimsoll::lplb_options options;
  options.max_ids = std::ssize(c.ids);
  plimsoll::lplb planner(policy, {map.view2(1, map.size()), {nullptr, 1, c.experts}, c.ranks, {}},
                         options);
  planner.plan(counts.view2(1, c.experts));
  planner.dispatch(0, ids.view2(tokens, c.k), slots.view2(tokens, c.k), counters.view1());
  planner.check();
  return {slots.values(), plimsoll::read(policy, planner.reports())[0].peak};
}

inline void check_after_lplb(split_fn split_of, fill_fn fill_of) {
  split_case c{24, 6, 3, {}, {}};
  for (std::int32_t r = 0; r < 6; ++r) {
    c.map.insert(c.map.end(),
                 {4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3, (4 * r + 5) % 24, (4 * r + 10) % 24});
  }
  fnv1a all;
  ints higher_of{0, 0};
  for (std::uint64_t seed = 0; seed < cases_of(24); ++seed) {
    CAPTURE(seed);
    generator random(seed);
    // Tokens are ordered by rank. The popular expert may have a second replica.
    std::vector<index_t> tokens;
    for (index_t r = 0; r < c.ranks; ++r) {
      tokens.push_back(random.between(0, 3) == 0 ? 0 : random.between(1, 400));
    }
    auto const liked = random.between(0, 23);
    auto const much = random.between(0, 9);
    auto const count = std::accumulate(tokens.begin(), tokens.end(), index_t{0}) * c.k;
    c.ids.clear();
    for (index_t i = 0; i < count; ++i) {
      c.ids.push_back(
          static_cast<std::int32_t>(random.between(0, 9) < much ? liked : random.between(-1, 23)));
    }
    split_result const split = split_of(c);

    fill_case fill;
    fill.ranks = c.ranks;
    fill.slots = std::ssize(c.map);
    fill.options.line.top_k = c.k;
    fill.options.line.max_tokens = 400;
    fill.options.line.candidates = candidate_ranks::all;
    fill.options.line.min_tokens = 0;
    std::vector<ints> slots;
    auto next = split.slots.begin();
    for (index_t const n : tokens) {
      slots.emplace_back(next, next + n * c.k);
      next += n * c.k;
    }
    auto const results = step_of(fill_of, fill, slots);
    auto const [loads, routed] = loads_after(fill, slots, results);
    // No split of routed tokens has a lower peak, and no peak is below the mean.
    CHECK(highest_of(routed) == split.peak);
    CHECK(highest_of(loads) == std::max(mean_of(loads), split.peak));
    ++higher_of[mean_of(loads) > split.peak ? 1 : 0];
    for (fill_result const& one : results) {
      CHECK(one.report.unplaced == 0);
      all.add(one.ids);
    }
  }
  CHECK(higher_of[0] > 0);
  CHECK(higher_of[1] > 0);
  report_hash("waterfill.after_lplb", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: after lplb, the lowest possible peak", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_after_lplb(split_of<P>, fill_of<P>);
}

// ----- bad input ---------------------------------------------------------------------------------

inline fill_case make_small_case() {
  fill_case c = make_placed_case();
  c.options.line.max_tokens = 4;
  c.ids = {0, 5, 9, -1, 22, 3, -1, -1, -1, 7, 7, -5};
  return c;
}

struct refused_fill {
  fill_case c;
  std::string message;
};

inline std::vector<refused_fill> refusals() {
  std::vector<refused_fill> all;
  auto const next = [&](std::string message) -> fill_case& {
    all.push_back({make_small_case(), std::move(message)});
    return all.back().c;
  };
  next("waterfill: options.layer: expected 0 to 2 as layer, got 3").options.layer = 3;
  next("waterfill: options.layer: expected 0 to 2 as layer, got -1").options.layer = -1;
  next("waterfill: options.rank: expected 0 to 4 as rank, got 5").options.rank = 5;
  next("waterfill: options.rank: expected 0 to 4 as rank, got -1").options.rank = -1;
  next("waterfill: options.line.on.ranks: expected 5 ranks, as in the placement, got 4")
      .options.line.on.ranks = 4;
  next("waterfill: options.line.slots: expected none, as the placement's applies, got another")
      .options.line.slots = 5;
  next("waterfill: options.line.on.nodes: expected 1 to 5 nodes (at most one per rank), got 6")
      .options.line.on.nodes = 6;
  // Offsets of another layer are not read.
  fill_case& falling = next(
      "waterline: options.rank_offsets: expected offsets that rise from 0 to at most the number of "
      "slots, got 12 and 11 for rank 3");
  falling.offsets[10] = 11;
  falling.options.layer = 1;
  next("no error").offsets[10] = 11;
  fill_case& same = next("no error");
  same.options.line.on.ranks = 5;
  same.options.line.slots = 23;
  fill_case& poured = next(
      "waterline: options.literal: expected false unless fill_method::sampled is set, got true");
  poured.options.line = plimsoll::literal_waterfill(poured.options.line);
  poured.options.line.method = fill_method::surplus;
  next("waterfill::fill: loads: expected values from 0 to 2^31 - 1, got -3 in row 1, rank 2")
      .others = {0, 0, 0, 0, 0, 0, 0, -3, 0, 0};
  next("waterfill::fill: loads: expected at most 2^31 - 1 tokens in all, got 2147483652").others = {
      0, 0x7ffffffa, 0, 0, 0, 0, 0, 0, 0, 0};
  return all;
}

PLIMSOLL_TEST_CASE("waterfill: refuses invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (refused_fill const& bad : refusals()) {
    fill_in<P> in(bad.c);
    check_message(refusal_of([&] {
                    plimsoll::waterfill fill(policy, in.placement(), bad.c.options);
                    in.step(fill);
                    fill.check();
                  }),
                  bad.message);
  }
  fill_case const c = make_small_case();
  fill_in<P> in(c);
  plimsoll::placement_ref const placement = in.placement();
  auto const made = [&](plimsoll::placement_ref const& of, waterfill_options const& options) {
    return refusal_of([&] { plimsoll::waterfill fill(policy, of, options); });
  };
  waterfill_options twice = c.options;
  twice.line.rank_offsets = {placement.rank_offsets.data, c.ranks + 1};
  check_message(
      made(placement, twice),
      "waterfill: options.line.rank_offsets: expected none, as the placement's applies, got "
      "another");
  plimsoll::placement_ref other = placement;
  other.rank_offsets.extents[0] = 2;
  check_message(made(other, c.options),
                "waterfill: placement.rank_offsets: expected 3 layers, got 2");
  other.rank_offsets = {placement.rank_offsets.data, 3, 5};
  check_message(made(other, c.options),
                "waterfill: placement.rank_offsets: expected 6 offsets (ranks + 1), got 5");
  other = {};
  check_message(made(other, c.options),
                "waterfill: options.layer: expected 0 to -1 as layer, got 0");
  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{1, 0, 1, 1, 1});
  waterfill_options literal = c.options;
  literal.line = plimsoll::literal_waterfill(literal.line);
  literal.line.on.active = active.view1();
  check_message(made(placement, literal),
                "waterline: options.literal: expected false unless all ranks are live and "
                "equal, got true with a dead rank");

  plimsoll::waterfill fill(policy, placement, c.options);
  array_in<std::int32_t, P> ids(40);
  auto const count = [&](index_t tokens, index_t columns) {
    return refusal_of([&] { fill.count(ids.view2(tokens, columns)); });
  };
  check_message(count(5, 3),
                "waterfill::count: topk_ids: expected 0 to 4 tokens (options.max_tokens), got 5");
  check_message(count(4, 2), "waterfill::count: topk_ids: expected 3 ids per token, got 2");
  check_message(count(4, 3), "no error");
  array_in<std::int32_t, P> out(40);
  array_in<float, P> weights(40);
  auto const filled = [&](index_t tokens, index_t columns, plimsoll::filled_rows const& rows) {
    return refusal_of([&] { fill.fill(ids.view2(4, 3), {}, out.view2(tokens, columns), rows); });
  };
  check_message(filled(4, 4, {}), "no error");
  // A refused call keeps the last plan and does not read new loads.
  array_in<std::int64_t, P> const none(std::vector<std::int64_t>(10, 0));
  double const level = plimsoll::read(policy, fill.report())[0].level;
  CHECK(level > 0);
  plimsoll::detail::launch(
      plimsoll::detail::resolve(policy), 2,
      plimsoll::detail::copy_rows_body<std::int64_t>{none.view2(2, 5), fill.loads()});
  check_message(filled(3, 4, {}), "waterfill::fill: ids: expected 4 tokens, got 3");
  CHECK(plimsoll::read(policy, fill.report())[0].level == level);
  check_message(filled(4, 3, {}), "waterfill::fill: ids: expected 4 columns, got 3");
  check_message(
      filled(4, 4, {weights.view2(4, 4), {}}),
      "waterfill::fill: batch.weights: expected weights, as rows.weights is set, got none");
  check_message(filled(4, 4, {{}, {ids.data(), 3}}),
                "waterfill::fill: rows.ranks: expected 4 tokens, got 3");
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of waterfill, calls under every policy, and what the results must be.
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

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test::waterfill_support {

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
            plimsoll::read(policy, line.report())};
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
  bool const is_static = c.options.line.counts == plimsoll::counted_ranks::own;
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
  line.counts =
      random.between(0, 3) == 0 ? plimsoll::counted_ranks::own : plimsoll::counted_ranks::all;
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
  if (line.counts == plimsoll::counted_ranks::own) {
    c.others.assign(c.others.size(), 0);
  }
  return c;
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
  options.max_token_copies = std::ssize(c.ids);
  plimsoll::lplb planner(policy, {map.view2(1, map.size()), {nullptr, 1, c.experts}, c.ranks, {}},
                         options);
  planner.plan(counts.view2(1, c.experts));
  planner.dispatch(0, ids.view2(tokens, c.k), slots.view2(tokens, c.k), counters.view1());
  planner.check();
  return {slots.values(), plimsoll::read(policy, planner.reports())[0].peak};
}

}  // namespace plimsoll_test::waterfill_support

// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of gem, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/systems/gem.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "policies.hpp"
#include "print.hpp"
#include "refusal.hpp"
#include "search_case.hpp"

namespace plimsoll_test::gem_support {

using plimsoll::latency_objective;
using plimsoll::spare_slot_use;

/// A trace, ranks with their slots, and curves. `counts` and `cost` of the search are not used.
struct gem_case {
  search_case search;
  spare_slot_use spare = spare_slot_use::stay_free;
  longs tokens = {};
  reals latency = {};  ///< [ranks or 1, samples]
  std::int64_t dense_until = 0;
  reals speeds = {};

  [[nodiscard]] plimsoll::gem_options options() const {
    auto const& o = search.options;
    return {.on = {.ranks = o.on.ranks},
            .restarts = o.restarts,
            .noise = o.noise,
            .seed = o.seed,
            .min_gain = o.min_gain,
            .objective = o.objective,
            .quantile = o.quantile,
            .spare_slots = spare};
  }
};

struct gem_outcome {
  ints map;
  ints counts;
  std::vector<plimsoll::certificate> certificates;
};

using gem_fn = gem_outcome (*)(gem_case const&);

/// Calls `trace_length_latencies` with `planned_until` and `lengths`.
using lengths_fn = reals (*)(gem_case const&, index_t, std::vector<index_t> const&);

/// Curves and options in the memory of a policy.
template <class P>
class gem_in {
 public:
  explicit gem_in(gem_case const& c)
      : offsets_(c.search.offsets),
        active_(c.search.active),
        tokens_(c.tokens),
        latency_(c.latency),
        speeds_(c.speeds),
        options_(c.options()) {
    if (!c.search.offsets.empty()) {
      options_.rank_offsets = offsets_.view2(c.search.layers, c.search.ranks() + 1);
    }
    if (!c.search.active.empty()) {
      options_.on.active = active_.view1();
    }
    index_t const samples = std::ssize(c.tokens);
    curves_ = {tokens_.view1(), latency_.view2(std::ssize(c.latency) / samples, samples),
               c.dense_until};
    if (!c.speeds.empty()) {
      curves_.speeds = speeds_.view1();
    }
  }
  [[nodiscard]] plimsoll::gem_options const& options() const { return options_; }
  [[nodiscard]] plimsoll::latency_curves const& curves() const { return curves_; }

 private:
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<std::int64_t, P> tokens_;
  array_in<double, P> latency_;
  array_in<double, P> speeds_;
  plimsoll::gem_options options_;
  plimsoll::latency_curves curves_;
};

template <class P, class Id = std::int32_t, class Count = std::int32_t>
gem_outcome gem_of(gem_case const& c) {
  search_case const& s = c.search;
  gem_in<P> const in(c);
  array_in<float, P> const loads(std::vector<float>(s.loads.begin(), s.loads.end()));
  array_in<Id, P> map(s.layers * s.slots, -7);
  array_in<Count, P> counts(s.layers * s.experts, -7);
  auto const certificates =
      plimsoll::gem(make_policy<P>(), loads.view3(s.steps, s.layers, s.experts), in.curves(),
                    in.options(), map.view2(s.layers, s.slots), counts.view2(s.layers, s.experts));
  return {as_int32(map.values()), as_int32(counts.values()), certificates};
}

/// The same by the call that returns a placement.
template <class P>
gem_outcome returned_gem(gem_case const& c) {
  search_case const& s = c.search;
  gem_in<P> const in(c);
  array_in<float, P> const loads(std::vector<float>(s.loads.begin(), s.loads.end()));
  auto const made = plimsoll::gem(make_policy<P>(), loads.view3(s.steps, s.layers, s.experts),
                                  in.curves(), s.slots, in.options());
  CHECK(made.ranks == s.ranks());
  CHECK(made.rank_offsets.to_host() == s.offsets);
  CHECK(made.physical_to_logical.extent(0) == s.layers);
  CHECK(made.physical_to_logical.extent(1) == s.slots);
  return {made.physical_to_logical.to_host(), made.replica_count.to_host(), made.certificates};
}

template <class P>
reals length_latencies_of(gem_case const& c, index_t planned_until,
                          std::vector<index_t> const& lengths) {
  search_case const& s = c.search;
  gem_in<P> const in(c);
  array_in<float, P> const loads(std::vector<float>(s.loads.begin(), s.loads.end()));
  array_in<double, P> out(std::ssize(lengths) * s.layers, -7.0);
  plimsoll::trace_length_latencies(make_policy<P>(), loads.view3(s.steps, s.layers, s.experts),
                                   in.curves(), s.slots, planned_until, lengths, in.options(),
                                   out.view2(std::ssize(lengths), s.layers));
  return out.values();
}

/// A random search, with samples that end within the range of rank loads or far beyond.
inline gem_case random_gem(std::uint64_t seed) {
  generator random(seed);
  gem_case c{.search = random_search(seed, 5, 9)};
  c.search.counts.clear();
  c.search.options.max_swaps = INT32_MAX;
  c.search.options.max_plateau_moves = 0;
  c.spare = seed % 2 == 0 ? spare_slot_use::stay_free : spare_slot_use::hold_replicas;
  std::int64_t const samples = random.between(2, 7);
  for (std::int64_t i = 0; i < samples; ++i) {
    std::int64_t const before = i == 0 ? -1 : c.tokens.back();
    c.tokens.push_back(before + random.between(1, 300));
  }
  c.dense_until = random.between(0, 2) == 0
                      ? 0
                      : c.tokens[static_cast<std::size_t>(random.between(0, samples - 1))];
  index_t const rows = random.between(0, 1) == 0 ? 1 : c.search.ranks();
  for (index_t r = 0; r < rows; ++r) {
    double last = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
      last += 10 * random.unit();
      c.latency.push_back(last);
    }
  }
  if (random.between(0, 1) == 0) {
    for (index_t r = 0; r < c.search.ranks(); ++r) {
      c.speeds.push_back(0.5 + random.unit());
    }
  }
  return c;
}

/// Computes the result of `gem` from `replicate` and `swap_search`.
inline gem_outcome composed(gem_case const& c) {
  search_case s = c.search;
  if (c.spare == spare_slot_use::hold_replicas) {
    reals sums(static_cast<std::size_t>(s.layers * s.experts), 0.0);
    for (std::size_t i = 0; i < s.loads.size(); ++i) {
      sums[i % sums.size()] += s.loads[i];
    }
    gem_in<plimsoll::seq_policy> const in(c);
    plimsoll::replication_options how;
    how.where.on.ranks = s.ranks();
    how.where.rank_offsets = in.options().rank_offsets;
    how.where.on.active = in.options().on.active;
    s.counts.assign(sums.size(), -7);
    plimsoll::replicate(
        plimsoll::seq, plimsoll::matrix_ref<double const>(sums.data(), s.layers, s.experts),
        s.slots, how, plimsoll::matrix_ref<std::int32_t>(s.counts.data(), s.layers, s.experts));
  }
  gem_in<plimsoll::seq_policy> const in(c);
  plimsoll::latency_table const table(plimsoll::seq, in.curves(), s.ranks());
  std::vector<float> const loads(s.loads.begin(), s.loads.end());
  search_outcome const got = search_of<plimsoll::seq_policy>(
      s, plimsoll::tensor_ref<float const>(loads.data(), s.steps, s.layers, s.experts),
      table.cost());
  return {got.map, s.all_copies(), got.certificates};
}

/// Computes the result of `trace_length_latencies` by its definition, from other calls.
inline reals length_latencies_by_hand(gem_case const& c, index_t planned_until,
                                      std::vector<index_t> const& lengths) {
  search_case const& s = c.search;
  index_t const width = s.layers * s.experts;
  reals result;
  for (index_t const length : lengths) {
    gem_case known = c;
    known.search.steps = length;
    known.search.loads.assign(s.loads.begin() + (planned_until - length) * width,
                              s.loads.begin() + planned_until * width);
    gem_outcome const plan = composed(known);
    index_t const unseen = s.steps - planned_until;
    reals steps(static_cast<std::size_t>(unseen * s.layers));
    gem_in<plimsoll::seq_policy> const in(c);
    plimsoll::step_latencies(
        plimsoll::seq,
        plimsoll::tensor_ref<double const>(s.loads.data() + planned_until * width, unseen, s.layers,
                                           s.experts),
        {.physical_to_logical = {plan.map.data(), s.layers, s.slots},
         .replica_count = {plan.counts.data(), s.layers, s.experts},
         .ranks = s.ranks(),
         .rank_offsets = in.options().rank_offsets},
        in.curves(), plimsoll::matrix_ref<double>(steps.data(), unseen, s.layers));
    for (index_t layer = 0; layer < s.layers; ++layer) {
      double sum = 0;
      for (index_t t = 0; t < unseen; ++t) {
        sum += steps[static_cast<std::size_t>(t * s.layers + layer)];
      }
      result.push_back(sum / static_cast<double>(unseen));
    }
  }
  return result;
}

}  // namespace plimsoll_test::gem_support

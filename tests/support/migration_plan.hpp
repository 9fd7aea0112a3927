// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of plan_within, calls under every policy, what the results must be, and the
// best of all plans.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement_maps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "migration.hpp"
#include "move_path.hpp"
#include "owned.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"
#include "refinement.hpp"

namespace plimsoll_test::migration_plan_support {

using move_path_support::layer_costs;
using plimsoll::anti_affinity;
using plimsoll::certificate_status;
using plimsoll::migration_options;
using plimsoll::migration_report;
using plimsoll::placement_ref;
using plimsoll::split_rule;
using plimsoll::strictness;
using refinement_support::scene;

using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

inline constexpr split_rule both_splits[] = {split_rule::even, split_rule::optimal};

/// The placement in use is the scene's map. With several steps, `loads` is `[steps, layers,
/// experts]`.
struct plan_case : scene {
  ints to = {};  ///< [layers, slots]
  migration_options options = {};
  index_t steps = 1;

  [[nodiscard]] migration_support::migration_case changes_to(ints const& next) const {
    return {layers, experts, slots, map, next, where};
  }
  /// Returns the scene with a map in use.
  [[nodiscard]] scene in_use_after(ints const& next) const {
    scene result = *this;
    result.map = next;
    return result;
  }
  /// Returns the case of one layer.
  [[nodiscard]] plan_case only(index_t layer) const {
    auto const row = [layer](auto const& all, index_t columns) {
      auto const first = all.begin() + (all.empty() ? 0 : layer * columns);
      return std::remove_cvref_t<decltype(all)>(first, all.empty() ? first : first + columns);
    };
    plan_case one = *this;
    one.layers = 1;
    one.loads = row(loads, experts);
    one.map = row(map, slots);
    one.to = row(to, slots);
    one.where.rank_offsets = row(where.rank_offsets, where.ranks + 1);
    one.where.node_experts = row(where.node_experts, experts);
    one.where.node_offsets = row(where.node_offsets, where.nodes + 1);
    return one;
  }
};

/// Results and outputs of a call of plan_within.
struct plan_result {
  ints map;
  ints counts;
  std::vector<migration_report> reports;

  /// Members of the reports: imbalance and its bound, balancedness, gain, then status, work, moves,
  /// local copies.
  [[nodiscard]] reals balances() const {
    reals result;
    for (migration_report const& one : reports) {
      result.insert(result.end(),
                    {one.imbalance.value, one.imbalance.lower_bound, one.imbalance_before,
                     one.balancedness, one.balancedness_before, one.expected_gain});
    }
    return result;
  }
  [[nodiscard]] longs numbers() const {
    longs result;
    for (migration_report const& one : reports) {
      result.insert(result.end(),
                    {static_cast<std::int64_t>(one.imbalance.status), one.imbalance.work,
                     one.changes.moves, one.changes.local_copies});
    }
    return result;
  }
  [[nodiscard]] double sum_of_gains() const {
    double sum = 0;
    for (migration_report const& one : reports) {
      sum += one.expected_gain;
    }
    return sum;
  }
  [[nodiscard]] std::int64_t moves() const {
    std::int64_t sum = 0;
    for (migration_report const& one : reports) {
      sum += one.changes.moves;
    }
    return sum;
  }
  bool operator==(plan_result const& other) const {
    return map == other.map && counts == other.counts && balances() == other.balances() &&
           numbers() == other.numbers();
  }
};

/// The arrays of a call in the memory of a policy.
template <class P, class T>
class plan_inputs {
 public:
  plan_inputs(plan_case const& c, std::vector<T> const& loads)
      : layers_(c.layers),
        experts_(c.layers == 0 ? 1 : c.experts),
        loads_(loads),
        placements_({c.layers, c.experts, c.slots, c.map, c.to, c.where}),
        where_(without_offsets(c.where), c.layers) {}

  [[nodiscard]] auto loads() const { return loads_.view2(layers_, experts_); }
  [[nodiscard]] auto steps(index_t n) const { return loads_.view3(n, layers_, experts_); }
  [[nodiscard]] placement_ref from() const { return placements_.from(); }
  [[nodiscard]] placement_ref to() const { return placements_.to(); }
  [[nodiscard]] plimsoll::placement_options const& where() const { return *where_; }

 private:
  static host_options without_offsets(host_options where) {
    where.rank_offsets.clear();
    return where;
  }

  index_t layers_;
  index_t experts_;
  array_in<T, P> loads_;
  migration_support::placements_in<P> placements_;
  options_in<P> where_;
};

template <class P, class T, class Id = std::int32_t>
plan_result plan_for(plan_case const& c, std::vector<T> const& loads) {
  plan_inputs<P, T> const in(c, loads);
  array_in<Id, P> map(c.layers * c.slots, -7);
  array_in<Id, P> counts(c.layers * c.experts, -7);
  auto const plan = [&](auto const& of) {
    return plimsoll::plan_within(make_policy<P>(), of, in.from(), in.to(), in.where(), c.options,
                                 map.view2(c.layers, c.slots), counts.view2(c.layers, c.experts));
  };
  auto reports = c.steps == 1 ? plan(in.loads()) : plan(in.steps(c.steps));
  return {as_int32(map.values()), as_int32(counts.values()), std::move(reports)};
}
template <class P>
plan_result plan_of(plan_case const& c) {
  return plan_for<P>(c, c.loads);
}
using plan_fn = plan_result (*)(plan_case const&);

// ----- by the definition -------------------------------------------------------------------------

/// Smallest peaks of all plans of a layer by number of moves: element n is that of plans with
/// exactly n moves, infinite if none.
struct best_plans {
  reals even = {};
  reals optimal = {};

  explicit best_plans(layer_costs const& layer) {
    ints map(layer.in_use().size(), -1);
    try_all(layer, layer.usable(), 0, map);
  }
  /// The smallest peak of plans with at most `moves` moves.
  [[nodiscard]] double within(std::int64_t moves, split_rule split) const {
    reals const& all = split == split_rule::even ? even : optimal;
    auto const last = std::min<std::int64_t>(moves + 1, std::ssize(all));
    return *std::min_element(all.begin(), all.begin() + last);
  }

 private:
  void try_all(layer_costs const& layer, std::vector<std::size_t> const& usable, std::size_t i,
               ints& map) {
    if (i == usable.size()) {
      if (layer.allows(map.data())) {
        auto const n = static_cast<std::size_t>(layer.moves_to(map.data()));
        if (even.size() <= n) {
          even.resize(n + 1, std::numeric_limits<double>::infinity());
          optimal.resize(n + 1, std::numeric_limits<double>::infinity());
        }
        even[n] = std::min(even[n], layer.peak(map.data(), split_rule::even));
        optimal[n] = std::min(optimal[n], layer.peak(map.data(), split_rule::optimal));
      }
      return;
    }
    for (std::int32_t e = -1; e < static_cast<std::int32_t>(layer.experts()); ++e) {
      map[usable[i]] = e;
      try_all(layer, usable, i + 1, map);
    }
  }
};

/// Checks maps, counts and reports of a result against the definitions.
inline void check_plan(plan_case const& c, plan_result const& got) {
  REQUIRE(std::ssize(got.reports) == c.layers);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CAPTURE(layer);
    layer_costs const facts(c, layer);
    std::int32_t const* const map = got.map.data() + layer * c.slots;
    migration_report const& one = got.reports[static_cast<std::size_t>(layer)];
    CHECK(facts.allows(map));
    CHECK(facts.copies(map) == wide_row(got.counts, layer, c.experts));
    auto const [moves, local_copies] =
        migration_support::slow_changes(c.changes_to(got.map), got.map, layer);
    CHECK(one.changes.moves == moves);
    CHECK(one.changes.local_copies == local_copies);
    migration_options const& limits = c.options;
    CHECK(moves <= limits.max_moves_per_layer);
    CHECK(moves * limits.expert_bytes <= limits.max_bytes_per_layer);
    double const mean = facts.mean_of_live_ranks();
    auto const imbalance = [&](std::int32_t const* plan) {
      return mean > 0 ? facts.peak(plan, c.options.split) / mean : 1.0;
    };
    double const before = imbalance(facts.in_use().data());
    CHECK(one.imbalance.value == doctest::Approx(imbalance(map)).epsilon(1e-12));
    CHECK(one.imbalance_before == doctest::Approx(before).epsilon(1e-12));
    CHECK(one.balancedness == doctest::Approx(1 / one.imbalance.value).epsilon(1e-11));
    CHECK(one.balancedness_before == doctest::Approx(1 / before).epsilon(1e-11));
    CHECK(one.expected_gain == one.balancedness - one.balancedness_before);
    CHECK(one.expected_gain >= 0);
    CHECK(one.imbalance.lower_bound <= one.imbalance.value);
    if (mean > 0) {
      CHECK(one.imbalance.lower_bound * mean >= facts.mean(split_rule::optimal) * (1 - 1e-12));
    }
    CHECK(one.imbalance.status == (one.imbalance.lower_bound == one.imbalance.value
                                       ? certificate_status::optimal
                                       : certificate_status::feasible));
    bool const is_kept = moves == 0 && local_copies == 0;
    CHECK(one.imbalance.work >= (is_kept ? 1 : 2));
  }
  CHECK(got.moves() <= c.options.max_moves);
  CHECK(got.moves() * c.options.expert_bytes <= c.options.max_bytes);
  options_in<plimsoll::seq_policy> const where(c.where, c.layers);
  plimsoll::validation_options rules;
  rules.on.nodes = c.where.nodes;
  rules.on.active = (*where).on.active;
  if (c.where.anti_affinity_strength == strictness::required) {
    rules.replica_anti_affinity = c.where.replica_anti_affinity;
  }
  ints live = got.map;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    ints const row = layer_costs(c.in_use_after(got.map), layer).in_use();
    std::copy(row.begin(), row.end(), live.begin() + layer * c.slots);
  }
  CHECK_NOTHROW(plimsoll::validate(plimsoll::seq,
                                   {{live.data(), c.layers, c.slots},
                                    {got.counts.data(), c.layers, c.experts},
                                    c.where.ranks,
                                    (*where).rank_offsets},
                                   rules));
}

// ----- random cases ------------------------------------------------------------------------------

/// Returns a case whose placement in use was planned for other loads, then lost copies, got copies
/// on ranks that hold the expert, and lost ranks; none if the shape has no plan.
inline std::optional<plan_case> random_plan(std::uint64_t seed,
                                            refinement_support::shape_limits const& limits) {
  plan_case c;
  if (!refinement_support::draw(c, seed, limits)) {
    return {};
  }
  draws draw(seed + 77777);
  ints const from = c.map;
  if (!draw.one_in(4)) {
    c.loads = skewed_loads(c.layers, c.experts, seed + 5000);
  }
  if (!refinement_support::plan_greedily(c)) {
    return {};
  }
  c.to = c.map;
  c.map = from;
  bool const may_meet = c.where.replica_anti_affinity == anti_affinity::none ||
                        c.where.anti_affinity_strength == strictness::preferred;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    oracle::site const where = c.site(layer);
    std::int32_t* const map = c.map.data() + layer * c.slots;
    auto const for_each_slot = [&](bool live, auto change) {
      for (std::size_t r = 0; r < where.ranks(); ++r) {
        bool const lives = where.active.empty() || where.active[r] != 0;
        for (std::int64_t s = where.offsets[r]; s < where.offsets[r + 1] && lives == live; ++s) {
          change(r, s);
        }
      }
    };
    for_each_slot(true, [&](std::size_t r, std::int64_t s) {
      bool const is_free = map[s] < 0 || std::count(map, map + c.slots, map[s]) > 1;
      if (may_meet && is_free && draw.one_in(6)) {
        map[s] = map[draw.among(where.offsets[r], where.offsets[r + 1] - 1)];
      }
    });
    for_each_slot(false,
                  [&](std::size_t, std::int64_t s) { map[s] = draw.among(-1, c.experts - 1); });
  }
  c.options.split = draw.any({split_rule::even, split_rule::optimal});
  return c;
}

}  // namespace plimsoll_test::migration_plan_support

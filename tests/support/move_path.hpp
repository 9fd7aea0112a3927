// SPDX-License-Identifier: Apache-2.0
// Paths of plan_within and of refine with a price, and their steps by the definition; peaks of
// maps: even splits by sums, optimal splits by all sets of ranks (max-flow min-cut).
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/migration.hpp>
#include <plimsoll/refinement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "guarded_scratch.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "refinement.hpp"
#include "skewed_loads.hpp"

namespace plimsoll_test::move_path_support {

using plimsoll::split_rule;
using plimsoll::detail::path_change;
using plimsoll::detail::path_point;
using plimsoll::detail::path_rule;
using refinement_support::scene;

using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

/// One layer of a case, and what maps of it cost.
class layer_costs {
 public:
  layer_costs(scene const& c, index_t layer)
      : where_(c.site(layer)),
        loads_(row_of(c.loads, layer, c.experts)),
        from_(c.map.begin() + layer * c.slots, c.map.begin() + (layer + 1) * c.slots),
        node_of_expert_(loads_.size(), 0) {
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      nodes_.push_back(where_.node_of(r));
    }
    for (std::size_t n = 0; n < where_.lists.size(); ++n) {
      for (std::int64_t const e : where_.lists[n]) {
        node_of_expert_[static_cast<std::size_t>(e)] = n;
      }
    }
  }

  [[nodiscard]] oracle::site const& where() const { return where_; }
  [[nodiscard]] std::size_t experts() const { return loads_.size(); }
  [[nodiscard]] std::size_t node_of(std::size_t r) const { return nodes_[r]; }
  /// Returns whether the lists of nodes, if any, let a rank hold an expert.
  [[nodiscard]] bool may_hold(std::size_t r, std::size_t e) const {
    return where_.lists.empty() || nodes_[r] == node_of_expert_[e];
  }
  [[nodiscard]] double speed(std::size_t r) const {
    return where_.speeds.empty() ? 1.0 : where_.speeds[r];
  }
  /// Load over the speed of all ranks with slots; with the optimal split, over that of as many of
  /// the fastest live ranks.
  [[nodiscard]] double mean(split_rule split = split_rule::even) const {
    double load = 0;
    for (std::int64_t const one : loads_) {
      load += static_cast<double>(one);
    }
    std::ptrdiff_t open = 0;
    reals speeds;
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      open += where_.room(r) > 0 ? 1 : 0;
      bool const lives = where_.active.empty() || where_.active[r] != 0;
      if (split == split_rule::even ? where_.room(r) > 0 : lives) {
        speeds.push_back(speed(r));
      }
    }
    std::sort(speeds.begin(), speeds.end(), std::greater<>());
    return load / std::accumulate(speeds.begin(), speeds.begin() + open, 0.0);
  }

  /// Load over the summed speed of the live ranks.
  [[nodiscard]] double mean_of_live_ranks() const {
    double speeds = 0;
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      speeds += where_.active.empty() || where_.active[r] != 0 ? speed(r) : 0;
    }
    std::int64_t const load = std::accumulate(loads_.begin(), loads_.end(), std::int64_t{0});
    return static_cast<double>(load) / speeds;
  }

  /// Calls f(rank, expert) for every replica on a live rank.
  template <class F>
  void for_each_replica(std::int32_t const* map, F f) const {
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      for (std::int64_t s = where_.offsets[r]; s < where_.offsets[r] + where_.room(r); ++s) {
        if (map[s] >= 0) {
          f(r, static_cast<std::size_t>(map[s]));
        }
      }
    }
  }
  [[nodiscard]] longs copies(std::int32_t const* map) const {
    longs result(experts(), 0);
    for_each_replica(map, [&](std::size_t, std::size_t e) { ++result[e]; });
    return result;
  }
  /// Load over speed of every rank under the even split.
  [[nodiscard]] reals costs(std::int32_t const* map) const {
    longs const count = copies(map);
    reals result(where_.ranks(), 0);
    for_each_replica(map, [&](std::size_t r, std::size_t e) {
      result[r] += static_cast<double>(loads_[e]) / static_cast<double>(count[e]) / speed(r);
    });
    return result;
  }
  [[nodiscard]] double peak(std::int32_t const* map, split_rule split) const {
    if (split == split_rule::even) {
      reals const all = costs(map);
      return *std::max_element(all.begin(), all.end());
    }
    std::vector<unsigned> holders(experts(), 0);
    for_each_replica(map, [&](std::size_t r, std::size_t e) { holders[e] |= 1u << r; });
    double result = 0;
    for (unsigned some = 1; some < 1u << where_.ranks(); ++some) {
      double load = 0;
      double speeds = 0;
      for (std::size_t r = 0; r < where_.ranks(); ++r) {
        speeds += (some >> r & 1u) != 0 && where_.room(r) > 0 ? speed(r) : 0;
      }
      for (std::size_t e = 0; e < experts(); ++e) {
        load += (holders[e] & ~some) == 0 ? static_cast<double>(loads_[e]) : 0;
      }
      result = std::max(result, speeds > 0 ? load / speeds : 0);
    }
    return result;
  }
  /// Experts that arrive on a rank which did not hold them.
  [[nodiscard]] std::int64_t moves_to(std::int32_t const* map) const {
    std::set<std::pair<std::size_t, std::size_t>> held;
    std::set<std::pair<std::size_t, std::size_t>> arrived;
    for_each_replica(from_.data(), [&](std::size_t r, std::size_t e) { held.emplace(r, e); });
    for_each_replica(map, [&](std::size_t r, std::size_t e) {
      if (held.count({r, e}) == 0) {
        arrived.emplace(r, e);
      }
    });
    return std::ssize(arrived);
  }
  /// Returns whether a map has every expert and keeps all constraints that must be kept.
  [[nodiscard]] bool allows(std::int32_t const* map) const {
    longs const count = copies(map);
    bool result = *std::min_element(count.begin(), count.end()) > 0;
    std::set<std::pair<std::size_t, std::size_t>> places;
    for_each_replica(map, [&](std::size_t r, std::size_t e) {
      bool const by_node = where_.rule == oracle::apart::node;
      bool const is_new = places.emplace(by_node ? nodes_[r] : r, e).second;
      result = result && (is_new || !where_.required);
      result = result && may_hold(r, e);
    });
    return result;
  }
  /// Slots of live ranks.
  [[nodiscard]] std::vector<std::size_t> usable() const {
    std::vector<std::size_t> result;
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      for (std::int64_t s = where_.offsets[r]; s < where_.offsets[r] + where_.room(r); ++s) {
        result.push_back(static_cast<std::size_t>(s));
      }
    }
    return result;
  }
  /// The placement in use without what dead ranks hold.
  [[nodiscard]] ints in_use() const {
    ints result(from_.size(), -1);
    for (std::size_t const s : usable()) {
      result[s] = from_[s];
    }
    return result;
  }

 private:
  oracle::site where_;
  longs loads_;
  ints from_;
  std::vector<std::size_t> nodes_ = {};
  std::vector<std::size_t> node_of_expert_;
};

/// A path from the map of a layer: its changes, its points, and its last plan.
struct path {
  std::vector<path_change> changes;
  std::vector<path_point> points;  ///< peaks in units of load
  ints map;
  ints counts;
};

inline path follow_path(scene const& s, index_t layer, path_rule rule) {
  namespace detail = plimsoll::detail;
  options_in<plimsoll::seq_policy> const options(s.where, s.layers);
  detail::topology const where = detail::topology_of(*options, s.slots);
  detail::anti_affinity_rule const apart = detail::rule_of(*options);
  detail::plan_reader const reader{where, apart, s.experts};
  guarded_scratch held(
      detail::bytes_taken_by<detail::refinement_arrays>(s.experts, where.ranks(), s.slots), 1);
  guarded_scratch working(
      std::max(reader.scratch_bytes(),
               detail::bytes_taken_by<detail::move_path_arrays>(s.experts, where.ranks(), s.slots)),
      1);
  detail::scratch memory(held.base());
  auto const of = detail::refinement_arrays::in(memory, s.experts, where.ranks(), s.slots);
  detail::serial_team team;
  longs const loads = row_of(s.loads, layer, s.experts);
  auto const scale = detail::read_loads(
      team, s.experts, plimsoll::vector_ref<std::int64_t const>(loads.data(), s.experts), 1.0,
      of.load);
  ints map = layer_costs(s, layer).in_use();
  plimsoll::vector_ref<std::int32_t> const given(map.data(), s.slots);
  REQUIRE_FALSE(reader.read(team, detail::scratch(working.base()), layer, given, of).refused);
  detail::packing_problem const problem = of.problem(where, apart, layer, s.experts, given, scale);
  path result;
  auto const slots = static_cast<std::size_t>(s.slots);
  result.changes.resize(2 * slots);
  result.points.resize(slots + 1);
  detail::move_path<detail::serial_team> way(team, detail::scratch(working.base()), problem,
                                             of.rank_of, of.counts, rule);
  result.points.resize(
      static_cast<std::size_t>(way.follow(result.changes.data(), result.points.data())));
  result.changes.resize(static_cast<std::size_t>(result.points.back().changes));
  result.map.assign(way.map(), way.map() + slots);
  result.counts.assign(of.counts, of.counts + s.experts);
  for (path_point& one : result.points) {
    one.peak = detail::scale_by_power_of_two(one.peak, -scale.shift);
  }
  return result;
}

/// The steps of a path with the even split, by the definition.
class slow_steps {
 public:
  slow_steps(layer_costs const& layer, bool keeps_counts, double price)
      : layer_(layer),
        keeps_counts_(keeps_counts),
        price_(price),
        map_(layer.in_use()),
        settled_(map_.size(), false) {
    layer.for_each_replica(map_.data(), [&](std::size_t r, std::size_t e) { held_.emplace(r, e); });
    rank_of_.assign(map_.size(), layer.where().ranks());
    for (std::size_t r = 0; r < layer.where().ranks(); ++r) {
      for (std::int64_t i = 0; i < layer.where().room(r); ++i) {
        rank_of_[static_cast<std::size_t>(layer.where().offsets[r] + i)] = r;
      }
    }
  }

  [[nodiscard]] ints const& map() const { return map_; }

  /// Returns the largest gain per move of a step, for each rank that is the most loaded one up to
  /// rounding.
  [[nodiscard]] reals best_gains() const {
    reals const costs = layer_.costs(map_.data());
    double const peak = *std::max_element(costs.begin(), costs.end());
    reals result;
    for (std::size_t r = 0; r < costs.size(); ++r) {
      if (costs[r] >= peak * (1 - 1e-12)) {
        result.push_back(best_gain(r));
      }
    }
    return result;
  }
  /// Returns the gain per move of a step that is made.
  [[nodiscard]] double gain_to(ints const& map, int moves) const {
    return (excess_of(map_) - excess_of(map)) / moves;
  }
  /// Makes a step, whose changes must be allowed.
  void make(path_change const* changes, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      auto const slot = static_cast<std::size_t>(changes[i].slot);
      REQUIRE(rank_of_[slot] < layer_.where().ranks());
      CHECK_FALSE(settled_[slot]);
      map_[slot] = changes[i].expert;
      settled_[slot] = changes[i].expert >= 0;
      if (changes[i].expert >= 0) {  // it arrives, and was not there before
        CHECK(held_.emplace(rank_of_[slot], static_cast<std::size_t>(changes[i].expert)).second);
      }
    }
  }

 private:
  [[nodiscard]] double excess_of(ints const& map) const {
    double sum = 0;
    double const mean = layer_.mean();
    for (double const cost : layer_.costs(map.data())) {
      sum += std::max(cost - mean, 0.0) * std::max(cost - mean, 0.0);
    }
    return sum;
  }
  [[nodiscard]] bool may_arrive(std::int32_t e, std::size_t rank, ints const& after) const {
    auto const expert = static_cast<std::size_t>(e);
    std::size_t on_node = 0;
    layer_.for_each_replica(after.data(), [&](std::size_t r, std::size_t other) {
      on_node += other == expert && layer_.node_of(r) == layer_.node_of(rank) ? 1 : 0;
    });
    return held_.count({rank, expert}) == 0 && layer_.may_hold(rank, expert) &&
           (layer_.where().rule != oracle::apart::node || on_node == 1);
  }
  [[nodiscard]] double best_gain(std::size_t busiest) const {
    best_ = 0;
    busiest_ = busiest;
    longs const copies = layer_.copies(map_.data());
    auto const spare = [&](std::size_t slot) {
      return map_[slot] < 0 || (!keeps_counts_ && copies[static_cast<std::size_t>(map_[slot])] > 1);
    };
    for (std::size_t to = 0; to < map_.size(); ++to) {
      if (rank_of_[to] == layer_.where().ranks() || settled_[to]) {
        continue;
      }
      if (rank_of_[to] == busiest) {
        for (std::size_t e = 0; e < copies.size() && map_[to] >= 0 && spare(to); ++e) {
          consider({{to, static_cast<std::int32_t>(e)}});
        }
        continue;
      }
      for (std::size_t from = 0; from < map_.size(); ++from) {
        if (rank_of_[from] != busiest || map_[from] < 0 || map_[from] == map_[to]) {
          continue;
        }
        if (spare(to) && !keeps_counts_) {
          consider({{to, map_[from]}});
        }
        if (!settled_[from] && map_[to] < 0) {
          consider({{to, map_[from]}, {from, -1}});
        }
        if (!settled_[from] && map_[to] >= 0) {
          consider({{to, map_[from]}, {from, map_[to]}});
        }
      }
    }
    return best_;
  }
  /// Takes the gain of a step if its experts may arrive and it pays.
  void consider(std::vector<std::pair<std::size_t, std::int32_t>> const& step) const {
    ints after = map_;
    int moves = 0;
    for (auto const& [slot, e] : step) {
      after[slot] = e;
      moves += e >= 0 ? 1 : 0;
    }
    for (auto const& [slot, e] : step) {
      if (e >= 0 && !may_arrive(e, rank_of_[slot], after)) {
        return;
      }
    }
    reals const before = layer_.costs(map_.data());
    reals const now = layer_.costs(after.data());
    double const peak = *std::max_element(before.begin(), before.end());
    double worst = 0;
    for (std::size_t r = 0; r < now.size(); ++r) {
      worst = std::max(worst, now[r] == before[r] ? 0 : now[r]);
    }
    if (now[busiest_] >= before[busiest_]) {
      return;
    }
    // Steps that are at the limit up to rounding may be made or not.
    if (worst < peak * (1 - 1e-12) && peak - worst >= price_ * layer_.mean() * moves * (1 + 1e-9)) {
      best_ = std::max(best_, gain_to(after, moves));
    }
  }

  layer_costs const& layer_;
  bool keeps_counts_;
  double price_;
  ints map_;
  std::vector<bool> settled_;
  std::set<std::pair<std::size_t, std::size_t>> held_ = {};  ///< rank and expert, now or before
  std::vector<std::size_t> rank_of_ = {};
  mutable double best_ = 0;
  mutable std::size_t busiest_ = 0;
};

/// Checks a path step by step: moves rise by 1 or 2, no slot changes again after an expert arrived,
/// no expert returns, every plan is allowed, and with the even split each step is the best one and
/// peaks never rise. Returns the number of steps.
inline std::size_t check_path(scene const& s, index_t layer, path_rule const& rule,
                              path const& got) {
  layer_costs const facts(s, layer);
  slow_steps steps(facts, rule.keeps_counts, rule.price);
  bool const is_even = rule.split == split_rule::even;
  CHECK(got.points.front().changes == 0);
  CHECK(got.points.front().moves == 0);
  auto const check_peak = [&](path_point const& at) {
    double const peak = facts.peak(steps.map().data(), rule.split);
    // With the optimal split the loads of the path are those of some split.
    CHECK(at.peak >= peak * (1 - 1e-9));
    CHECK((!is_even || at.peak <= peak * (1 + 1e-9)));
  };
  check_peak(got.points.front());
  for (std::size_t i = 1; i < got.points.size(); ++i) {
    path_point const& before = got.points[i - 1];
    path_point const& at = got.points[i];
    int const moves = at.moves - before.moves;
    int const changes = at.changes - before.changes;
    CHECK((moves == 1 || moves == 2));
    REQUIRE((changes == 1 || changes == 2));
    CHECK(at.moves <= rule.most_moves);
    reals const best = is_even ? steps.best_gains() : reals{};
    ints const old = steps.map();
    slow_steps const previous = steps;
    steps.make(got.changes.data() + before.changes, static_cast<std::size_t>(changes));
    CHECK(facts.allows(steps.map().data()));
    CHECK(facts.moves_to(steps.map().data()) == at.moves);
    check_peak(at);
    if (!is_even) {
      continue;
    }
    CHECK(at.peak <= before.peak);
    double const gain = previous.gain_to(steps.map(), moves);
    double const unit = facts.mean() * facts.mean() * 1e-9;
    CHECK(gain > 0);
    CHECK(std::any_of(best.begin(), best.end(), [&](double one) { return gain >= one - unit; }));
    // A rank that was the most loaded one pays for the moves.
    reals const costs = facts.costs(old.data());
    reals const now = facts.costs(steps.map().data());
    bool pays = false;
    for (std::size_t r = 0; r < costs.size(); ++r) {
      pays = pays || (costs[r] >= before.peak * (1 - 1e-12) &&
                      costs[r] - now[r] >= rule.price * facts.mean() * moves * (1 - 1e-9) &&
                      now[r] < costs[r]);
    }
    CHECK(pays);
  }
  CHECK(steps.map() == got.map);
  CHECK(facts.copies(got.map.data()) == wide_row(got.counts, 0, s.experts));
  if (is_even && got.points.back().peak > 0 && rule.target == 0 &&
      rule.most_moves == plimsoll::unlimited) {
    reals const left = steps.best_gains();
    double const unit = facts.mean() * facts.mean() * 1e-9;
    CHECK(std::any_of(left.begin(), left.end(), [&](double one) { return one <= unit; }));
  }
  return got.points.size() - 1;
}

}  // namespace plimsoll_test::move_path_support

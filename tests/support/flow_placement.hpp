// SPDX-License-Identifier: Apache-2.0
// Histories, calls of flow_placement under every policy, and its plans by the definition: a graph
// of ranks as a matrix, connected by search, and loops over everything.
#pragma once

#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "owned.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"

namespace plimsoll_test::flow_placement_support {

using plimsoll::flow_placement_options;
using plimsoll::flow_placement_report;
using plimsoll::split_rule;

using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

struct flow_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  longs loads = {};  ///< [steps, layers, experts]
  host_options where = {};
  split_rule split = split_rule::optimal;
  index_t max_partners = plimsoll::rank_limit;
  ints in_use = {};  ///< [layers, slots]; empty: none
  double keep_bonus = 0;

  [[nodiscard]] std::int64_t load(index_t step, index_t layer, index_t e) const {
    return loads[static_cast<std::size_t>((step * layers + layer) * experts + e)];
  }
};

struct flow_result {
  ints map;
  ints counts;
  longs idle;   ///< [layers]
  longs empty;  ///< [layers]

  bool operator==(flow_result const&) const = default;
};

inline flow_result with_reports(ints map, ints counts,
                                std::vector<flow_placement_report> const& reports) {
  flow_result result{std::move(map), std::move(counts), {}, {}};
  for (flow_placement_report const& one : reports) {
    result.idle.push_back(one.idle_steps);
    result.empty.push_back(one.empty_slots);
  }
  return result;
}

template <class P>
flow_placement_options flow_options(flow_case const& c, options_in<P> const& where,
                                    array_in<std::int32_t, P> const& in_use) {
  flow_placement_options result{.on = (*where).on,
                                .rank_offsets = (*where).rank_offsets,
                                .split = c.split,
                                .max_partners = c.max_partners,
                                .keep_bonus = c.keep_bonus};
  if (!c.in_use.empty()) {
    result.in_use = in_use.view2(c.layers, c.slots);
  }
  return result;
}

template <class P, class T = std::int64_t, class Id = std::int32_t>
flow_result flow_of(flow_case const& c) {
  array_in<T, P> const loads(std::vector<T>(c.loads.begin(), c.loads.end()));
  array_in<Id, P> map(c.layers * c.slots, -7);
  array_in<Id, P> counts(c.layers * c.experts, -7);
  options_in<P> const where(c.where, c.layers);
  array_in<std::int32_t, P> const in_use(c.in_use);
  auto const reports = plimsoll::place_by_flow(
      make_policy<P>(), loads.view3(c.steps, c.layers, c.experts), flow_options(c, where, in_use),
      map.view2(c.layers, c.slots), counts.view2(c.layers, c.experts));
  return with_reports(as_int32(map.values()), as_int32(counts.values()), reports);
}

/// The same by the call that returns a placement.
template <class P>
flow_result returned_flow(flow_case const& c) {
  array_in<std::int64_t, P> const loads(c.loads);
  options_in<P> const where(c.where, c.layers);
  array_in<std::int32_t, P> const in_use(c.in_use);
  auto const made =
      plimsoll::place_by_flow(make_policy<P>(), loads.view3(c.steps, c.layers, c.experts), c.slots,
                              flow_options(c, where, in_use));
  return with_reports(made.physical_to_logical.to_host(), made.replica_count.to_host(),
                      made.reports);
}

/// Certifies a map, which need not be a plan of flow_placement.
template <class P, class T = std::int64_t>
std::vector<plimsoll::certificate> certified(flow_case const& c, ints const& map) {
  array_in<T, P> const loads(std::vector<T>(c.loads.begin(), c.loads.end()));
  array_in<std::int32_t, P> const in(map);
  options_in<P> const where(c.where, c.layers);
  plimsoll::placement_ref const plan{in.view2(c.layers, c.slots),
                                     {nullptr, c.layers, c.experts},
                                     c.where.ranks,
                                     (*where).rank_offsets};
  plimsoll::rank_set on = (*where).on;
  on.nodes = 1;
  return plimsoll::certify(make_policy<P>(), loads.view3(c.steps, c.layers, c.experts), plan,
                           {.on = on});
}
using certify_fn = std::vector<plimsoll::certificate> (*)(flow_case const&, ints const&);

/// Returns the smallest possible peak of a step of layer 0 under a map: the largest load that only
/// some ranks can take, over their speed (max-flow min-cut).
inline double smallest_peak(flow_case const& c, index_t step, ints const& map) {
  oracle::site const where = site_of(c.where, c.slots, 0, c.experts);
  double result = 0;
  for (unsigned some = 1; some < 1u << where.ranks(); ++some) {
    double speed = 0;
    std::vector<bool> confined(static_cast<std::size_t>(c.experts), true);
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      bool const in = (some >> r & 1u) != 0;
      speed += in && where.room(r) > 0 ? where.cost(r, 1) == 0 ? 0 : 1 / where.cost(r, 1) : 0;
      for (std::int64_t slot = where.offsets[r]; slot < where.offsets[r] + where.room(r); ++slot) {
        std::int32_t const e = map[static_cast<std::size_t>(slot)];
        if (e >= 0 && !in) {
          confined[static_cast<std::size_t>(e)] = false;
        }
      }
    }
    double load = 0;
    for (index_t e = 0; e < c.experts; ++e) {
      load += confined[static_cast<std::size_t>(e)] ? static_cast<double>(c.load(step, 0, e)) : 0;
    }
    if (speed > 0) {
      result = std::max(result, load / speed);
    }
  }
  return result;
}

/// Returns the smallest sum over the steps of the smallest peaks, over all maps that place every
/// expert, from slot `slot` on.
inline double best_of_all_maps(flow_case const& c, ints& map, std::size_t slot = 0) {
  double result = 0x1p1000;
  if (slot == map.size()) {
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(c.experts); ++e) {
      if (std::find(map.begin(), map.end(), e) == map.end()) {
        return result;
      }
    }
    double sum = 0;
    for (index_t step = 0; step < c.steps; ++step) {
      sum += smallest_peak(c, step, map);
    }
    return sum;
  }
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(c.experts); ++e) {
    map[slot] = e;
    result = std::min(result, best_of_all_maps(c, map, slot + 1));
  }
  return result;
}

using flow_fn = flow_result (*)(flow_case const&);

/// Plans one layer by the definition.
class slow_flow {
 public:
  slow_flow(flow_case const& c, index_t layer)
      : c_(c), where_(site_of(c.where, c.slots, layer, c.experts)), layer_(layer) {
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      places_ += where_.room(r);
      hosts_ += where_.room(r) > 0;
      if (where_.room(r) > 0) {
        fastest_ = std::max(fastest_, speed(r));
      }
    }
    while ((std::int64_t{2} << unit_bits_) * static_cast<std::int64_t>(where_.ranks()) <
               std::int64_t{1} << 29 &&
           unit_bits_ < 20) {
      ++unit_bits_;
    }
  }

  /// Returns whether live ranks have a slot for every expert.
  [[nodiscard]] bool fits() const { return places_ >= c_.experts; }

  void plan() {
    average_steps();
    oracle::site apart = where_;
    apart.rule = oracle::apart::rank;
    auto const slots = static_cast<std::size_t>(c_.slots);
    auto const numbered = oracle::numbered(weight_.size(), apart, slots);
    find_kept();
    if (idle_ == c_.steps && numbered && !is_sticky()) {
      held_.assign(where_.ranks(), {});
      copies_.assign(weight_.size(), 0);
      for (std::size_t r = 0; r < where_.ranks(); ++r) {
        for (std::int64_t slot = where_.offsets[r]; slot < where_.offsets[r + 1]; ++slot) {
          std::int64_t const e = (*numbered)[static_cast<std::size_t>(slot)];
          held_[r].push_back(e);
          ++copies_[static_cast<std::size_t>(e)];
        }
      }
      return;
    }
    count_copies();
    place();
  }
  [[nodiscard]] std::int64_t idle() const { return idle_; }
  [[nodiscard]] std::int64_t empty() const {
    return places_ - std::accumulate(copies_.begin(), copies_.end(), std::int64_t{0});
  }
  /// Returns the slots that stay empty however many copies there are, at most one of an expert on a
  /// rank.
  [[nodiscard]] std::int64_t unusable() const {
    std::int64_t sum = 0;
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      sum += std::max<std::int64_t>(0, where_.room(r) - c_.experts);
    }
    return sum;
  }
  [[nodiscard]] longs const& counts() const { return copies_; }
  [[nodiscard]] ints map() const {
    ints result(static_cast<std::size_t>(c_.slots), -1);
    for (std::size_t r = 0; r < held_.size(); ++r) {
      for (std::size_t i = 0; i < held_[r].size(); ++i) {
        result[static_cast<std::size_t>(where_.offsets[r]) + i] =
            static_cast<std::int32_t>(held_[r][i]);
      }
    }
    return result;
  }
  /// Returns how often a copy of another expert had to move.
  [[nodiscard]] int moves() const { return moves_; }

 private:
  using sizes = std::vector<std::size_t>;

  [[nodiscard]] double speed(std::size_t r) const {
    return where_.speeds.empty() ? 1.0 : where_.speeds[r];
  }
  [[nodiscard]] double unit() const { return static_cast<double>(std::int64_t{1} << unit_bits_); }

  void average_steps() {
    std::vector<longs> busy;
    for (index_t step = 0; step < c_.steps; ++step) {
      longs row;
      for (index_t e = 0; e < c_.experts; ++e) {
        row.push_back(c_.load(step, layer_, e));
      }
      bool const any = std::any_of(row.begin(), row.end(), [](std::int64_t x) { return x > 0; });
      if (any) {
        busy.push_back(oracle::fixed(row));
      }
      idle_ += any ? 0 : 1;
    }
    if (busy.empty()) {
      busy.emplace_back(static_cast<std::size_t>(c_.experts), std::int64_t{1} << 30);
    }
    std::size_t const blocks = std::min<std::size_t>(busy.size(), 16);
    sizes of_block(busy.size());
    for (std::size_t i = 0; i < busy.size(); ++i) {
      of_block[i] = i * blocks / busy.size();
    }
    profile_.assign(blocks, longs(static_cast<std::size_t>(c_.experts), 0));
    weight_.assign(static_cast<std::size_t>(c_.experts), 0);
    for (std::size_t i = 0; i < busy.size(); ++i) {
      auto const total = std::accumulate(busy[i].begin(), busy[i].end(), std::int64_t{0});
      auto const size = std::count(of_block.begin(), of_block.end(), of_block[i]);
      double const scale = unit() * static_cast<double>(where_.ranks()) /
                           static_cast<double>(total) / static_cast<double>(size);
      for (std::size_t e = 0; e < weight_.size(); ++e) {
        auto const part = static_cast<std::int64_t>(static_cast<double>(busy[i][e]) * scale);
        profile_[of_block[i]][e] += part;
        weight_[e] += part;
      }
    }
  }

  [[nodiscard]] std::int64_t share(std::size_t e) const { return weight_[e] * 64 / copies_[e]; }
  /// The same for another copy: more while the expert has fewer than in the plan in use.
  [[nodiscard]] std::int64_t wanted(std::size_t e) const {
    double const more = 1 + std::min(4.0, std::max(1.0, c_.keep_bonus));
    bool const loses = is_sticky() && copies_[e] < std::ssize(kept_[e]);
    return loses ? share(e) * static_cast<std::int64_t>(4 * more) / 4 : share(e);
  }

  [[nodiscard]] bool is_sticky() const { return !c_.in_use.empty() && c_.keep_bonus > 0; }
  /// Finds the live ranks that hold each expert in the plan in use.
  void find_kept() {
    kept_.assign(static_cast<std::size_t>(c_.experts), {});
    for (std::size_t r = 0; r < where_.ranks() && is_sticky(); ++r) {
      for (std::int64_t i = 0; i < where_.room(r); ++i) {
        auto const slot = static_cast<std::size_t>(layer_ * c_.slots + where_.offsets[r] + i);
        if (std::int32_t const e = c_.in_use[slot]; e >= 0) {
          kept_[static_cast<std::size_t>(e)].insert(r);
        }
      }
    }
  }

  /// Returns whether some placement has no two copies of an expert on a rank (Gale and Ryser).
  [[nodiscard]] bool can_be_apart(longs counts) const {
    std::sort(counts.begin(), counts.end(), std::greater<>());
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < counts.size(); ++j) {
      sum += counts[j];
      std::int64_t room = 0;
      for (std::size_t r = 0; r < where_.ranks(); ++r) {
        room += std::min(where_.room(r), static_cast<std::int64_t>(j + 1));
      }
      if (sum > room) {
        return false;
      }
    }
    return true;
  }

  void count_copies() {
    auto const n = static_cast<std::size_t>(c_.experts);
    copies_.assign(n, 1);
    auto const hot = static_cast<std::int64_t>(profile_.size()) << (unit_bits_ + 5);
    for (std::int64_t spare = places_ - c_.experts; spare > 0; --spare) {
      std::vector<std::tuple<int, std::int64_t, std::size_t>> order;
      for (std::size_t e = 0; e < n; ++e) {
        bool const is_hot = wanted(e) > hot;
        std::int64_t const worth = !is_hot && copies_[e] == 1 ? 10 * wanted(e) : wanted(e);
        order.emplace_back(is_hot ? 0 : 1, -worth, e);
      }
      std::sort(order.begin(), order.end());
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < n && !best; ++i) {
        std::size_t const e = std::get<2>(order[i]);
        longs more = copies_;
        ++more[e];
        if (more[e] <= hosts_ && can_be_apart(more)) {
          best = e;
        }
      }
      if (!best) {
        break;
      }
      ++copies_[*best];
    }
  }

  [[nodiscard]] bool has_graph() const {
    return c_.split == split_rule::optimal ||
           c_.max_partners < static_cast<index_t>(where_.ranks()) - 1;
  }
  [[nodiscard]] bool holds(std::size_t r, std::int64_t e) const {
    return std::find(held_[r].begin(), held_[r].end(), e) != held_[r].end();
  }
  [[nodiscard]] bool has_slot(std::size_t r) const { return std::ssize(held_[r]) < where_.room(r); }
  [[nodiscard]] index_t partners(std::size_t r) const {
    return std::count(graph_[r].begin(), graph_[r].end(), true);
  }
  /// Returns which ranks partners connect with rank `a`.
  [[nodiscard]] std::vector<bool> connected_with(std::size_t a) const {
    std::vector<bool> seen(graph_.size(), false);
    sizes open{a};
    seen[a] = true;
    while (!open.empty()) {
      std::size_t const here = open.back();
      open.pop_back();
      for (std::size_t r = 0; r < graph_.size(); ++r) {
        if (graph_[here][r] && !seen[r]) {
          seen[r] = true;
          open.push_back(r);
        }
      }
    }
    return seen;
  }

  void place() {
    held_.assign(where_.ranks(), {});
    load_.assign(where_.ranks(), longs(profile_.size(), 0));
    graph_.assign(where_.ranks(), std::vector<bool>(where_.ranks(), false));
    movable_.assign(where_.ranks(), 0);
    sizes order(copies_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](std::size_t a, std::size_t b) { return share(a) > share(b); });
    std::int64_t movable = 0;
    for (std::int64_t const count : copies_) {
      movable += count > 1 ? count : 0;
    }
    quota_ = (movable + hosts_ - 1) / hosts_;
    for (std::size_t const e : order) {
      place(e);
    }
    if (c_.max_partners >= static_cast<index_t>(where_.ranks()) - 1) {
      fill();
    }
  }

  /// Gives each slot that is left to the expert with the largest load per copy that is not on the
  /// rank.
  void fill() {
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      while (has_slot(r) && held_[r].size() < copies_.size()) {
        std::optional<std::size_t> best;
        double most = 0;
        for (std::size_t e = 0; e < copies_.size(); ++e) {
          double const each = static_cast<double>(weight_[e]) / static_cast<double>(copies_[e]);
          if (!holds(r, static_cast<std::int64_t>(e)) && (!best || each > most)) {
            best = e;
            most = each;
          }
        }
        held_[r].push_back(static_cast<std::int64_t>(*best));
        ++copies_[*best];
      }
    }
  }

  void place(std::size_t e) {
    sizes holders;
    while (std::ssize(holders) < copies_[e]) {
      std::optional<std::size_t> const rank = choose(e, holders);
      if (!rank) {
        break;
      }
      if (copies_[e] > 1) {
        for (std::size_t const p : holders) {
          graph_[p][*rank] = graph_[*rank][p] = has_graph();
        }
        ++movable_[*rank];
      }
      holders.push_back(*rank);
      held_[*rank].push_back(static_cast<std::int64_t>(e));
    }
    copies_[e] = std::ssize(holders);
    for (std::size_t const r : holders) {
      for (std::size_t b = 0; b < profile_.size(); ++b) {
        load_[r][b] += profile_[b][e] / copies_[e];
      }
    }
  }

  [[nodiscard]] std::optional<std::size_t> choose(std::size_t e, sizes const& holders) {
    std::vector<std::vector<bool>> connected;
    for (std::size_t const p : holders) {
      connected.push_back(connected_with(p));
    }
    std::optional<std::size_t> best;
    double lowest = 0;
    for (std::size_t r = 0; r < where_.ranks(); ++r) {
      if (!has_slot(r) || holds(r, static_cast<std::int64_t>(e)) || !may_join(r, holders)) {
        continue;
      }
      double const cost = score(e, r) + penalties(e, r, holders, connected);
      if (!best || cost < lowest) {
        best = r;
        lowest = cost;
      }
    }
    return best ? best : room_made(e, holders);
  }
  [[nodiscard]] double score(std::size_t e, std::size_t r) const {
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < profile_.size(); ++b) {
      std::int64_t const own = profile_[b][e] / copies_[e];
      sum += weight_[e] == 0 ? load_[r][b] : profile_[b][e] * (load_[r][b] + own);
    }
    auto const over =
        weight_[e] == 0 ? std::max<std::int64_t>(1, std::ssize(profile_)) : weight_[e];
    double const load =
        static_cast<double>(sum) / (static_cast<double>(over) * unit()) / (speed(r) / fastest_);
    return kept_[e].count(r) > 0 ? load - c_.keep_bonus : load;
  }
  [[nodiscard]] double penalties(std::size_t e, std::size_t r, sizes const& holders,
                                 std::vector<std::vector<bool>> const& connected) const {
    if (copies_[e] == 1) {
      return 0;
    }
    int faults = movable_[r] >= quota_ ? 1 : 0;
    int far = 0;
    for (std::size_t i = 0; i < holders.size(); ++i) {
      std::size_t const p = holders[i];
      faults += graph_[p][r] ? 1 : 0;
      faults += connected[i][r] ? 1 : 0;
      far += where_.node_of(p) != where_.node_of(r) ? 1 : 0;
    }
    double const links = c_.split == split_rule::optimal ? 0.3 * faults : 0.0;
    return links + (where_.nodes > 1 ? 0.03 * far : 0.0);
  }
  [[nodiscard]] bool may_join(std::size_t r, sizes const& holders) const {
    index_t more = 0;
    bool result = true;
    for (std::size_t const p : holders) {
      more += graph_[p][r] ? 0 : 1;
      result = result && (graph_[p][r] || partners(p) < c_.max_partners);
    }
    return holders.empty() || c_.max_partners >= static_cast<index_t>(where_.ranks()) - 1 ||
           (result && partners(r) + more <= c_.max_partners);
  }
  /// Moves the last copy that may move to a holder with a slot; returns the rank that it leaves.
  std::optional<std::size_t> room_made(std::size_t e, sizes const& holders) {
    if (c_.max_partners < static_cast<index_t>(where_.ranks()) - 1) {
      return {};
    }
    for (std::size_t const to : holders) {
      for (std::size_t from = 0; has_slot(to) && from < where_.ranks(); ++from) {
        for (std::size_t i = held_[from].size(); i-- > 0;) {
          std::int64_t const moved = held_[from][i];
          if (holds(from, static_cast<std::int64_t>(e)) || holds(to, moved)) {
            continue;
          }
          held_[from].erase(held_[from].begin() + static_cast<std::ptrdiff_t>(i));
          held_[to].push_back(moved);
          auto const m = static_cast<std::size_t>(moved);
          movable_[from] -= copies_[m] > 1 ? 1 : 0;
          movable_[to] += copies_[m] > 1 ? 1 : 0;
          for (std::size_t b = 0; b < profile_.size(); ++b) {
            load_[from][b] -= profile_[b][m] / copies_[m];
            load_[to][b] += profile_[b][m] / copies_[m];
          }
          ++moves_;
          return from;
        }
      }
    }
    return {};
  }

  flow_case const& c_;
  oracle::site where_;
  index_t layer_;
  std::int64_t places_ = 0;
  std::int64_t hosts_ = 0;
  double fastest_ = 0;
  int unit_bits_ = 0;
  std::int64_t idle_ = 0;
  std::vector<std::set<std::size_t>> kept_ = {};  ///< [experts]
  std::vector<longs> profile_ = {};               ///< [blocks][experts]
  longs weight_ = {};
  longs copies_ = {};
  std::vector<longs> held_ = {};  ///< [ranks]: experts in the order of their slots
  std::vector<longs> load_ = {};  ///< [ranks][blocks]
  std::vector<std::vector<bool>> graph_ = {};
  longs movable_ = {};
  std::int64_t quota_ = 0;
  int moves_ = 0;
};

/// Plans all layers by the definition; nothing if a layer does not fit.
inline std::optional<flow_result> slow_flow_of(flow_case const& c, int* moves = nullptr) {
  flow_result result;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    slow_flow one(c, layer);
    if (!one.fits()) {
      return {};
    }
    one.plan();
    ints const map = one.map();
    result.map.insert(result.map.end(), map.begin(), map.end());
    result.counts.insert(result.counts.end(), one.counts().begin(), one.counts().end());
    result.idle.push_back(one.idle());
    result.empty.push_back(one.empty());
    if (moves != nullptr) {
      *moves += one.moves();
    }
  }
  if (!c.in_use.empty()) {
    options_in<plimsoll::seq_policy> const where(c.where, c.layers);
    auto const of = [&](ints const& map) {
      return plimsoll::placement_ref{{map.data(), c.layers, c.slots},
                                     {result.counts.data(), c.layers, c.experts},
                                     c.where.ranks,
                                     (*where).rank_offsets};
    };
    plimsoll::align(plimsoll::seq, of(c.in_use), of(result.map), {.on = (*where).on},
                    plimsoll::matrix_ref<std::int32_t>(result.map.data(), c.layers, c.slots));
  }
  return result;
}

/// Skewed loads that drift, with experts and steps without load.
inline longs drifting_loads(draws& draw, index_t steps, index_t layers, index_t experts) {
  longs result(static_cast<std::size_t>(steps * layers * experts));
  longs base(static_cast<std::size_t>(layers * experts));
  for (std::int64_t& one : base) {
    one = draw.one_in(8) ? 0 : 2000 / draw.among(1, 40);
  }
  for (index_t step = 0; step < steps; ++step) {
    bool const is_idle = draw.one_in(9);
    for (std::size_t i = 0; i < base.size(); ++i) {
      result[static_cast<std::size_t>(step) * base.size() + i] =
          is_idle ? 0 : base[i] * draw.among(2, 9) / 4;
    }
  }
  return result;
}

/// A random history, on ranks of even or any numbers of slots, dead ones, speeds and nodes.
inline flow_case random_flow(std::uint64_t seed) {
  draws draw(seed);
  flow_case c{.steps = draw.any({1, 2, 5, 16, 17, 40}),
              .layers = draw.among(1, 2),
              .experts = draw.among(1, 14)};
  c.where.ranks = draw.among(1, 8);
  c.where.nodes = draw.one_in(2) ? 1 : draw.among(1, c.where.ranks);
  c.split = draw.any({split_rule::even, split_rule::optimal, split_rule::optimal});
  c.max_partners = draw.one_in(4) ? draw.among(0, 4) : plimsoll::rank_limit;
  c.slots = c.experts + draw.among(0, 2 * c.where.ranks + 3);
  if (draw.one_in(3)) {
    for (index_t r = 0; r < c.where.ranks; ++r) {
      c.where.active.push_back(draw.one_in(5) ? 0 : 1);
    }
  }
  if (draw.one_in(4)) {
    for (index_t r = 0; r < c.where.ranks; ++r) {
      c.where.speeds.push_back(0.25 * draw.among(3, 9));
    }
  }
  if (draw.one_in(3)) {
    index_t most = 0;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      std::int32_t end = 0;
      for (index_t r = 0; r <= c.where.ranks; ++r) {
        c.where.rank_offsets.push_back(end);
        end += draw.among(0, 6);
      }
      most = std::max<index_t>(most, c.where.rank_offsets.back());
    }
    c.slots = std::max(c.experts, most);
  }
  c.loads = drifting_loads(draw, c.steps, c.layers, c.experts);
  return c;
}

/// A random history, and a plan in use: of another history, or of any experts.
inline flow_case random_flow_in_use(std::uint64_t seed) {
  flow_case c = random_flow(seed);
  draws draw(seed + 424242);
  flow_case before = c;
  before.loads = drifting_loads(draw, c.steps, c.layers, c.experts);
  auto const planned = slow_flow_of(before);
  if (planned && !draw.one_in(3)) {
    c.in_use = planned->map;
  } else {
    c.in_use.assign(static_cast<std::size_t>(c.layers * c.slots), -1);
  }
  for (index_t layer = 0; layer < c.layers; ++layer) {
    oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      for (std::int64_t slot = where.offsets[r]; slot < where.offsets[r + 1]; ++slot) {
        if (!planned || draw.one_in(4)) {
          c.in_use[static_cast<std::size_t>(layer * c.slots + slot)] =
              draw.among(-1, c.experts - 1);
        }
      }
    }
  }
  c.keep_bonus = draw.any({0.0, 0.1, 0.4, 1.0, 1.6, 3.2, 7.0});
  return c;
}

}  // namespace plimsoll_test::flow_placement_support

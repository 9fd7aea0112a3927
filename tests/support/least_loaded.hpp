// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of least_loaded, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/memory.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
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
#include "spread.hpp"

namespace plimsoll_test::least_loaded_support {

using plimsoll::certificate_status;
using plimsoll::first_overload;
using plimsoll::least_loaded_options;
using plimsoll::overload_cause;
using plimsoll::rounding_mode;
using plimsoll::small_excess_policy;
using plimsoll::spill_counters;
using plimsoll::spill_exchange_report;
using plimsoll::spill_plan_ref;
using plimsoll::spill_price;
using plimsoll::spill_report;
using plimsoll::spill_segment;
using plimsoll::spill_transfer;
using plimsoll::spill_trigger;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

inline std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

/// A user-defined cost: ranks compute tokens 16 at a time, some faster than others.
struct tiled_cost {
  PLIMSOLL_HD double operator()(index_t r, double tokens) const {
    auto const tiles = (static_cast<std::int64_t>(tokens) + 15) / 16;
    return static_cast<double>(16 * tiles * (2 + r % 3));
  }
};

enum class pricing { none, moe, tokens, tiled };

/// One step. The views of `options` are filled from the arrays below.
struct spill_case {
  least_loaded_options options = {};
  std::int32_t percent = 100;             ///< alpha
  ints home_rank = {};                    ///< [experts] or empty
  ints slots = {};                        ///< of one layer, instead of home_rank; or empty
  ints slot_offsets = {};                 ///< [ranks + 1] or empty
  std::vector<std::uint8_t> active = {};  ///< [ranks] or empty
  /// [ranks] or empty: four times the speeds. All equal, or 1 to 8 with an 8 among the live
  /// ranks, so that they are multiples of 1/65536 of the fastest speed.
  ints paces = {};
  longs loads = {};  ///< [experts]

  pricing price = pricing::none;
  plimsoll::moe_cost cost = {};
  double within_node = 1;  ///< time to send an expert: powers of two, so that all sums are exact
  double between_nodes = 1;

  std::vector<longs> ids = {};  ///< the ids of every rank, [tokens, k]
  index_t k = 1;
  index_t step = 1;  ///< stride of the elements of all views

  [[nodiscard]] index_t ranks() const { return options.on.ranks; }
  [[nodiscard]] index_t experts() const { return options.experts; }
  [[nodiscard]] bool lives(index_t r) const { return active.empty() || active[at(r)] != 0; }
  [[nodiscard]] std::int64_t pace(index_t r) const {
    return !lives(r) ? 0 : paces.empty() ? 1 : paces[at(r)];
  }
  [[nodiscard]] double speed(index_t r) const { return paces.empty() ? 1 : 0.25 * paces[at(r)]; }
  [[nodiscard]] reals speeds() const {
    reals result;
    for (index_t r = 0; r < std::ssize(paces); ++r) {
      result.push_back(speed(r));
    }
    return result;
  }
  [[nodiscard]] index_t live() const {
    return active.empty() ? ranks()
                          : std::count_if(active.begin(), active.end(), [](int is) { return is; });
  }
  /// Returns true if all live ranks have the same speed.
  [[nodiscard]] bool is_even() const {
    std::int64_t fastest = 0;
    std::int64_t slowest = 8;
    for (index_t r = 0; r < ranks(); ++r) {
      fastest = std::max(fastest, pace(r));
      slowest = lives(r) ? std::min(slowest, pace(r)) : slowest;
    }
    return fastest == slowest;
  }
  [[nodiscard]] index_t node_of(index_t r) const {
    return ((r + 1) * options.on.nodes - 1) / ranks();
  }
  [[nodiscard]] std::int64_t total() const {
    return std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  }
  [[nodiscard]] std::int64_t most_imports() const {
    return options.expert_bytes == 0
               ? options.max_imports
               : std::min<std::int64_t>(options.max_imports,
                                        options.max_import_bytes / options.expert_bytes);
  }
  [[nodiscard]] bool is_limited() const {
    return most_imports() < experts() || options.max_exports < experts() * ranks();
  }

  /// Returns, for every expert, the live ranks that hold it.
  [[nodiscard]] std::vector<ints> homes() const {
    std::vector<ints> result(at(experts()));
    auto const add = [&](std::int64_t e, index_t r) {
      ints& of = result[at(e)];
      if (lives(r) && (of.empty() || of.back() != r)) {
        of.push_back(static_cast<std::int32_t>(r));
      }
    };
    auto const count = std::ssize(slots);
    for (index_t r = 0; r < ranks(); ++r) {
      for (index_t i = slot_offsets.empty() ? r * count / ranks() : slot_offsets[at(r)];
           i < (slot_offsets.empty() ? (r + 1) * count / ranks() : slot_offsets[at(r + 1)]); ++i) {
        if (slots[at(i)] >= 0) {
          add(slots[at(i)], r);
        }
      }
      for (index_t e = 0; e < experts() && slots.empty(); ++e) {
        bool const is_here = home_rank.empty()
                                 ? e >= r * experts() / ranks() && e < (r + 1) * experts() / ranks()
                                 : home_rank[at(e)] == r;
        if (is_here) {
          add(e, r);
        }
      }
    }
    return result;
  }
  /// Returns a home's even share of an expert's tokens.
  [[nodiscard]] std::int64_t share(index_t e, index_t copies, index_t place) const {
    return loads[at(e)] / copies + (place < loads[at(e)] % copies ? 1 : 0);
  }

  /// Returns the time in which a rank computes, without transfers.
  [[nodiscard]] double time(index_t r, std::int64_t tokens, std::int64_t working) const {
    auto const n = static_cast<double>(tokens);
    double const pace_of_fastest = is_even() ? 1 : 8;
    switch (price) {
      case pricing::moe:
        return tokens == 0 ? 0
                           : (cost.launch + cost.per_token * n +
                              cost.per_expert * static_cast<double>(working)) *
                                 pace_of_fastest / (is_even() ? 1 : static_cast<double>(pace(r)));
      case pricing::tokens:
        return n;
      case pricing::tiled:
        return tiled_cost{}(r, n);
      case pricing::none:
        break;
    }
    return 0;
  }
  [[nodiscard]] double sending_time(index_t from, index_t to) const {
    return price == pricing::none ? 0 : node_of(from) == node_of(to) ? within_node : between_nodes;
  }
};

/// Converts between tokens and levels: levels are tokens if speeds are equal, else 2^-19 of the
/// time of a token on a rank of pace 1, which is 2^-16 of its time on the fastest rank.
class level_rule {
 public:
  explicit level_rule(spill_case const& c) : is_even(c.is_even()) {
    for (index_t r = 0; r < c.ranks(); ++r) {
      pace.push_back(is_even ? c.lives(r) : c.pace(r));
      unit_ = is_even && c.lives(r) ? c.speed(r) : unit_;
    }
  }
  [[nodiscard]] std::int64_t room_below(std::int64_t level, index_t r) const {
    return level * pace[at(r)] / one();
  }
  [[nodiscard]] std::int64_t level_of(std::int64_t tokens, index_t r) const {
    return tokens == 0 ? 0 : (tokens * one() + pace[at(r)] - 1) / pace[at(r)];
  }
  /// Returns the lowest level at which the ranks can take all tokens.
  [[nodiscard]] std::int64_t lowest(std::int64_t tokens) const {
    std::int64_t low = -1;
    std::int64_t high = tokens * one();
    while (high - low > 1) {
      std::int64_t const middle = low + (high - low) / 2;
      std::int64_t room = 0;
      for (index_t r = 0; r < std::ssize(pace); ++r) {
        room += room_below(middle, r);
      }
      (room >= tokens ? high : low) = middle;
    }
    return high;
  }
  [[nodiscard]] std::int64_t highest(longs const& tokens) const {
    std::int64_t result = 0;
    for (index_t r = 0; r < std::ssize(tokens); ++r) {
      result = std::max(result, level_of(tokens[at(r)], r));
    }
    return result;
  }
  /// Returns a level in tokens of a rank of speed 1.
  [[nodiscard]] double value(std::int64_t level) const {
    return is_even ? static_cast<double>(level) / unit_ : static_cast<double>(level) * 0x1p-17;
  }

  bool is_even;
  longs pace;

 private:
  [[nodiscard]] std::int64_t one() const { return is_even ? 1 : 1 << 19; }

  double unit_ = 1;
};

/// Returns the capacity of every rank, by alpha.
inline longs capacities_of(spill_case const& c) {
  level_rule const levels(c);
  bool const is_up = c.options.round == rounding_mode::up;
  std::int64_t const all = (c.percent * c.total() + (is_up ? 99 : 0)) / 100;
  std::int64_t const level = is_up ? levels.lowest(all) : 0;
  auto const paces = std::accumulate(levels.pace.begin(), levels.pace.end(), std::int64_t{0});
  longs result;
  for (index_t r = 0; r < c.ranks(); ++r) {
    std::int64_t const part =
        is_up ? levels.room_below(level, r)
              : std::max<std::int64_t>(all * levels.pace[at(r)] / paces, c.lives(r));
    result.push_back(std::min(part, c.total()));
  }
  return result;
}

/// The outputs of `plan`, on the host.
struct spilled {
  ints offsets;
  std::vector<spill_segment> segments;
  ints transfer_offsets;
  std::vector<spill_transfer> transfers;
  ints loads;   ///< [ranks]
  longs bytes;  ///< [ranks]
  spill_report report;

  /// Returns views of the plan.
  [[nodiscard]] spill_plan_ref view() const {
    return {offsets, segments, transfer_offsets, transfers};
  }
};

inline longs numbers_in(std::vector<spill_segment> const& segments) {
  longs result;
  for (spill_segment const& s : segments) {
    result.insert(result.end(), {s.expert, s.rank, s.begin, s.end});
  }
  return result;
}

inline longs numbers_in(std::vector<spill_transfer> const& transfers) {
  longs result;
  for (spill_transfer const& t : transfers) {
    result.insert(result.end(), {t.expert, t.from, t.to, t.bytes});
  }
  return result;
}

inline longs numbers_in(spill_report const& r) {
  return {r.result.work,  static_cast<std::int64_t>(r.result.status),
          r.tokens,       r.overload,
          r.forced,       r.kept,
          r.spills,       r.segments,
          r.transfers,    static_cast<std::int64_t>(r.refused.kind),
          r.refused.where};
}

inline reals reals_in(spill_report const& r) {
  return {r.result.value, r.result.lower_bound, r.capacity, r.raised_capacity,
          r.imbalance,    r.home_peak,          r.time,     r.home_time,
          r.refused.got};
}

inline longs numbers_in(spill_exchange_report const& r) {
  return {r.sent,          r.received,
          r.groups,        static_cast<std::int64_t>(r.refused.kind),
          r.refused.where, r.refused ? r.refused.also : 0};
}

inline longs numbers_in(spill_counters const& c) {
  return {c.routed, c.unplanned, c.unrouted, c.out_of_range};
}

/// Returns the first output that differs, or "".
inline std::string difference(spilled const& got, spilled const& expected) {
  return got.offsets != expected.offsets                               ? "offsets"
         : numbers_in(got.segments) != numbers_in(expected.segments)   ? "segments"
         : got.transfer_offsets != expected.transfer_offsets           ? "transfer offsets"
         : numbers_in(got.transfers) != numbers_in(expected.transfers) ? "transfers"
         : got.loads != expected.loads                                 ? "loads"
         : got.bytes != expected.bytes                                 ? "bytes"
         : numbers_in(got.report) != numbers_in(expected.report)       ? "report"
         : reals_in(got.report) != reals_in(expected.report)           ? "levels"
         : got.report.first_forced != expected.report.first_forced     ? "first forced"
                                                                       : "";
}

inline void add_to(fnv1a& hash, spilled const& all) {
  hash.add(all.offsets);
  hash.add(numbers_in(all.segments));
  hash.add(all.transfer_offsets);
  hash.add(numbers_in(all.transfers));
  hash.add(all.loads);
  hash.add(all.bytes);
  hash.add(numbers_in(all.report));
  hash.add(reals_in(all.report));
}

/// The outputs of all calls for every rank's tokens, on the host.
struct traveled {
  std::vector<ints> counts;  ///< for every source, [experts]
  longs loads;
  spilled plan;
  // For every rank:
  std::vector<ints> destinations;  ///< [tokens, k]
  std::vector<ints> rows;          ///< [tokens, k]
  std::vector<spill_counters> counters;
  std::vector<ints> sends;     ///< [ranks, ranks]
  std::vector<ints> receives;  ///< [ranks]
  std::vector<std::vector<spill_segment>> groups;
  std::vector<ints> arranged;  ///< with a few more elements than received rows
  std::vector<spill_exchange_report> reports;
};

inline void add_to(fnv1a& hash, traveled const& all) {
  add_to(hash, all.plan);
  for (std::size_t r = 0; r < all.rows.size(); ++r) {
    hash.add(all.destinations[r]);
    hash.add(all.rows[r]);
    hash.add(numbers_in(all.counters[r]));
    hash.add(all.sends[r]);
    hash.add(all.receives[r]);
    hash.add(numbers_in(all.groups[r]));
    hash.add(all.arranged[r]);
    hash.add(numbers_in(all.reports[r]));
  }
}

/// A step, copied to the memory of a policy.
template <class P, class Cost = void>
class spill_in {
 public:
  using policy_type = policy_of<P>;
  using planner = plimsoll::least_loaded<policy_type, Cost>;

  explicit spill_in(spill_case const& c)
      : c_(c),
        home_rank_(spread(c.home_rank, 1)),
        slots_(spread(c.slots, std::ssize(c.slots))),
        slot_offsets_(spread(c.slot_offsets, std::ssize(c.slot_offsets))),
        active_(spread(c.active, 1)),
        speeds_(spread(c.speeds(), 1)) {}

  [[nodiscard]] least_loaded_options options() const {
    least_loaded_options result = c_.options;
    result.alpha = c_.percent / 100.0;
    result.home_rank = vector_in(home_rank_, std::ssize(c_.home_rank));
    result.on.active = vector_in(active_, std::ssize(c_.active));
    result.on.speeds = vector_in(speeds_, std::ssize(c_.paces));
    if (!c_.slots.empty()) {
      result.residents.physical_to_logical = matrix_in(slots_, 1, std::ssize(c_.slots));
      result.residents.ranks = c_.ranks();
    }
    if (!c_.slot_offsets.empty()) {
      result.residents.rank_offsets = matrix_in(slot_offsets_, 1, std::ssize(c_.slot_offsets));
    }
    for (longs const& ids : c_.ids) {
      result.max_token_copies = std::max<index_t>(result.max_token_copies, std::ssize(ids));
    }
    return result;
  }
  template <class Policy>
  [[nodiscard]] auto make(Policy const& policy) const {
    if constexpr (std::is_void_v<Cost>) {
      return plimsoll::least_loaded(policy, options());
    } else {
      auto const speed = [&](double time) {
        return time > 0 ? static_cast<double>(c_.options.expert_bytes) / time : 1.0;
      };
      spill_price<Cost> price{{}, speed(c_.within_node), speed(c_.between_nodes)};
      if constexpr (std::is_same_v<Cost, plimsoll::moe_cost>) {
        price.cost = c_.cost;
      }
      return plimsoll::least_loaded(policy, options(), price);
    }
  }
  [[nodiscard]] planner make() const { return make(make_policy<P>()); }

  /// Plans without reading the results.
  void only_plan(planner& p, longs const& all_loads) const {
    array_in<std::int64_t, P> const loads(spread(all_loads, 1));
    p.plan(vector_in(loads, c_.experts()));
    static_cast<void>(plimsoll::read(make_policy<P>(), p.report()));  // `loads` ends here
  }
  [[nodiscard]] spilled plan(planner& p, longs const& all_loads) const {
    only_plan(p, all_loads);
    array_in<std::int64_t, P> const loads(spread(all_loads, 1));
    plimsoll::validate(make_policy<P>(), p.plan_ref(), vector_in(loads, c_.experts()), options());
    return read_plan(p);
  }
  [[nodiscard]] spilled plan(planner& p) const { return plan(p, c_.loads); }

  [[nodiscard]] spilled read_plan(planner const& p) const {
    auto const policy = make_policy<P>();
    spilled result{plimsoll::read(policy, p.offsets()),
                   plimsoll::read(policy, p.segments()),
                   plimsoll::read(policy, p.transfer_offsets()),
                   plimsoll::read(policy, p.transfers()),
                   plimsoll::read(policy, p.rank_loads()),
                   plimsoll::read(policy, p.rank_bytes()),
                   plimsoll::read(policy, p.report())};
    result.segments.resize(at(result.report.segments));
    result.transfers.resize(at(result.report.transfers));
    return result;
  }

  /// Runs the calls of all ranks, one after the other, on one object.
  template <class Id = std::int32_t>
  [[nodiscard]] traveled travel(planner& p) const {
    auto const policy = make_policy<P>();
    index_t const n = c_.ranks();
    index_t const experts = c_.experts();
    traveled result;
    array_in<std::int32_t, P> counts(spread(ints(at(n * experts), gap_value), experts));
    auto const all = matrix_in(counts, n, experts);
    for (index_t r = 0; r < n; ++r) {
      array_in<Id, P> const ids(ids_of<Id>(r));
      plimsoll::vector_ref<std::int32_t> row(&all.data[r * all.strides[0]], experts);
      row.strides[0] = c_.step;
      p.count(matrix_in(ids, tokens(r), c_.k), row);
      static_cast<void>(plimsoll::read(policy, p.report()));
    }
    ints const counted = gathered(counts.values(), experts, c_.step);
    p.add_up(all);
    p.plan();
    result.loads = plimsoll::read(policy, p.loads());
    result.plan = read_plan(p);
    p.exchange();
    for (index_t r = 0; r < n; ++r) {
      result.counts.emplace_back(counted.begin() + r * experts,
                                 counted.begin() + (r + 1) * experts);
      send<Id>(p, r, result);
    }
    return result;
  }

 private:
  /// Returns the valid groups. Checks that the others are marked.
  static std::vector<spill_segment> groups_of(std::vector<spill_segment> all, std::int32_t count) {
    CHECK(std::all_of(all.begin() + count, all.end(), [](spill_segment const& of) {
      return of.expert == -1 && of.rank == -1 && of.begin == 0 && of.end == 0;
    }));
    all.resize(at(count));
    return all;
  }

  template <class Id>
  void send(planner& p, index_t r, traveled& result) const {
    auto const policy = make_policy<P>();
    index_t const n = c_.ranks();
    index_t const pairs = tokens(r) * c_.k;
    array_in<Id, P> const ids(ids_of<Id>(r));
    array_in<std::int32_t, P> destinations(spread(ints(at(pairs), gap_value), c_.k));
    array_in<std::int32_t, P> rows(spread(ints(at(pairs), gap_value), c_.k));
    array_in<spill_counters, P> counters(1);
    // Counts the copies of this rank again: `route` uses the last `count`.
    array_in<std::int32_t, P> unused(c_.experts());
    p.count(matrix_in(ids, tokens(r), c_.k), unused.view1());
    p.route(r, matrix_in(ids, tokens(r), c_.k), matrix_in(destinations, tokens(r), c_.k),
            matrix_in(rows, tokens(r), c_.k), counters.view1());
    p.check();
    spill_exchange_report const report = plimsoll::read(policy, p.exchange_reports())[at(r)];
    array_in<std::int32_t, P> arranged(spread(ints(at(report.received + 3), gap_value), 1));
    array_in<spill_segment, P> groups(c_.experts() * c_.step);
    auto of_experts = groups.view1();
    of_experts.extents[0] = c_.experts();
    of_experts.strides[0] = c_.step;
    p.arrange(r, vector_in(arranged, report.received + 3), of_experts);
    result.destinations.push_back(gathered(destinations.values(), c_.k, c_.step));
    result.rows.push_back(gathered(rows.values(), c_.k, c_.step));
    result.counters.push_back(counters.values()[0]);
    result.sends.push_back(plimsoll::read(
        policy, plimsoll::vector_ref<std::int32_t const>(p.send_counts().data_handle(), n * n)));
    result.receives.push_back(
        plimsoll::read(policy, plimsoll::detail::row_of(p.receive_counts(), r)));
    result.groups.push_back(groups_of(plimsoll::read(policy, of_experts), report.groups));
    result.arranged.push_back(gathered(arranged.values(), 1, c_.step));
    result.reports.push_back(report);
  }

  [[nodiscard]] index_t tokens(index_t r) const { return std::ssize(c_.ids[at(r)]) / c_.k; }
  template <class Id>
  [[nodiscard]] std::vector<Id> ids_of(index_t r) const {
    longs const& ids = c_.ids[at(r)];
    return spread(std::vector<Id>(ids.begin(), ids.end()), c_.k);
  }
  template <class T>
  [[nodiscard]] std::vector<T> spread(std::vector<T> const& values, index_t columns) const {
    return spread_out(values, columns, c_.step);
  }
  template <class Array>
  [[nodiscard]] auto matrix_in(Array& array, index_t rows, index_t columns) const {
    return spread_matrix(array, rows, columns, c_.step);
  }
  template <class Array>
  [[nodiscard]] auto vector_in(Array& array, index_t n) const {
    return spread_vector(array, n, c_.step);
  }

  spill_case c_;
  array_in<std::int32_t, P> home_rank_;
  array_in<std::int32_t, P> slots_;
  array_in<std::int32_t, P> slot_offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
};

template <class P, class Cost>
spilled plan_at(spill_case const& c) {
  spill_in<P, Cost> const in(c);
  auto planner = in.make();
  return in.plan(planner);
}

/// User-defined costs run on the host only.
template <class P>
spilled plan_with(spill_case const& c) {
  if (c.price == pricing::moe) {
    return plan_at<P, plimsoll::moe_cost>(c);
  }
  return plan_at<P, void>(c);
}

template <class P, class Id = std::int32_t>
traveled travel_with(spill_case const& c) {
  spill_in<P> const in(c);
  auto planner = in.make();
  return in.template travel<Id>(planner);
}

// The checks of a case are compiled once, for all policies.
using plan_fn = spilled (*)(spill_case const&);

using travel_fn = traveled (*)(spill_case const&);

/// The totals of segments and transfers of every rank.
struct rank_totals {
  longs tokens;
  longs working;  ///< the number of experts with tokens on the rank
  longs imports;
  longs exports;
  reals busy;

  rank_totals(spill_case const& c, std::vector<spill_segment> const& segments,
              std::vector<spill_transfer> const& transfers)
      : tokens(at(c.ranks()), 0),
        working(tokens),
        imports(tokens),
        exports(tokens),
        busy(tokens.size(), 0) {
    for (spill_segment const& s : segments) {
      tokens[at(s.rank)] += s.end - s.begin;
      ++working[at(s.rank)];
    }
    for (spill_transfer const& t : transfers) {
      ++imports[at(t.to)];
      ++exports[at(t.from)];
      busy[at(t.to)] += c.sending_time(t.from, t.to);
      busy[at(t.from)] += c.sending_time(t.from, t.to);
    }
  }
  [[nodiscard]] double time(spill_case const& c) const {
    double result = 0;
    for (index_t r = 0; r < c.ranks(); ++r) {
      result = std::max(result, c.time(r, tokens[at(r)], working[at(r)]) + busy[at(r)]);
    }
    return result;
  }
};

inline std::vector<spill_segment> segments_at_home(spill_case const& c) {
  std::vector<spill_segment> result;
  auto const homes = c.homes();
  for (index_t e = 0; e < c.experts(); ++e) {
    std::int32_t begin = 0;
    for (index_t i = 0; i < std::ssize(homes[at(e)]); ++i) {
      auto const end = static_cast<std::int32_t>(begin + c.share(e, std::ssize(homes[at(e)]), i));
      if (end > begin) {
        result.push_back({static_cast<std::int32_t>(e), homes[at(e)][at(i)], begin, end});
      }
      begin = end;
    }
  }
  return result;
}

// ----- the oracle --------------------------------------------------------------------------------

/// Implements LLEP's algorithms 2 and 3 literally: it visits all experts, the heaviest first, and
/// ranks have assigned and pending loads. It adds the extensions of `least_loaded`: several homes,
/// speeds, nodes, limits and prices.
class literal_llep {
 public:
  bool spills = false;
  bool was_slower = false;  ///< the plan was slower than plain expert parallelism and was dropped
  std::int64_t forced = 0;
  std::int64_t kept = 0;
  first_overload first_forced;  ///< of the first plan
  std::int64_t work = 0;
  std::int64_t confined = 0;  ///< lower bound for the peak from the limits
  longs capacity;             ///< of every rank, as used by the plan
  std::int64_t raised = 0;    ///< the level of these capacities
  std::vector<spill_segment> segments;
  std::vector<spill_transfer> transfers;

  explicit literal_llep(spill_case const& c)
      : c_(c), levels_(c), homes_(c.homes()), order_(at(c.experts())) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](auto a, auto b) { return c.loads[at(a)] > c.loads[at(b)]; });
    confined = confined_level();
    capacity = capacities_of(c);
    raised = levels_.highest(capacity);
    start();
    std::int64_t const home_peak = peak();
    spills = c_.live() > 1 && c_.total() > 0 && imbalance() >= c_.options.lambda;
    plan();
    if (spills && c.is_limited() && forced + kept > 0) {
      raise_capacities(home_peak);
    }
    write();
    if (time() > rank_totals(c, segments_at_home(c), {}).time(c)) {
      spills = false;
      was_slower = true;
      raised = levels_.highest(capacities_of(c));
      plan();
      write();
    }
  }

 private:
  struct piece {
    index_t rank;
    std::int64_t tokens;
    index_t from;
  };

  void start() {
    assigned_.assign(at(c_.ranks()), 0);
    pending_ = imports_ = exports_ = working_ = assigned_;
    busy_.assign(at(c_.ranks()), 0);
    pieces_.assign(at(c_.experts()), {});
    forced = kept = work = 0;
    for (index_t e = 0; e < c_.experts(); ++e) {
      pend(e, 1);
    }
  }
  void plan() {
    start();
    for (std::int32_t const e : order_) {
      visit(e);
    }
  }
  [[nodiscard]] double time() const { return rank_totals(c_, segments, transfers).time(c_); }
  /// Bisects for the lowest level, to 1/128, that a plan keeps, and uses that plan if it is better:
  /// by time, then by peak.
  void raise_capacities(std::int64_t home_peak) {
    longs const given = capacity;
    write();
    std::pair const reached(time(), peak());
    std::int64_t low = std::max(raised, confined) - 1;
    std::int64_t high = home_peak;
    auto const peak_below = [&](std::int64_t level) {
      for (index_t r = 0; r < c_.ranks(); ++r) {
        capacity[at(r)] = std::min(levels_.room_below(level, r), c_.total());
      }
      plan();
      return peak();
    };
    while (high - low > std::max<std::int64_t>(high / 128, 1)) {
      std::int64_t const middle = low + (high - low) / 2;
      (peak_below(middle) <= middle ? high : low) = middle;
    }
    std::int64_t const new_peak = peak_below(high);
    write();
    bool const is_better = std::pair(time(), new_peak) < reached;
    raised = is_better ? high : raised;
    if (!is_better) {
      capacity = given;
      plan();
    }
  }
  void write() {
    segments.clear();
    transfers.clear();
    for (index_t e = 0; e < c_.experts(); ++e) {
      std::int32_t begin = 0;
      for (piece const& p : pieces_[at(e)]) {
        auto const expert = static_cast<std::int32_t>(e);
        auto const rank = static_cast<std::int32_t>(p.rank);
        auto const end = static_cast<std::int32_t>(begin + p.tokens);
        segments.push_back({expert, rank, begin, end});
        begin = end;
        if (p.from >= 0) {
          transfers.push_back(
              {expert, static_cast<std::int32_t>(p.from), rank, c_.options.expert_bytes});
        }
      }
    }
  }

  [[nodiscard]] std::int64_t load(index_t r) const { return assigned_[at(r)] + pending_[at(r)]; }
  [[nodiscard]] std::int64_t room(index_t r) const { return capacity[at(r)] - load(r); }
  [[nodiscard]] std::int64_t peak() const {
    std::int64_t result = 0;
    for (index_t r = 0; r < c_.ranks(); ++r) {
      result = std::max(result, levels_.level_of(load(r), r));
    }
    return result;
  }
  /// Returns load over speed, in whole tokens of the fastest rank, and the rank.
  [[nodiscard]] std::pair<std::int64_t, index_t> height(index_t r) const {
    return {levels_.is_even ? load(r) : 8 * load(r) / c_.pace(r), r};
  }

  [[nodiscard]] double imbalance() const {
    if (c_.options.trigger == spill_trigger::expert_imbalance) {
      std::int64_t const most = *std::max_element(c_.loads.begin(), c_.loads.end());
      return static_cast<double>(most * c_.experts()) / static_cast<double>(c_.total());
    }
    longs const& pace = levels_.pace;
    auto const paces = static_cast<double>(std::accumulate(pace.begin(), pace.end(), 0));
    return static_cast<double>(peak()) * paces /
           (static_cast<double>(c_.total()) * (levels_.is_even ? 1 : 1 << 19));
  }
  /// Returns the level of tokens of experts with one home: those that a rank keeps without its
  /// heaviest experts, and all of them spread over the ranks that it may send to.
  [[nodiscard]] std::int64_t confined_level() const {
    std::int64_t const sent = c_.most_imports() == 0 ? 0 : c_.options.max_exports;
    longs const& pace = levels_.pace;
    std::int64_t const fastest = *std::max_element(pace.begin(), pace.end());
    std::vector<longs> own(at(c_.ranks()));  // the heaviest first
    for (std::int32_t const e : order_) {
      ints const& homes = homes_[at(e)];
      if (homes.size() == 1) {
        own[at(homes[0])].push_back(c_.loads[at(e)]);
      }
    }
    std::int64_t result = 0;
    for (index_t r = 0; r < c_.ranks() && c_.is_limited(); ++r) {
      longs const& loads = own[at(r)];
      auto const sum_from = [&](std::int64_t first) {
        auto const begin = loads.begin() + std::min<std::int64_t>(first, std::ssize(loads));
        return std::accumulate(begin, loads.end(), std::int64_t{0});
      };
      std::int64_t const speed =
          pace[at(r)] + std::min<std::int64_t>(sent, c_.live() - 1) * fastest;
      if (c_.lives(r)) {
        result = std::max(
            {result, levels_.level_of(sum_from(sent), r),
             levels_.is_even ? (sum_from(0) + speed - 1) / speed : (sum_from(0) << 19) / speed});
      }
    }
    return result;
  }

  void pend(index_t e, std::int64_t sign) {
    ints const& homes = homes_[at(e)];
    for (index_t i = 0; i < std::ssize(homes); ++i) {
      std::int64_t const share = c_.share(e, std::ssize(homes), i);
      pending_[at(homes[at(i)])] += sign * share;
      working_[at(homes[at(i)])] += share > 0 ? sign : 0;
    }
  }

  [[nodiscard]] piece* piece_of(index_t e, index_t r) {
    for (piece& p : pieces_[at(e)]) {
      if (p.rank == r) {
        return &p;
      }
    }
    return nullptr;
  }
  void assign(index_t e, index_t r, std::int64_t tokens, index_t from) {
    if (tokens == 0) {
      return;
    }
    assigned_[at(r)] += tokens;
    if (piece* const p = piece_of(e, r)) {
      p->tokens += tokens;
      return;
    }
    pieces_[at(e)].push_back({r, tokens, from});
    ++working_[at(r)];
    if (from >= 0) {
      ++imports_[at(r)];
      ++exports_[at(from)];
      busy_[at(r)] += c_.sending_time(from, r);
      busy_[at(from)] += c_.sending_time(from, r);
    }
  }

  void visit(index_t e) {
    ints const& homes = homes_[at(e)];
    bool const is_overloaded =
        std::any_of(homes.begin(), homes.end(), [&](std::int32_t r) { return room(r) < 0; });
    pend(e, -1);
    if (!spills || !is_overloaded) {
      for (index_t i = 0; i < std::ssize(homes); ++i) {
        assign(e, homes[at(i)], c_.share(e, std::ssize(homes), i), -1);
      }
      return;
    }
    std::int64_t rest = c_.loads[at(e)];
    rest -= fill_homes(e, rest, &capacity);
    if (rest > 0 && c_.options.small_excess == small_excess_policy::home &&
        rest < c_.options.min_chunk) {
      note(e, homes.front(), overload_cause::small_excess);
      rest = keep(e, rest);
    }
    while (rest > 0) {
      rest = spill(e, rest);
    }
    work += std::ssize(pieces_[at(e)]);
  }

  /// Returns the homes' parts of `tokens` tokens, at the lowest common level that takes all of
  /// them.
  [[nodiscard]] longs shares_at_home(index_t e, std::int64_t tokens, longs const* limit) const {
    ints const& homes = homes_[at(e)];
    longs shares(homes.size());
    auto const holds_all_below = [&](std::int64_t level) {
      std::int64_t left = tokens;
      for (std::size_t i = 0; i < homes.size(); ++i) {
        std::int64_t below = levels_.room_below(level, homes[i]);
        below = limit != nullptr ? std::min(below, (*limit)[at(homes[i])]) : below;
        shares[i] = std::min(std::max<std::int64_t>(below - load(homes[i]), 0), left);
        left -= shares[i];
      }
      return left == 0;
    };
    std::int64_t low = -1;
    std::int64_t high = c_.total() << 19;
    while (high - low > 1) {
      std::int64_t const middle = low + (high - low) / 2;
      (holds_all_below(middle) ? high : low) = middle;
    }
    static_cast<void>(holds_all_below(high));
    return shares;
  }
  std::int64_t fill_homes(index_t e, std::int64_t tokens, longs const* limit) {
    longs const shares = shares_at_home(e, tokens, limit);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      assign(e, homes_[at(e)][i], shares[i], -1);
    }
    return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  }
  std::int64_t keep(index_t e, std::int64_t rest) {
    kept += fill_homes(e, rest, nullptr);
    return 0;
  }

  /// Makes one round of algorithm 3. Returns the number of tokens left.
  std::int64_t spill(index_t e, std::int64_t rest) {
    ints const& homes = homes_[at(e)];
    using order = std::tuple<bool, std::pair<std::int64_t, index_t>>;
    for (bool const is_forced : {false, true}) {
      order best{};
      index_t to = -1;
      for (index_t r = 0; r < c_.ranks(); ++r) {
        bool const is_home = std::find(homes.begin(), homes.end(), r) != homes.end();
        std::int64_t const chunk = is_forced ? rest : std::min(rest, room(r));
        bool const is_enough = chunk > 0 && (chunk >= c_.options.min_chunk || chunk == rest);
        if (!c_.lives(r) || is_home || (!is_forced && !is_enough) || !may_take(e, r, rest, chunk)) {
          continue;
        }
        bool const leaves_node =
            !is_forced && piece_of(e, r) == nullptr && !is_same_node(source_of(e, r), r);
        order const now{leaves_node, height(r)};
        if (to < 0 || now < best) {
          best = now;
          to = r;
        }
      }
      if (to >= 0) {
        std::int64_t const chunk = is_forced ? rest : std::min(rest, room(to));
        if (is_forced) {
          note(e, to, cause_of(e, rest));
          forced += chunk;
        }
        assign(e, to, chunk, source_of(e, to));
        return rest - chunk;
      }
    }
    note(e, homes.front(), cause_of(e, rest));
    return keep(e, rest);
  }
  void note(index_t e, index_t to, overload_cause cause) {
    if (first_forced.cause == overload_cause::none) {
      first_forced = {static_cast<std::int32_t>(e), static_cast<std::int32_t>(to), cause};
    }
  }
  /// Returns the last of the obstacles that the rank meets which comes furthest.
  [[nodiscard]] overload_cause cause_of(index_t e, std::int64_t rest) {
    ints const& homes = homes_[at(e)];
    auto furthest = overload_cause::capacity;
    for (index_t r = 0; r < c_.ranks(); ++r) {
      if (!c_.lives(r) || std::find(homes.begin(), homes.end(), r) != homes.end() || room(r) <= 0) {
        continue;
      }
      bool const needs_weights = piece_of(e, r) == nullptr;
      auto cause = overload_cause::price;
      if (room(r) < std::min<std::int64_t>(rest, c_.options.min_chunk)) {
        cause = overload_cause::min_chunk;
      } else if (needs_weights && source_of(e, r) < 0) {
        cause = overload_cause::max_exports;
      } else if (needs_weights && imports_[at(r)] >= c_.most_imports()) {
        cause = overload_cause::max_imports;
      }
      furthest = std::max(furthest, cause);
    }
    return furthest;
  }
  [[nodiscard]] bool is_same_node(index_t a, index_t b) const {
    return c_.node_of(a) == c_.node_of(b);
  }
  [[nodiscard]] bool may_take(index_t e, index_t r, std::int64_t rest, std::int64_t chunk) {
    bool const has_weights = piece_of(e, r) != nullptr;
    index_t const from = has_weights ? -1 : source_of(e, r);
    bool const is_allowed = has_weights || (from >= 0 && imports_[at(r)] < c_.most_imports());
    return is_allowed && (c_.price == pricing::none || pays(e, r, rest, chunk, from));
  }
  [[nodiscard]] index_t source_of(index_t e, index_t r) const {
    std::tuple<bool, std::int64_t, index_t> best{};
    index_t source = -1;
    for (std::int32_t const home : homes_[at(e)]) {
      std::tuple<bool, std::int64_t, index_t> const now{!is_same_node(home, r), exports_[at(home)],
                                                        home};
      if (exports_[at(home)] < c_.options.max_exports && (source < 0 || now < best)) {
        best = now;
        source = home;
      }
    }
    return source;
  }

  /// Returns true if receiver and sender both end earlier than the homes with the whole rest.
  [[nodiscard]] bool pays(index_t e, index_t r, std::int64_t rest, std::int64_t chunk,
                          index_t from) {
    ints const& homes = homes_[at(e)];
    auto const time_with = [&](index_t rank, std::int64_t more) {
      bool const is_another = more > 0 && piece_of(e, rank) == nullptr;
      return c_.time(rank, load(rank) + more, working_[at(rank)] + is_another) + busy_[at(rank)];
    };
    longs const all = shares_at_home(e, rest, nullptr);
    longs const others = shares_at_home(e, rest - chunk, nullptr);
    double without = 0;
    double sender = 0;
    for (std::size_t i = 0; i < homes.size(); ++i) {
      without = std::max(without, time_with(homes[i], all[i]));
      sender = homes[i] == from ? time_with(from, others[i]) + c_.sending_time(from, r) : sender;
    }
    double const receiver = time_with(r, chunk) + (from < 0 ? 0 : c_.sending_time(from, r));
    return std::max(sender, receiver) < without;
  }

  spill_case const& c_;
  level_rule levels_;
  std::vector<ints> homes_;
  ints order_;
  longs assigned_;
  longs pending_;
  longs imports_;
  longs exports_;
  longs working_;
  reals busy_;
  std::vector<std::vector<piece>> pieces_;
};

template <class List>
ints offsets_of(spill_case const& c, List const& list) {
  ints result(at(c.experts() + 1), 0);
  for (auto const& one : list) {
    ++result[at(one.expert) + 1];
  }
  std::partial_sum(result.begin(), result.end(), result.begin());
  return result;
}

/// Counts how often each outcome occurred.
struct tally {
  std::int64_t spills = 0;
  std::int64_t transfers = 0;
  std::int64_t forced = 0;
  std::int64_t kept = 0;
  std::map<certificate_status, std::int64_t> status;
  std::map<overload_cause, std::int64_t> causes;  ///< of first overloads
  std::int64_t faster = 0;                        ///< plans faster than plain expert parallelism
  std::int64_t slower = 0;                        ///< plans that were dropped as slower
};

/// Checks the report against the totals of the plan itself.
inline void check_report(spill_case const& c, spilled const& got) {
  spill_report const& report = got.report;
  level_rule const levels(c);
  rank_totals const totals(c, got.segments, got.transfers);
  rank_totals const home(c, segments_at_home(c), {});
  longs const capacities = capacities_of(c);
  longs bytes(at(c.ranks()), 0);
  for (ints const& homes : c.homes()) {
    for (std::int32_t const r : homes) {
      bytes[at(r)] += c.options.expert_bytes;
    }
  }
  std::int64_t overload = 0;
  for (index_t r = 0; r < c.ranks(); ++r) {
    bytes[at(r)] += c.options.token_bytes * totals.tokens[at(r)] +
                    c.options.expert_bytes * totals.imports[at(r)];
    overload += std::max<std::int64_t>(totals.tokens[at(r)] - capacities[at(r)], 0);
    REQUIRE(totals.imports[at(r)] <= c.most_imports());
    REQUIRE(totals.exports[at(r)] <= c.options.max_exports);
  }
  REQUIRE(longs(got.loads.begin(), got.loads.end()) == totals.tokens);
  REQUIRE(got.bytes == bytes);
  REQUIRE(!report.refused);
  REQUIRE(report.tokens == c.total());
  REQUIRE(report.segments == std::ssize(got.segments));
  REQUIRE(report.transfers == std::ssize(got.transfers));
  REQUIRE(report.overload == overload);
  REQUIRE(report.capacity == levels.value(levels.highest(capacities)));
  REQUIRE(report.home_peak == levels.value(levels.highest(home.tokens)));
  REQUIRE(report.result.value == levels.value(levels.highest(totals.tokens)));
  REQUIRE(report.time == totals.time(c));
  REQUIRE(report.home_time == home.time(c));
}

/// Checks a plan against the oracle, and invariants that do not depend on the oracle; adds the plan
/// to `hash`.
inline void check_spilled(spill_case const& c, spilled const& got, tally& happened, fnv1a& hash) {
  check_report(c, got);
  literal_llep const expected(c);
  level_rule const levels(c);
  spill_report const& report = got.report;
  REQUIRE((report.spills != 0) == expected.spills);
  REQUIRE(numbers_in(got.segments) == numbers_in(expected.segments));
  REQUIRE(numbers_in(got.transfers) == numbers_in(expected.transfers));
  REQUIRE(got.offsets == offsets_of(c, expected.segments));
  REQUIRE(got.transfer_offsets == offsets_of(c, expected.transfers));
  REQUIRE(report.forced == expected.forced);
  REQUIRE(report.kept == expected.kept);
  first_overload const first = expected.spills ? expected.first_forced : first_overload{};
  REQUIRE(report.first_forced == first);
  ++happened.causes[first.cause];
  REQUIRE(report.result.work == expected.work);
  REQUIRE(report.raised_capacity == levels.value(expected.raised));
  REQUIRE(report.raised_capacity >= report.capacity);
  std::int64_t above = 0;
  for (index_t r = 0; r < c.ranks(); ++r) {
    above += std::max<std::int64_t>(got.loads[at(r)] - expected.capacity[at(r)], 0);
  }
  REQUIRE((report.spills == 0 || above <= report.forced + report.kept));
  REQUIRE(report.time <= report.home_time);
  // With a single home for each expert, no spill makes a rank slower than the slowest one was with
  // all tokens at home.
  REQUIRE((!c.slots.empty() || !expected.was_slower));

  double const bound = report.result.lower_bound;
  bool const is_best = report.result.value == bound;
  REQUIRE(bound == levels.value(std::max(levels.lowest(c.total()), expected.confined)));
  REQUIRE(bound <= report.result.value);
  REQUIRE(report.result.status == (levels.value(expected.confined) > report.capacity
                                       ? certificate_status::infeasible
                                   : is_best              ? certificate_status::optimal
                                   : report.overload == 0 ? certificate_status::within_tolerance
                                                          : certificate_status::feasible));
  happened.spills += report.spills;
  happened.transfers += report.transfers;
  happened.forced += report.forced;
  happened.kept += report.kept;
  happened.faster += report.time < report.home_time;
  happened.slower += expected.was_slower;
  ++happened.status[report.result.status];
  add_to(hash, got);
}

// ----- random steps ------------------------------------------------------------------------------

/// Draws homes of every kind: blocks, a rank for each expert, and slots, some of them empty.
inline void draw_homes(spill_case& c, draws& draw) {
  index_t const n = c.ranks();
  auto const live_rank = [&] {
    index_t r = draw.among(0, n - 1);
    for (; !c.lives(r); r = (r + 1) % n) {
    }
    return static_cast<std::int32_t>(r);
  };
  if (draw.one_in(3)) {
    std::vector<ints> of_rank(at(n));
    index_t const most = draw.any<index_t>({1, 2, 3, n});
    for (std::int32_t e = 0; e < c.experts(); ++e) {
      of_rank[at(live_rank())].push_back(e);
      for (index_t copies = draw.among(1, most); copies > 1; --copies) {
        of_rank[at(draw.among(0, n - 1))].push_back(e);  // dead ranks, too
      }
    }
    bool const is_even = draw.one_in(2);
    std::size_t widest = 0;
    for (ints& of : of_rank) {
      if (draw.one_in(3)) {
        of.push_back(-1);
      }
      std::sort(of.begin(), of.end());
      widest = std::max(widest, of.size());
    }
    c.slot_offsets.assign(is_even ? 0 : 1, 0);
    for (ints& of : of_rank) {
      of.resize(is_even ? widest : of.size(), -1);
      c.slots.insert(c.slots.end(), of.begin(), of.end());
      if (!is_even) {
        c.slot_offsets.push_back(static_cast<std::int32_t>(c.slots.size()));
      }
    }
  } else if (draw.one_in(2) || c.live() < n) {
    for (index_t e = 0; e < c.experts(); ++e) {
      c.home_rank.push_back(live_rank());
    }
  }
}

/// Draws loads of up to `most` tokens, more skewed for a larger `skew`; some are equal or 0.
inline void draw_loads(spill_case& c, draws& draw, double most, int skew) {
  for (index_t e = 0; e < c.experts(); ++e) {
    bool const again = e > 0 && draw.one_in(5);
    c.loads.push_back(again ? c.loads.back()
                      : draw.one_in(6)
                          ? 0
                          : static_cast<std::int64_t>(most * std::pow(draw.unit(), skew)));
  }
}

enum class sizes { any, tiny };

/// Draws a step of plain LLEP: equal speeds, one home for each expert, no limits.
inline spill_case plain_spill(std::uint64_t seed, sizes size = sizes::any) {
  draws draw(seed);
  spill_case c;
  least_loaded_options& o = c.options;
  bool const is_tiny = size == sizes::tiny;
  o.on.ranks = draw.one_in(12)             ? 1
               : is_tiny || draw.one_in(3) ? draw.among(2, 4)
               : draw.one_in(8)            ? draw.among(10, 40)
                                           : draw.among(5, 9);
  o.experts = is_tiny          ? draw.among(1, 3)
              : draw.one_in(6) ? draw.among(1, o.on.ranks)
                               : draw.among(1, 5 * o.on.ranks);
  c.percent = draw.any({50, 90, 100, 100, 100, 110, 125, 137, 200});
  o.round = draw.any({rounding_mode::up, rounding_mode::down});
  o.small_excess = draw.any({small_excess_policy::helper, small_excess_policy::home});
  o.min_chunk = draw.any({1, 1, 2, 7, 40, 300, 1024});
  o.trigger = draw.any({spill_trigger::rank_imbalance, spill_trigger::expert_imbalance});
  o.lambda = draw.any({0.0, 0.0, 1.0, 1.3, 2.0});
  if (draw.one_in(2)) {
    for (index_t e = 0; e < o.experts; ++e) {
      c.home_rank.push_back(draw.among(0, o.on.ranks - 1));
    }
  }
  double const most = draw.any({3.0, 50.0, 1000.0, 1e6});
  int const skew = draw.any({0, 1, 3, 8});
  draw_loads(c, draw, most, skew);
  return c;
}

/// Draws a step with any combination of options.
inline spill_case random_spill(std::uint64_t seed, sizes size = sizes::any) {
  spill_case c = plain_spill(seed, size);
  draws draw(~seed);
  least_loaded_options& o = c.options;
  c.home_rank.clear();
  o.on.nodes = draw.one_in(2) ? 1 : draw.among(1, o.on.ranks);
  if (draw.one_in(3)) {
    for (index_t r = 0; r < o.on.ranks; ++r) {
      c.active.push_back(static_cast<std::uint8_t>(draw.any({0, 1, 1, 255})));
    }
    c.active[at(draw.among(0, o.on.ranks - 1))] = 1;
  }
  draw_homes(c, draw);
  o.expert_bytes = draw.any({0, 1, 4096, 1 << 30});
  o.token_bytes = draw.any({0, 2, 7168});
  if (draw.one_in(2)) {
    o.max_imports = draw.any({0, 1, 1, 2, 65535});
    o.max_exports = draw.any({0, 1, 2, 4, 0x7fffffff});
    if (o.expert_bytes > 0 && draw.one_in(2)) {
      std::int64_t const bytes = o.expert_bytes * draw.among(0, 4);
      o.max_import_bytes = std::max<std::int64_t>(bytes - draw.among(0, 1), 0);
    }
  }
  c.price = draw.any({pricing::none, pricing::none, pricing::moe});
  bool const powers = c.price != pricing::none;
  if (draw.one_in(3)) {
    for (index_t r = 0; r < o.on.ranks; ++r) {
      c.paces.push_back(powers ? draw.any({1, 2, 4, 8}) : draw.among(1, 8));
    }
    c.paces[at(std::find_if(c.active.begin(), c.active.end(), [](int is) { return is != 0; }) -
               c.active.begin())] = 8;
  }
  c.cost = {static_cast<double>(draw.any({0, 10, 200})), static_cast<double>(draw.any({1, 3})),
            static_cast<double>(draw.any({0, 5, 64}))};
  c.within_node = o.expert_bytes == 0 ? 0 : draw.any({1.0, 16.0, 256.0});
  c.between_nodes = c.within_node * draw.any({1, 4});
  o.lambda = draw.any({0.0, 0.0, 1.2718});  // not a ratio of small integers
  return c;
}

// ----- routing of tokens -------------------------------------------------------------------------

/// Draws tokens of all ranks, up to `most` for each; one id in `odd` is not an expert.
inline void draw_ids(spill_case& c, draws& draw, std::int64_t most, int skew, std::int64_t odd) {
  c.k = draw.among(1, 8);
  for (index_t r = 0; r < c.ranks(); ++r) {
    longs ids;
    std::int64_t const tokens = draw.one_in(5) ? 0 : draw.among(0, most);
    for (index_t i = 0; i < tokens * c.k; ++i) {
      auto const e =
          static_cast<std::int64_t>(static_cast<double>(c.experts()) * std::pow(draw.unit(), skew));
      ids.push_back(!draw.one_in(odd) ? e
                                      : draw.any<std::int64_t>({-1, -1, -2, c.experts(), 0x7fffffff,
                                                                -0x7fffffff - 1}));
    }
    c.ids.push_back(ids);
  }
  c.loads.assign(at(c.experts()), 0);
  for (longs const& ids : c.ids) {
    for (std::int64_t const id : ids) {
      if (id >= 0 && id < c.experts()) {
        ++c.loads[at(id)];
      }
    }
  }
}

/// A token copy.
struct copy {
  std::int64_t expert = -1;
  std::int64_t source = -1;
  std::int64_t place = -1;     ///< position among the source's copies
  std::int64_t position = -1;  ///< position among the expert's copies
  auto operator<=>(copy const&) const = default;
};

/// Sends all copies by the planner's outputs, and checks where they arrive.
inline void check_traveled(spill_case const& c, traveled const& got, fnv1a& hash) {
  index_t const n = c.ranks();
  REQUIRE(got.loads == c.loads);
  tally unused;
  check_spilled(c, got.plan, unused, hash);
  std::vector<std::vector<copy>> received(at(n));
  std::vector<ints> sends(at(n), ints(at(n), 0));
  longs position(at(c.experts()), 0);
  for (index_t source = 0; source < n; ++source) {
    CAPTURE(source);
    longs const& ids = c.ids[at(source)];
    longs counts(at(c.experts()), 0);
    spill_counters counters{};
    std::vector<copy> sent(ids.size());
    std::vector<std::pair<std::int32_t, copy>> order;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (index_t i = 0; i < std::ssize(ids); ++i) {
      std::int64_t const id = ids[at(i)];
      std::int32_t const to = got.destinations[at(source)][at(i)];
      std::int32_t const row = got.rows[at(source)][at(i)];
      counters.unrouted += id == -1;
      if (id < 0 || id >= c.experts()) {
        counters.out_of_range += id != -1;
        REQUIRE(to == -1);
        REQUIRE(row == -1);
        continue;
      }
      copy const now{id, source, i, position[at(id)]++};
      ++counts[at(id)];
      ++counters.routed;
      REQUIRE(to >= 0);
      REQUIRE(to < n);
      REQUIRE(row >= 0);
      REQUIRE(row < std::ssize(sent));
      REQUIRE(sent[at(row)] == copy{});  // every row is used once
      sent[at(row)] = now;
      order.emplace_back(to, now);
      ++sends[at(source)][at(to)];
      first = std::min<std::int64_t>(first, row);
    }
    REQUIRE((order.empty() || first == 0));
    // Sorted by destination rank, then by expert, then by token.
    std::sort(order.begin(), order.end());
    for (std::size_t row = 0; row < order.size(); ++row) {
      REQUIRE(sent[row] == order[row].second);
      received[at(order[row].first)].push_back(sent[row]);
    }
    ints const& counted = got.counts[at(source)];
    REQUIRE(longs(counted.begin(), counted.end()) == counts);
    REQUIRE(numbers_in(got.counters[at(source)]) == numbers_in(counters));
    REQUIRE(got.reports[at(source)].sent == std::ssize(order));
  }
  ints all_sends;
  for (ints const& row : sends) {
    all_sends.insert(all_sends.end(), row.begin(), row.end());
  }
  std::map<std::pair<std::int32_t, std::int32_t>, spill_segment> planned;
  for (spill_segment const& s : got.plan.segments) {
    planned[{s.expert, s.rank}] = s;
  }
  for (index_t r = 0; r < n; ++r) {
    CAPTURE(r);
    REQUIRE(got.sends[at(r)] == all_sends);
    for (index_t source = 0; source < n; ++source) {
      REQUIRE(got.receives[at(r)][at(source)] == sends[at(source)][at(r)]);
    }
    // Rows are received by source and computed by expert.
    std::vector<copy> const& in = received[at(r)];
    ints const& arranged = got.arranged[at(r)];
    std::vector<copy> rows(in.size());
    REQUIRE(got.reports[at(r)].received == std::ssize(in));
    REQUIRE(arranged.size() == in.size() + 3);
    for (std::size_t i = 0; i < arranged.size(); ++i) {
      if (i >= in.size()) {
        REQUIRE(arranged[i] == -1);
        continue;
      }
      REQUIRE(arranged[i] >= 0);
      REQUIRE(arranged[i] < std::ssize(in));
      REQUIRE(rows[at(arranged[i])] == copy{});
      rows[at(arranged[i])] = in[i];
    }
    std::int32_t end = 0;
    std::int32_t before = -1;
    REQUIRE(std::ssize(got.groups[at(r)]) == got.reports[at(r)].groups);
    for (spill_segment const& group : got.groups[at(r)]) {
      spill_segment const& segment = planned.at({group.expert, group.rank});
      REQUIRE(group.rank == r);
      REQUIRE(group.expert > before);
      REQUIRE(group.begin == end);
      REQUIRE(group.end - group.begin == segment.end - segment.begin);
      for (std::int32_t i = group.begin; i < group.end; ++i) {
        REQUIRE(rows[at(i)].expert == group.expert);
        REQUIRE(rows[at(i)].position == segment.begin + i - group.begin);
      }
      before = group.expert;
      end = group.end;
    }
    REQUIRE(end == std::ssize(in));
    REQUIRE(end == got.plan.loads[at(r)]);
    REQUIRE(numbers_in(got.reports[at(r)])[3] == 0);
  }
  add_to(hash, got);
}

}  // namespace plimsoll_test::least_loaded_support

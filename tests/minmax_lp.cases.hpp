// SPDX-License-Identifier: Apache-2.0
// Tests of minmax_lp under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::minmax_lp_options;
using plimsoll::split_objective;

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using flags = std::vector<std::uint8_t>;

/// A placement and the loads of a step, on the host. Speeds are multiples of 1/4, so that four
/// times a speed is an integer.
struct split_case {
  index_t layers = 1;
  index_t experts = 1;
  index_t ranks = 1;
  index_t slots = 1;
  ints map = {};       ///< [layers, slots]: the expert of every slot, or -1
  ints offsets = {};   ///< [layers, ranks + 1] or empty
  longs loads = {};    ///< [layers, experts]
  flags active = {};   ///< [ranks] or empty
  ints quarters = {};  ///< [ranks]: speeds times 4, or empty
  longs base = {};     ///< [layers, ranks] or empty

  [[nodiscard]] std::size_t at(index_t row, index_t columns, index_t column) const {
    return static_cast<std::size_t>(row * columns + column);
  }
  [[nodiscard]] index_t begin(index_t layer, index_t rank) const {
    return offsets.empty() ? rank * slots / ranks : offsets[at(layer, ranks + 1, rank)];
  }
  [[nodiscard]] bool lives(index_t rank) const {
    return active.empty() || active[static_cast<std::size_t>(rank)] != 0;
  }
  [[nodiscard]] std::int64_t speed(index_t rank) const {
    return !lives(rank) ? 0 : quarters.empty() ? 4 : quarters[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t base_of(index_t layer, index_t rank) const {
    return base.empty() ? 0 : base[at(layer, ranks, rank)];
  }
  [[nodiscard]] std::int64_t load(index_t layer, index_t e) const {
    return loads[at(layer, experts, e)];
  }
  /// Returns the unit of the layer's loads: 2^-52 of the power of two above their total.
  [[nodiscard]] double unit(index_t layer) const {
    std::int64_t total = 0;
    for (index_t e = 0; e < experts; ++e) {
      total += load(layer, e);
    }
    for (index_t r = 0; r < ranks; ++r) {
      total += base_of(layer, r);
    }
    int width = 0;
    std::frexp(static_cast<double>(total), &width);
    return std::ldexp(1.0, width - 52);
  }
  /// Returns the ranks that every expert may use, as flags [experts][ranks].
  [[nodiscard]] std::vector<flags> targets(index_t layer) const {
    std::vector<flags> result(static_cast<std::size_t>(experts),
                              flags(static_cast<std::size_t>(ranks), 0));
    for (index_t r = 0; r < ranks; ++r) {
      for (index_t slot = begin(layer, r); lives(r) && slot < begin(layer, r + 1); ++slot) {
        if (std::int32_t const e = map[at(layer, slots, slot)]; e >= 0) {
          result[static_cast<std::size_t>(e)][static_cast<std::size_t>(r)] = 1;
        }
      }
    }
    return result;
  }
  /// The load that only the ranks of a set can take, and four times their speed.
  struct bound {
    std::int64_t load = 0;
    std::int64_t speed = 0;
  };
  [[nodiscard]] bound confined(index_t layer, flags const& set) const {
    bound result;
    for (index_t r = 0; r < ranks; ++r) {
      if (set[static_cast<std::size_t>(r)] != 0) {
        result.load += base_of(layer, r);
        result.speed += speed(r);
      }
    }
    auto const may = targets(layer);
    for (index_t e = 0; e < experts; ++e) {
      bool inside = true;
      for (std::size_t r = 0; r < set.size(); ++r) {
        inside = inside && (may[static_cast<std::size_t>(e)][r] == 0 || set[r] != 0);
      }
      result.load += inside ? load(layer, e) : 0;
    }
    return result;
  }
};

/// The outputs of `solve`, on the host.
struct split_result {
  reals split;
  std::vector<certificate> certificates;
  flags bottleneck;
  std::string error;  ///< of `check`
};

/// A case, copied to the memory of a policy; `T` is the type of its loads.
template <class P, class T = std::int64_t>
class split_in {
 public:
  explicit split_in(split_case const& c)
      : c_(c),
        map_(c.map),
        offsets_(c.offsets),
        loads_(std::vector<T>(c.loads.begin(), c.loads.end())),
        active_(c.active),
        speeds_(quarters_of(c.quarters)),
        base_(reals(c.base.begin(), c.base.end())) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result;
    result.physical_to_logical = map_.view2(c_.layers, c_.slots);
    result.replica_count = {nullptr, c_.layers, c_.experts};
    result.ranks = c_.ranks;
    if (!c_.offsets.empty()) {
      result.rank_offsets = offsets_.view2(c_.layers, c_.ranks + 1);
    }
    return result;
  }
  [[nodiscard]] minmax_lp_options options(minmax_lp_options given = {}) const {
    if (!c_.active.empty()) {
      given.on.active = active_.view1();
    }
    if (!c_.quarters.empty()) {
      given.on.speeds = speeds_.view1();
    }
    return given;
  }
  [[nodiscard]] plimsoll::matrix_ref<T const> loads() const {
    return loads_.view2(c_.layers, c_.experts);
  }
  [[nodiscard]] plimsoll::matrix_ref<double const> base() const {
    return c_.base.empty() ? plimsoll::matrix_ref<double const>()
                           : base_.view2(c_.layers, c_.ranks);
  }

  [[nodiscard]] split_result solve(minmax_lp_options const& given = {}) const {
    plimsoll::minmax_lp lp(make_policy<P>(), placement(), options(given));
    return solve(lp);
  }
  template <class Lp>
  [[nodiscard]] split_result solve(Lp& lp) const {
    array_in<double, P> split(c_.layers * c_.slots, -7.0);
    array_in<std::uint8_t, P> bottleneck(c_.layers * c_.ranks, 7);
    lp.solve(loads(), {.base_load = base()}, split.view2(c_.layers, c_.slots),
             {.bottleneck = bottleneck.view2(c_.layers, c_.ranks)});
    return {split.values(), plimsoll::read(make_policy<P>(), lp.certificates()),
            bottleneck.values(), refusal_of([&] { lp.check(); })};
  }

 private:
  static reals quarters_of(ints const& quarters) {
    reals result;
    for (std::int32_t const q : quarters) {
      result.push_back(q / 4.0);
    }
    return result;
  }

  split_case c_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> offsets_;
  array_in<T, P> loads_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
  array_in<double, P> base_;
};

inline bool close(double a, double b) {
  return std::fabs(a - b) <= 1e-12 * (std::fabs(a) + std::fabs(b)) + 1e-300;
}

/// Checks all guarantees of a split from the case alone: loads are conserved, the certificate has
/// the peak of the split, and the bottleneck ranks prove the bound.
inline void check_split(split_case const& c, split_result const& got, double tolerance) {
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CAPTURE(layer);
    auto const at = static_cast<std::size_t>(layer);
    reals given(static_cast<std::size_t>(c.experts), 0);
    double peak = 0;
    double slowest = std::numeric_limits<double>::infinity();
    bool sound = true;
    std::vector<flags> const may = c.targets(layer);
    for (index_t r = 0; r < c.ranks; ++r) {
      auto carried = static_cast<double>(c.base_of(layer, r));
      std::vector<std::pair<std::int32_t, double>> seen;
      for (index_t slot = c.begin(layer, r); slot < c.begin(layer, r + 1); ++slot) {
        double const part = got.split[c.at(layer, c.slots, slot)];
        std::int32_t const e = c.map[c.at(layer, c.slots, slot)];
        sound = sound && (e >= 0 && c.lives(r) ? part >= 0 : part == 0);
        if (e >= 0) {
          given[static_cast<std::size_t>(e)] += part;
          // Copies on one rank share evenly, except for the remainder.
          for (auto const& [other, its] : seen) {
            double const odd = 1e-12 * static_cast<double>(c.load(layer, e));
            sound = sound && (other != e || std::fabs(its - part) <= odd);
          }
          seen.emplace_back(e, part);
        }
        carried += part;
      }
      if (c.lives(r)) {
        peak = std::max(peak, carried / (static_cast<double>(c.speed(r)) / 4));
        slowest = std::min(slowest, static_cast<double>(c.speed(r)) / 4);
      }
    }
    CHECK(sound);
    for (index_t e = 0; e < c.experts; ++e) {
      if (given[static_cast<std::size_t>(e)] != static_cast<double>(c.load(layer, e))) {
        CAPTURE(e);
        CHECK(given[static_cast<std::size_t>(e)] == static_cast<double>(c.load(layer, e)));
      }
    }
    certificate const& result = got.certificates[at];
    CHECK(close(result.value, peak));
    flags set(got.bottleneck.begin() + layer * c.ranks,
              got.bottleneck.begin() + (layer + 1) * c.ranks);
    auto const proven = c.confined(layer, set);
    REQUIRE(proven.speed > 0);
    double const bound = static_cast<double>(proven.load) / (static_cast<double>(proven.speed) / 4);
    CHECK(close(result.lower_bound, bound));
    CHECK(result.lower_bound <= result.value);
    if (result.status == certificate_status::optimal) {
      // Up to a unit of load and the rounding of doubles.
      double const rounding = result.value * 0x1p-51;
      CHECK(result.value - result.lower_bound <= c.unit(layer) / slowest + rounding);
    } else {
      CHECK(result.status == certificate_status::within_tolerance);
      CHECK(result.gap() <= tolerance * (1 + 1e-9));
    }
  }
}

/// Returns the smallest peak, by trying all sets of ranks.
inline double smallest_peak(split_case const& c, index_t layer) {
  double best = 0;
  for (unsigned mask = 1; mask < (1u << c.ranks); ++mask) {
    flags set;
    for (index_t r = 0; r < c.ranks; ++r) {
      set.push_back(((mask >> r) & 1) != 0 && c.lives(r));
    }
    auto const b = c.confined(layer, set);
    if (b.speed > 0) {
      best = std::max(best, static_cast<double>(b.load) / (static_cast<double>(b.speed) / 4));
    }
  }
  return best;
}

/// Returns the levels of all live ranks in the most even split: it settles the largest bottleneck
/// set, then repeats with the other ranks and the experts that are left.
inline reals even_levels(split_case const& c, index_t layer) {
  std::vector<flags> may = c.targets(layer);
  reals levels(static_cast<std::size_t>(c.ranks), 0);
  unsigned left = 0;
  for (index_t r = 0; r < c.ranks; ++r) {
    left |= c.lives(r) ? 1u << r : 0;
  }
  std::vector<bool> settled(static_cast<std::size_t>(c.experts), false);
  while (left != 0) {
    unsigned bottleneck = 0;
    std::int64_t load = -1;
    std::int64_t speed = 1;
    for (unsigned set = left; set != 0; set = (set - 1) & left) {
      std::int64_t a = 0;
      std::int64_t b = 0;
      for (index_t r = 0; r < c.ranks; ++r) {
        if (((set >> r) & 1) != 0) {
          a += c.base_of(layer, r);
          b += c.speed(r);
        }
      }
      for (index_t e = 0; e < c.experts; ++e) {
        unsigned where = 0;
        for (index_t r = 0; r < c.ranks; ++r) {
          where |= may[static_cast<std::size_t>(e)][static_cast<std::size_t>(r)] != 0 ? 1u << r : 0;
        }
        bool const inside = !settled[static_cast<std::size_t>(e)] && (where & left & ~set) == 0;
        a += inside && where != 0 ? c.load(layer, e) : 0;
      }
      if (a * speed > load * b) {
        bottleneck = set;
        load = a;
        speed = b;
      } else if (a * speed == load * b) {
        bottleneck |= set;  // the union of bottleneck sets is one, too
      }
    }
    for (index_t r = 0; r < c.ranks; ++r) {
      if (((bottleneck >> r) & 1) != 0) {
        levels[static_cast<std::size_t>(r)] =
            static_cast<double>(load) / (static_cast<double>(speed) / 4);
      }
    }
    for (index_t e = 0; e < c.experts; ++e) {
      bool outside = false;
      for (index_t r = 0; r < c.ranks; ++r) {
        outside = outside || (may[static_cast<std::size_t>(e)][static_cast<std::size_t>(r)] != 0 &&
                              (((left & ~bottleneck) >> r) & 1) != 0);
      }
      settled[static_cast<std::size_t>(e)] = settled[static_cast<std::size_t>(e)] || !outside;
    }
    left &= ~bottleneck;
  }
  return levels;
}

/// Draws a case with few ranks and any combination of features. Every expert has a slot on a live
/// rank.
inline split_case random_split(std::uint64_t seed) {
  generator random(seed);
  auto const among = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random.between(low, high));
  };
  split_case c;
  c.layers = among(1, 3);
  c.ranks = among(1, 7);
  c.experts = among(1, 8);
  if (c.ranks > 1 && among(0, 3) == 0) {
    c.active.assign(static_cast<std::size_t>(c.ranks), 1);
    c.active[static_cast<std::size_t>(among(0, static_cast<std::int32_t>(c.ranks) - 1))] = 0;
  }
  if (among(0, 2) == 0) {
    constexpr std::int32_t speeds[] = {1, 2, 4, 8};
    for (index_t r = 0; r < c.ranks; ++r) {
      c.quarters.push_back(speeds[among(0, 3)]);
    }
  }
  std::vector<std::vector<ints>> lists(static_cast<std::size_t>(c.layers));
  for (auto& ranks : lists) {
    ranks.resize(static_cast<std::size_t>(c.ranks));
    for (std::int32_t e = 0; e < c.experts; ++e) {
      std::int32_t home = among(0, static_cast<std::int32_t>(c.ranks) - 1);
      while (!c.lives(home)) {
        home = (home + 1) % static_cast<std::int32_t>(c.ranks);
      }
      ranks[static_cast<std::size_t>(home)].push_back(e);
      for (std::int32_t more = among(0, 3); more > 0; --more) {
        ranks[static_cast<std::size_t>(among(0, static_cast<std::int32_t>(c.ranks) - 1))].push_back(
            e);
      }
    }
    std::size_t used = 0;
    for (ints& list : ranks) {
      if (among(0, 3) == 0) {
        list.push_back(-1);
      }
      used += list.size();
    }
    c.slots = std::max(c.slots, static_cast<index_t>(used));
  }
  bool const heavy = among(0, 4) == 0;
  for (auto const& ranks : lists) {
    ints row;
    c.offsets.push_back(0);
    for (ints const& list : ranks) {
      row.insert(row.end(), list.begin(), list.end());
      c.offsets.push_back(static_cast<std::int32_t>(row.size()));
    }
    row.resize(static_cast<std::size_t>(c.slots), -1);
    c.map.insert(c.map.end(), row.begin(), row.end());
    for (index_t e = 0; e < c.experts; ++e) {
      c.loads.push_back(heavy ? random.between(0, std::int64_t{1} << 40) : random.between(0, 20));
    }
  }
  if (among(0, 2) == 0) {
    for (index_t i = 0; i < c.layers * c.ranks; ++i) {
      c.base.push_back(c.lives(i % c.ranks) ? among(0, 15) : 0);
    }
  }
  return c;
}

/// Returns a case of one layer; `of_rank[r]` are the experts on rank r.
inline split_case one_layer(std::vector<ints> const& of_rank, longs const& loads) {
  split_case c;
  c.ranks = static_cast<index_t>(of_rank.size());
  c.experts = static_cast<index_t>(loads.size());
  c.loads = loads;
  c.offsets = {0};
  for (ints const& list : of_rank) {
    c.map.insert(c.map.end(), list.begin(), list.end());
    c.offsets.push_back(static_cast<std::int32_t>(c.map.size()));
  }
  c.slots = static_cast<index_t>(c.map.size());
  return c;
}

PLIMSOLL_TEST_CASE("minmax_lp: splits computed by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  // Expert 0 is on both ranks, expert 1 on the first only.
  auto const two = split_in<P>(one_layer({{0, 1}, {0}}, {10, 4})).solve();
  CHECK(two.split == reals{3, 4, 7});
  CHECK(two.certificates[0].value == 7);
  CHECK(two.certificates[0].status == certificate_status::optimal);
  CHECK(two.bottleneck == flags{1, 1});
  // Rank 0 is too loaded for any of expert 0; the two copies on rank 1 share its load.
  auto const full = split_in<P>(one_layer({{0, 1}, {0, 0}}, {10, 40})).solve();
  CHECK(full.split == reals{0, 40, 5, 5});
  CHECK(full.certificates[0].value == 40);
  CHECK(full.bottleneck == flags{1, 0});
  // Load moves along a chain.
  auto const chain = split_in<P>(one_layer({{0, 3}, {0, 1}, {1, 2}, {2}}, {6, 6, 6, 12})).solve();
  CHECK(chain.split[0] == 0);
  CHECK(chain.split[2] == 6);
  CHECK(chain.certificates[0].value == 12);
  CHECK(chain.bottleneck == flags{1, 0, 0, 0});
  // A rank that is twice as fast gets twice the load.
  split_case fast = one_layer({{0}, {0}}, {9});
  fast.quarters = {8, 4};
  auto const shared = split_in<P>(fast).solve();
  CHECK(close(shared.split[0], 6));
  CHECK(close(shared.split[1], 3));
  CHECK(close(shared.certificates[0].value, 3));
  report_hash("minmax_lp.by_hand", two.split, full.split, chain.split, shared.split);
}

PLIMSOLL_TEST_CASE("minmax_lp: the smallest possible peak", P, PLIMSOLL_PREPARED_POLICIES) {
  reals splits;
  reals values;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    split_case const c = random_split(seed);
    split_in<P> const in(c);
    for (double const tolerance : {0.0, 1e-6, 0.05}) {
      CAPTURE(tolerance);
      split_result const got = in.solve({.tolerance = tolerance});
      check_split(c, got, tolerance);
      for (index_t layer = 0; layer < c.layers; ++layer) {
        certificate const& result = got.certificates[static_cast<std::size_t>(layer)];
        double const least = smallest_peak(c, layer);
        CHECK(result.lower_bound <= least * (1 + 1e-12));
        if (tolerance == 0) {
          CHECK(result.status == certificate_status::optimal);
          CHECK(close(result.value, least));
        }
        values.push_back(result.value);
        values.push_back(static_cast<double>(result.work));
      }
      splits.insert(splits.end(), got.split.begin(), got.split.end());
    }
  }
  report_hash("minmax_lp.smallest_peak", splits, values);
}

PLIMSOLL_TEST_CASE("minmax_lp: lexicographically minimal loads", P, PLIMSOLL_PREPARED_POLICIES) {
  reals splits;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    split_case const c = random_split(seed);
    auto const got = split_in<P>(c).solve({.objective = split_objective::lexicographic});
    check_split(c, got, 0);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      CAPTURE(layer);
      reals const levels = even_levels(c, layer);
      for (index_t r = 0; r < c.ranks; ++r) {
        if (!c.lives(r)) {
          continue;
        }
        auto carried = static_cast<double>(c.base_of(layer, r));
        for (index_t slot = c.begin(layer, r); slot < c.begin(layer, r + 1); ++slot) {
          carried += got.split[c.at(layer, c.slots, slot)];
        }
        double const level = carried / (static_cast<double>(c.speed(r)) / 4);
        CHECK(std::fabs(level - levels[static_cast<std::size_t>(r)]) <=
              1e-9 * (1 + levels[static_cast<std::size_t>(r)]));
      }
    }
    splits.insert(splits.end(), got.split.begin(), got.split.end());
  }
  report_hash("minmax_lp.most_even", splits);
}

/// Puts each expert once on the ranks in turn, then `extra` copies of random experts on random
/// ranks.
inline split_case spread(std::uint64_t seed, index_t ranks, index_t experts, index_t extra,
                         std::int64_t most) {
  generator random(seed);
  std::vector<ints> of_rank(static_cast<std::size_t>(ranks));
  for (index_t i = 0; i < experts + extra; ++i) {
    auto const e = i < experts ? i : random.between(0, experts - 1);
    of_rank[static_cast<std::size_t>(i < experts ? i % ranks : random.between(0, ranks - 1))]
        .push_back(static_cast<std::int32_t>(e));
  }
  longs loads;
  for (index_t e = 0; e < experts; ++e) {
    loads.push_back(random.between(0, random.between(0, 3) == 0 ? most : most / 16));
  }
  return one_layer(of_rank, loads);
}

PLIMSOLL_TEST_CASE("minmax_lp: many ranks", P, PLIMSOLL_PREPARED_POLICIES) {
  std::vector<split_case> cases;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    cases.push_back(spread(seed, 64, 256, 64, 100000));
    cases.push_back(spread(seed, 64, 256, 256, 100000));
  }
  cases.push_back(spread(7, 300, 200, 500, std::int64_t{1} << 38));
  // A chain of 512 ranks with all load on its first expert, and heavy ties.
  std::vector<ints> chain(512);
  for (std::int32_t e = 0; e < 511; ++e) {
    chain[static_cast<std::size_t>(e)].push_back(e);
    chain[static_cast<std::size_t>(e) + 1].push_back(e);
  }
  longs loads(511, 0);
  loads[0] = 1000000;
  cases.push_back(one_layer(chain, loads));
  std::iota(loads.begin(), loads.end(), 0);
  std::reverse(loads.begin(), loads.end());
  cases.push_back(one_layer(chain, loads));
  cases.push_back(one_layer(chain, longs(511, 1)));
  // One expert on all ranks; two halves of the ranks without a common expert.
  cases.push_back(one_layer(std::vector<ints>(100, ints{0}), {12345}));
  std::vector<ints> halves(40, ints{0, 1});
  std::fill(halves.begin() + 20, halves.end(), ints{2, 3});
  cases.push_back(one_layer(halves, {70, 7, 30, 3}));
  reals all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    for (double const tolerance : {0.0, 1e-6}) {
      auto const got = split_in<P>(cases[i]).solve({.tolerance = tolerance});
      check_split(cases[i], got, tolerance);
      CHECK((tolerance > 0 || got.certificates[0].status == certificate_status::optimal));
      all.insert(all.end(), got.split.begin(), got.split.end());
    }
  }
  report_hash("minmax_lp.many_ranks", all);
}

PLIMSOLL_TEST_CASE("minmax_lp: edge cases", P, PLIMSOLL_PREPARED_POLICIES) {
  // No layers.
  split_case none;
  none.layers = 0;
  CHECK(split_in<P>(none).solve().split.empty());
  // No load; no expert on two ranks; one rank, with an expert without a slot and without load.
  auto const idle = split_in<P>(one_layer({{0, 1}, {0}}, {0, 0})).solve();
  CHECK(idle.split == reals{0, 0, 0});
  CHECK(idle.certificates[0].status == certificate_status::optimal);
  CHECK(idle.certificates[0].value == 0);
  auto const fixed = split_in<P>(one_layer({{0}, {1}, {2}}, {5, 9, 1})).solve({.tolerance = 0});
  CHECK(fixed.split == reals{5, 9, 1});
  CHECK(fixed.certificates[0].value == 9);
  CHECK(fixed.bottleneck == flags{0, 1, 0});
  CHECK(split_in<P>(one_layer({{0, 0, 1}}, {6, 1, 0})).solve().split == reals{3, 3, 1});
  // One load that is the largest total.
  std::int64_t const most = plimsoll::load_limit - 1;
  auto const large = split_in<P>(one_layer({{0}, {0}}, {most})).solve();
  CHECK(large.split == reals{static_cast<double>(most) / 2, static_cast<double>(most) / 2});
  // Loads far below 1 keep their precision.
  split_case small = one_layer({{0, 1}, {0}}, {3, 1});
  array_in<double, P> const loads(reals{3e-30, 1e-30});
  split_in<P> const in(small);
  plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
  array_in<double, P> split(3);
  lp.solve(loads.view2(1, 2), split.view2(1, 3));
  CHECK(close(plimsoll::read(make_policy<P>(), lp.certificates())[0].value, 2e-30));
  CHECK(close(split.values()[2], 2e-30));
}

PLIMSOLL_TEST_CASE("minmax_lp: one object, many steps", P, PLIMSOLL_PREPARED_POLICIES) {
  // The state of one step must not affect the next.
  split_case const c = spread(3, 16, 64, 32, 1000);
  split_in<P> const in(c);
  plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
  CHECK_NOTHROW(lp.check());
  split_result const first = in.solve(lp);
  split_case other = c;
  std::reverse(other.loads.begin(), other.loads.end());
  check_split(other, split_in<P>(other).solve(lp), 1e-6);
  other.loads[1] = -1;
  CHECK(split_in<P>(other).solve(lp).error.starts_with("minmax_lp::solve: loads: "));
  split_result const again = in.solve(lp);
  CHECK(again.error == "no error");
  CHECK(again.split == first.split);
  CHECK(again.bottleneck == first.bottleneck);
}

PLIMSOLL_TEST_CASE("minmax_lp: every type of loads, and strides", P, PLIMSOLL_PREPARED_POLICIES) {
  split_case const c = spread(11, 12, 40, 20, 3000);
  split_result const expected = split_in<P>(c).solve();
  for_each_load_type([&](auto type) {
    split_result const got = split_in<P, decltype(type)>(c).solve();
    CHECK(got.split == expected.split);
  });
  // Every second expert of a wider matrix, and splits with a stride of two.
  longs wide(2 * c.loads.size(), -5);
  for (std::size_t e = 0; e < c.loads.size(); ++e) {
    wide[2 * e] = c.loads[e];
  }
  array_in<std::int64_t, P> const loads(wide);
  auto view = loads.view2(1, c.experts);
  view.strides[1] = 2;
  array_in<double, P> split(2 * c.slots, -7.0);
  auto out = split.view2(1, c.slots);
  out.strides[1] = 2;
  split_in<P> const in(c);
  plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
  lp.solve(view, out);
  reals const parts = split.values();
  for (index_t slot = 0; slot < c.slots; ++slot) {
    CHECK(parts[static_cast<std::size_t>(2 * slot)] ==
          expected.split[static_cast<std::size_t>(slot)]);
    CHECK(parts[static_cast<std::size_t>(2 * slot + 1)] == -7);
  }
}

PLIMSOLL_TEST_CASE("minmax_lp: loads that cannot be split, and an iteration limit", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  // Load on an expert without a slot, or only on a dead rank; a base load there; invalid loads.
  auto const lacking = split_in<P>(one_layer({{0}, {0}}, {4, 1})).solve();
  CHECK(lacking.certificates[0].status == certificate_status::infeasible);
  CHECK(lacking.certificates[0].value == std::numeric_limits<double>::infinity());
  CHECK(lacking.split == reals{0, 0});
  CHECK(lacking.bottleneck == flags{0, 0});
  CHECK(lacking.error ==
        "minmax_lp::solve: loads: expected load only on experts with a slot on a live rank, got "
        "1 for expert 1 in layer 0");
  split_case dead = one_layer({{0, 1}, {0}}, {4, 1});
  dead.active = {0, 1};
  CHECK(split_in<P>(dead).solve().certificates[0].status == certificate_status::infeasible);
  dead.loads = {4, 0};
  CHECK(split_in<P>(dead).solve().split == reals{0, 0, 4});
  dead.base = {1, 0};
  auto const based = split_in<P>(dead).solve();
  CHECK(based.certificates[0].status == certificate_status::infeasible);
  CHECK(based.error ==
        "minmax_lp::solve: inputs.base_load: expected no load on dead ranks, got 1 for rank 0 in "
        "layer 0");
  dead.base = {0, -3};
  CHECK(split_in<P>(dead).solve().error ==
        "minmax_lp::solve: inputs.base_load: expected values from 0 to below 2^47, in total "
        "below 2^47 per layer, got -3 for rank 1 in layer 0");
  // The first of two bad layers.
  split_case layers = one_layer({{0}, {1}}, {});
  layers.layers = 3;
  layers.experts = 2;
  layers.map = {0, 1, 0, 1, 0, 1};
  layers.offsets = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  layers.loads = {1, 1, -6, 1, 1, -5};
  CHECK(split_in<P>(layers).solve().error.ends_with("got -6 for expert 0 in layer 1"));
  for (double const bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), 0x1p47}) {
    split_case const c = one_layer({{0}, {0}}, {4});
    split_in<P> const in(c);
    plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
    array_in<double, P> const loads(reals{bad});
    array_in<double, P> split(2, -7.0);
    lp.solve(loads.view2(1, 1), split.view2(1, 2));
    CHECK(std::isnan(plimsoll::read(make_policy<P>(), lp.certificates())[0].value));
    CHECK(split.values() == reals{0, 0});
    CHECK(refusal_of([&] { lp.check(); }) ==
          "minmax_lp::solve: loads: expected values from 0 to below 2^47, in total below 2^47 "
          "per layer, got " +
              plimsoll::detail::text(bad) + " for expert 0 in layer 0");
  }
  auto const heavy = split_in<P>(one_layer({{0}, {1}}, {1LL << 46, 1LL << 46})).solve();
  CHECK(heavy.error ==
        "minmax_lp::solve: loads: expected values from 0 to below 2^47, in total below 2^47 per "
        "layer, got 140737488355328 in total in layer 0");
  // With a low iteration limit the split is complete, and the certificate has its gap.
  std::vector<ints> chain(64);
  longs falling(63);
  for (std::int32_t e = 0; e < 63; ++e) {
    chain[static_cast<std::size_t>(e)].push_back(e);
    chain[static_cast<std::size_t>(e) + 1].push_back(e);
    falling[static_cast<std::size_t>(e)] = 1000 - 15 * e;
  }
  split_case const c = one_layer(chain, falling);
  auto const brief = split_in<P>(c).solve({.tolerance = 0, .max_iterations = 1});
  CHECK(brief.certificates[0].status == certificate_status::iteration_limit);
  CHECK(brief.certificates[0].work == 1);
  CHECK(brief.certificates[0].lower_bound < brief.certificates[0].value);
  CHECK(
      close(std::accumulate(brief.split.begin(), brief.split.end(), 0.0),
            static_cast<double>(std::accumulate(c.loads.begin(), c.loads.end(), std::int64_t{0}))));
  CHECK(brief.error == "no error");
}

/// Returns a chain of ranks: expert e is on rank e and, from expert `first` on, also on rank e + 1.
inline split_case chain(index_t ranks, index_t first, longs const& loads) {
  std::vector<ints> of_rank(static_cast<std::size_t>(ranks));
  for (std::int32_t e = 0; e < std::ssize(loads); ++e) {
    of_rank[static_cast<std::size_t>(e)].push_back(e);
    if (e >= first) {
      of_rank[static_cast<std::size_t>(e) + 1].push_back(e);
    }
  }
  return one_layer(of_rank, loads);
}

PLIMSOLL_TEST_CASE("minmax_lp: iteration limits hold, and splits cut short are not optimal", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  // Many short paths at once: the solver takes no step beyond the limit.
  generator random(2);
  longs loads;
  for (index_t e = 0; e < 599; ++e) {
    loads.push_back(random.between(0, 1000000));
  }
  split_case const many = chain(600, 0, loads);
  for (split_objective const goal : {split_objective::min_peak, split_objective::lexicographic}) {
    std::int64_t const all =
        split_in<P>(many).solve({.tolerance = 0, .objective = goal}).certificates[0].work;
    for (std::int64_t const limit : {std::int64_t{5}, std::int64_t{6}, all - 1, all}) {
      CAPTURE(limit);
      auto const got =
          split_in<P>(many).solve({.tolerance = 0, .max_iterations = limit, .objective = goal});
      CHECK(got.certificates[0].work == limit);
      CHECK(got.certificates[0].status ==
            (limit < all ? certificate_status::iteration_limit : certificate_status::optimal));
    }
  }
  // The first rank has the peak from the start; only the other ranks can become more even.
  longs falling{100000};
  for (std::int64_t e = 1; e < 39; ++e) {
    falling.push_back(50 * (40 - e));
  }
  split_case const below = chain(40, 1, falling);
  for (index_t const limit : {1, 4, 5, 20}) {
    CAPTURE(limit);
    auto const cut = split_in<P>(below).solve(
        {.tolerance = 0, .max_iterations = limit, .objective = split_objective::lexicographic});
    CHECK(cut.certificates[0].status == certificate_status::iteration_limit);
    CHECK(cut.certificates[0].value == 100000);
    CHECK(cut.certificates[0].lower_bound == 100000);
    CHECK(split_in<P>(below).solve({.max_iterations = limit}).certificates[0].status ==
          certificate_status::optimal);
  }
  CHECK(split_in<P>(below)
            .solve({.objective = split_objective::lexicographic})
            .certificates[0]
            .status == certificate_status::optimal);
}

PLIMSOLL_TEST_CASE("minmax_lp: speeds over the whole range", P, PLIMSOLL_PREPARED_POLICIES) {
  // One expert on all ranks. A unit of load takes long on a slow rank; no bound is above the
  // smallest peak, 1 / (63 * 65536 + 1).
  split_case c = one_layer(std::vector<ints>(64, ints{0}), {1});
  c.quarters.assign(64, 1 << 18);
  c.quarters[0] = 4;
  auto const got = split_in<P>(c).solve({.tolerance = 0});
  check_split(c, got, 0);
  CHECK(got.certificates[0].status == certificate_status::optimal);
  CHECK(got.certificates[0].lower_bound * (63 * 65536 + 1) <= 1);
  // A speed of 1.4 units of 2^-16 must not be rounded to one or two units.
  split_case two = one_layer({{0}, {0}}, {1000000});
  two.quarters = {10 << 16, 14};
  auto const fine = split_in<P>(two).solve({.tolerance = 0});
  check_split(two, fine, 0);
  double const slow_share = 1000000.0 * 14 / ((10 << 16) + 14);
  CHECK(std::fabs(fine.split[1] - slow_share) <= two.unit(0));
}

PLIMSOLL_TEST_CASE("minmax_lp: errors", P, PLIMSOLL_PREPARED_POLICIES) {
  split_case const good = one_layer({{0, 1}, {0}}, {4, 1});
  auto const refusal = [](split_case const& c, minmax_lp_options const& options = {}) {
    try {
      split_in<P> const in(c);
      plimsoll::minmax_lp const lp(make_policy<P>(), in.placement(), in.options(options));
    } catch (plimsoll::invalid_input const& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(refusal(good) == "no error");
  CHECK(refusal(good, {.tolerance = -1}) ==
        "minmax_lp: options.tolerance: expected a number from 0 to below 1, got -1");
  CHECK(refusal(good, {.tolerance = std::numeric_limits<double>::quiet_NaN()}) ==
        "minmax_lp: options.tolerance: expected a number from 0 to below 1, got NaN");
  CHECK(refusal(good, {.max_iterations = 0}) ==
        "minmax_lp: options.max_iterations: expected 1 to 9223372036854775807 sweeps and paths, "
        "got 0");
  split_case bad = good;
  bad.map[1] = 2;
  CHECK(refusal(bad) ==
        "minmax_lp: physical_to_logical: expected -1 or an expert of the layer, got 2 in layer 0, "
        "rank 0, slot 1");
  bad = good;
  bad.offsets = {0, 3, 2};
  CHECK(refusal(bad) ==
        "minmax_lp: rank_offsets: expected offsets that rise from 0 to at most the number of "
        "slots, got 2 in layer 0, rank 1");
  bad = good;
  bad.active = {0, 0};
  CHECK(refusal(bad) == "minmax_lp: options.on.active: expected at least 1 live rank, got 0");
  bad.active = {1};
  CHECK(refusal(bad) == "minmax_lp: options.on.active: expected 2 ranks, got 1");
  bad = good;
  bad.quarters = {4, 0};
  CHECK(refusal(bad) ==
        "minmax_lp: options.on.speeds: expected values from 2^-64 to 2^64, got 0 for rank 1");
  // Speeds may be as low as 2^-16 of the fastest live rank's.
  bad.quarters = {4 << 20, 4 << 4};
  CHECK(refusal(bad) == "no error");
  bad.quarters = {4 << 20, 4 << 3};
  CHECK(refusal(bad) ==
        "minmax_lp: options.on.speeds: expected speeds of live ranks from 2^-16 of the fastest to "
        "the fastest, got 8 for rank 1, where the fastest has 1048576");
  bad.active = {1, 0};
  CHECK(refusal(bad) == "no error");
  bad.active = {0, 1};
  CHECK(refusal(bad) == "no error");

  split_in<P> const in(good);
  plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
  array_in<double, P> split(3);
  array_in<std::uint8_t, P> bottleneck(4);
  array_in<std::int64_t, P> const loads(longs{1, 2, 3});
  CHECK(refusal_of([&] { lp.solve(loads.view2(1, 3), split.view2(1, 3)); }) ==
        "minmax_lp::solve: loads: expected 2 experts, got 3");
  CHECK(refusal_of([&] { lp.solve(loads.view2(0, 2), split.view2(1, 3)); }) ==
        "minmax_lp::solve: loads: expected 1 layers, got 0");
  CHECK(refusal_of([&] { lp.solve(loads.view2(1, 2), split.view2(1, 2)); }) ==
        "minmax_lp::solve: split: expected 3 slots, got 2");
  CHECK(refusal_of([&] {
          lp.solve(loads.view2(1, 2),
                   {.base_load = plimsoll::matrix_ref<double const>(split.data(), 1, 3)},
                   split.view2(1, 3));
        }) == "minmax_lp::solve: inputs.base_load: expected 2 ranks, got 3");
  CHECK(refusal_of([&] {
          lp.solve(loads.view2(1, 2), {}, split.view2(1, 3),
                   {.bottleneck = bottleneck.view2(2, 2)});
        }) == "minmax_lp::solve: outputs.bottleneck: expected 1 layers, got 2");
}

}  // namespace plimsoll_test

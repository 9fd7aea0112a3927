// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of minmax_lp, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test::minmax_lp_support {

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
  std::vector<plimsoll::fault> faults;
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
            plimsoll::read(make_policy<P>(), lp.faults()), bottleneck.values(),
            refusal_of([&] { lp.check(); })};
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

}  // namespace plimsoll_test::minmax_lp_support

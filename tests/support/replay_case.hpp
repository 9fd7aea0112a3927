// SPDX-License-Identifier: Apache-2.0
// Recorded steps and plans on the host, and the result of `replay` by its definition.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/replay.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "generators.hpp"
#include "policies.hpp"

namespace plimsoll_test {

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using flags = std::vector<std::uint8_t>;

/// Recorded steps and plans, on the host. `offsets` and `active` may be empty, as in the options.
struct replay_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  index_t ranks = 1;
  index_t plans = 1;
  longs loads = {};   ///< [steps, layers, experts]
  ints map = {};      ///< [plans * layers, slots]
  ints counts = {};   ///< [plans * layers, experts]
  ints offsets = {};  ///< [plans * layers, ranks + 1]
  flags active = {};  ///< [ranks]
  plimsoll::split_rule split = plimsoll::split_rule::even;

  [[nodiscard]] index_t rows() const { return plans * layers; }
  [[nodiscard]] bool lives(index_t rank) const {
    return active.empty() || active[static_cast<std::size_t>(rank)] != 0;
  }
  [[nodiscard]] index_t begin(index_t row, index_t rank) const {
    return offsets.empty() ? rank * slots / ranks
                           : offsets[static_cast<std::size_t>(row * (ranks + 1) + rank)];
  }
  template <class T>
  [[nodiscard]] std::vector<T> loads_as() const {
    return {loads.begin(), loads.end()};
  }

  /// Fills the slots of live ranks with every expert once, then with random experts or none, and
  /// sets the replica counts.
  void place(generator& random) {
    for (index_t row = 0; row < rows(); ++row) {
      std::vector<index_t> usable;
      for (index_t r = 0; r < ranks; ++r) {
        for (index_t s = begin(row, r); s < begin(row, r + 1) && lives(r); ++s) {
          usable.insert(usable.begin() + random.between(0, std::ssize(usable)), s);
        }
      }
      REQUIRE(std::ssize(usable) >= experts);
      map.resize(static_cast<std::size_t>((row + 1) * slots), -1);
      counts.resize(static_cast<std::size_t>((row + 1) * experts), 0);
      index_t next = 0;
      for (index_t const slot : usable) {
        index_t const e = next < experts ? next : random.between(-1, experts - 1);
        ++next;
        if (e >= 0) {
          map[static_cast<std::size_t>(row * slots + slot)] = static_cast<std::int32_t>(e);
          ++counts[static_cast<std::size_t>(row * experts + e)];
        }
      }
    }
  }

  /// Balancedness by definition.
  [[nodiscard]] double balancedness(index_t plan, index_t layer) const {
    index_t const row = plan * layers + layer;
    double sum = 0;
    for (index_t step = 0; step < steps; ++step) {
      auto const* const load = loads.data() + (step * layers + layer) * experts;
      double total = 0;
      double peak = 0;
      double live = 0;
      for (index_t r = 0; r < ranks; ++r) {
        double carried = 0;
        for (index_t s = begin(row, r); s < begin(row, r + 1); ++s) {
          if (index_t const e = map[static_cast<std::size_t>(row * slots + s)]; e >= 0) {
            carried +=
                static_cast<double>(load[e]) / counts[static_cast<std::size_t>(row * experts + e)];
          }
        }
        live += lives(r);
        total += carried;
        peak = std::max(peak, carried);
      }
      sum += peak > 0 ? total / live / peak : 1;
    }
    return sum / static_cast<double>(steps);
  }
};

/// Balancedness by definition if every step is split optimally: the peak is the largest mean load
/// of some ranks that no other rank can take (max-flow min-cut).
inline double split_balancedness(replay_case const& c, index_t plan, index_t layer) {
  index_t const row = plan * c.layers + layer;
  double sum = 0;
  for (index_t step = 0; step < c.steps; ++step) {
    auto const* const load = c.loads.data() + (step * c.layers + layer) * c.experts;
    double peak = 0;
    double mean = 0;
    for (unsigned some = 1; some < 1u << c.ranks; ++some) {
      std::vector<bool> confined(static_cast<std::size_t>(c.experts), true);
      double live = 0;
      for (index_t r = 0; r < c.ranks; ++r) {
        bool const in = (some >> r & 1u) != 0;
        live += in && c.lives(r) ? 1 : 0;
        for (index_t s = c.begin(row, r); s < c.begin(row, r + 1) && !in; ++s) {
          if (index_t const e = c.map[static_cast<std::size_t>(row * c.slots + s)]; e >= 0) {
            confined[static_cast<std::size_t>(e)] = false;
          }
        }
      }
      double stays = 0;
      for (index_t e = 0; e < c.experts; ++e) {
        stays += confined[static_cast<std::size_t>(e)] ? static_cast<double>(load[e]) : 0;
      }
      if (live > 0) {
        mean = stays / live;  // of all ranks, in the last round
        peak = std::max(peak, mean);
      }
    }
    sum += peak > 0 ? mean / peak : 1;
  }
  return sum / static_cast<double>(c.steps);
}

/// Plans with empty slots, several replicas of an expert on a rank, ranks without slots, dead ranks
/// and slots of no rank; steps and layers without load.
inline replay_case random_replay(std::uint64_t seed) {
  generator random(seed);
  replay_case c;
  constexpr index_t steps[] = {1, 2, 7, 8, 9, 15, 16, 17};
  c.steps = steps[seed % 8];
  c.layers = random.between(1, 4);
  c.experts = random.between(0, 4) == 0 ? 1 : random.between(1, 40);
  c.ranks = random.between(0, 4) == 0 ? 1 : random.between(1, 12);
  c.plans = random.between(1, 4);
  c.slots = 3 * c.experts + random.between(0, 20);
  if (random.between(0, 1) == 0) {
    for (index_t row = 0; row < c.rows(); ++row) {
      ints ends{0, 0, static_cast<std::int32_t>(c.slots - random.between(0, c.experts))};
      for (index_t r = 1; r < c.ranks; ++r) {
        ends.push_back(static_cast<std::int32_t>(random.between(0, ends[2])));
      }
      std::sort(ends.begin(), ends.end());
      c.offsets.insert(c.offsets.end(), ends.begin() + 1, ends.end());
    }
  }
  if (random.between(0, 2) == 0) {
    c.active.assign(static_cast<std::size_t>(c.ranks), 3);  // any value but 0 means live
    c.active[static_cast<std::size_t>(random.between(0, c.ranks - 1))] = 0;
    for (index_t row = 0; row < c.rows(); ++row) {
      index_t usable = 0;
      for (index_t r = 0; r < c.ranks; ++r) {
        usable += c.lives(r) ? c.begin(row, r + 1) - c.begin(row, r) : 0;
      }
      if (usable < c.experts) {
        c.active.clear();
        break;
      }
    }
  }
  c.loads = random_loads<std::int64_t>(seed, c.steps * c.layers * c.experts);
  for (index_t i = 0; i < c.steps * c.layers; ++i) {
    if (random.between(0, 9) == 0 || (i % c.layers == 1 && seed % 3 == 0)) {
      std::fill_n(c.loads.begin() + i * c.experts, c.experts, 0);
    }
  }
  c.place(random);
  return c;
}

/// A case in the memory of a policy.
template <class P>
class replay_in {
 public:
  explicit replay_in(replay_case const& c)
      : shape_(c), map_(c.map), counts_(c.counts), offsets_(c.offsets), active_(c.active) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result{map_.view2(shape_.rows(), shape_.slots),
                                   counts_.view2(shape_.rows(), shape_.experts), shape_.ranks};
    if (!shape_.offsets.empty()) {
      result.rank_offsets = offsets_.view2(shape_.rows(), shape_.ranks + 1);
    }
    return result;
  }
  [[nodiscard]] plimsoll::replay_options options() const {
    plimsoll::replay_options result{.split = shape_.split};
    if (!shape_.active.empty()) {
      result.on.active = active_.view1();
    }
    return result;
  }
  template <class Loads>
  [[nodiscard]] reals replay(Loads const& loads) const {
    array_in<double, P> out(shape_.rows(), -7.0);
    plimsoll::replay(make_policy<P>(), loads, placement(), options(),
                     out.view2(shape_.plans, shape_.layers));
    return out.values();
  }
  template <class T>
  [[nodiscard]] reals replay(std::vector<T> const& loads) const {
    array_in<T, P> const in(loads);
    return replay(in.view3(shape_.steps, shape_.layers, shape_.experts));
  }

 private:
  replay_case shape_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> counts_;
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
};

}  // namespace plimsoll_test

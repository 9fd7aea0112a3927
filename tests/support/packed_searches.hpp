// SPDX-License-Identifier: Apache-2.0
// A seeded family of small searches, and their optima by branch and bound.
#pragma once

#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "search_case.hpp"

namespace plimsoll_test {

enum class load_shape : std::uint8_t { zipf, long_tailed, few_heavy, near_equal, equal };

/// Mean load of each expert, in tokens per step.
inline reals mean_loads(generator& random, load_shape shape, index_t experts) {
  reals means;
  double const size = static_cast<double>(random.between(20, 400));
  for (index_t e = 0; e < experts; ++e) {
    double mean = size;
    switch (shape) {
      case load_shape::zipf:
        mean = 4 * size / static_cast<double>(e + 1);
        break;
      case load_shape::long_tailed:  // a product of many factors is close to log-normal
        for (int i = 0; i < 6; ++i) {
          mean *= 0.5 + 1.2 * random.unit();
        }
        break;
      case load_shape::few_heavy:
        mean *= e < 3 ? 2 + 2 * random.unit() : 0.3 + 0.3 * random.unit();
        break;
      case load_shape::near_equal:
        mean *= 0.9 + 0.2 * random.unit();
        break;
      case load_shape::equal:
        break;
    }
    means.push_back(mean);
  }
  return means;
}

/// One layer with one replica of every expert, 2 to 4 ranks of at least 2 slots, and 1 to 6 steps.
/// Costs count tokens or tiles, ranks are equal or not, and there may be free slots and a dead
/// rank.
inline search_case packed_search(std::uint64_t seed) {
  generator random(seed);
  auto const often = [&random](int percent) { return random.between(0, 99) < percent; };
  constexpr index_t most_experts[] = {13, 10, 9};
  search_case c;
  index_t const live = random.between(2, 4);
  c.steps = random.between(1, 6);
  c.experts = random.between(2 * live, most_experts[live - 2]);
  index_t const spare = often(40) ? random.between(1, 3) : 0;
  // Slots are distributed over the ranks at random, or evenly.
  ints room(static_cast<std::size_t>(live), 2);
  bool const is_even = often(60);
  for (index_t more = 2 * live; more < c.experts + spare; ++more) {
    ++room[static_cast<std::size_t>(is_even ? more % live : random.between(0, live - 1))];
  }
  if (often(20)) {
    std::int64_t const dead = random.between(0, live);
    room.insert(room.begin() + dead, static_cast<std::int32_t>(random.between(1, 3)));
    c.active.assign(room.size(), 1);
    c.active[static_cast<std::size_t>(dead)] = 0;
  }
  c.options.on.ranks = std::ssize(room);
  c.offsets = {0};
  for (std::int32_t const slots : room) {
    c.offsets.push_back(c.offsets.back() + slots);
  }
  c.slots = c.offsets.back();

  c.cost.tile = often(50) ? 1 : std::int64_t{8} << random.between(0, 3);
  bool const is_unequal = often(50);
  double const idle = often(30) ? static_cast<double>(random.between(1, 40)) : 0.0;
  for (index_t r = 0; r < stairs::kinds; ++r) {
    c.cost.of_tile[r] = is_unequal ? static_cast<double>(random.between(80, 125)) : 100;
    c.cost.idle[r] = 100 * idle;
  }
  reals const means = mean_loads(random, static_cast<load_shape>(seed % 5), c.experts);
  double const spread = often(30) ? 0.0 : often(50) ? 0.3 : 1.0;  // between steps
  for (index_t t = 0; t < c.steps; ++t) {
    for (double const mean : means) {
      double const load = mean * (1 + spread * (2 * random.unit() - 1));
      c.loads.push_back(static_cast<double>(static_cast<std::int64_t>(load)));
    }
  }
  return c;
}

/// Finds the lowest sum of latencies of all placements of the layer, by branch and bound.
class packing_optimum {
 public:
  explicit packing_optimum(search_case const& c) : steps_(static_cast<std::size_t>(c.steps)) {
    for (index_t e = 0; e < c.experts; ++e) {
      loads_.emplace_back();
      for (index_t t = 0; t < c.steps; ++t) {
        loads_.back().push_back(static_cast<std::int64_t>(c.load(t, 0, e)));
      }
    }
    auto const total = [](longs const& of) {
      return std::accumulate(of.begin(), of.end(), std::int64_t{0});
    };
    std::sort(loads_.begin(), loads_.end(),
              [&](longs const& a, longs const& b) { return total(a) > total(b); });
    longs of_step(steps_, 0);
    for (longs const& load : loads_) {
      for (std::size_t t = 0; t < steps_; ++t) {
        of_step[t] += load[t];
      }
    }
    std::int64_t const most = *std::max_element(of_step.begin(), of_step.end());
    for (index_t r = 0; r < c.ranks(); ++r) {
      if (c.room(0, r) > 0) {
        ranks_.push_back({c.room(0, r), longs(steps_, 0), {}});
        for (std::int64_t tokens = 0; tokens <= most; ++tokens) {
          ranks_.back().price.push_back(
              static_cast<std::int64_t>(c.cost(r, static_cast<double>(tokens))));
        }
      }
    }
    for (std::int64_t const tokens : of_step) {
      floor_.push_back(divided(tokens));
    }
  }

  /// Returns the lowest score, given the score `enough` of some placement.
  [[nodiscard]] std::int64_t below(std::int64_t enough) {
    best_ = enough;
    place(0, floor_);
    return best_;
  }

 private:
  struct rank {
    index_t room;
    longs tokens;
    longs price;  ///< latency of 0, 1, ... tokens
  };

  /// Returns the lowest latency in which all ranks together can compute `tokens` tokens.
  [[nodiscard]] std::int64_t divided(std::int64_t tokens) const {
    std::int64_t low = -1;
    std::int64_t high = ranks_.front().price[static_cast<std::size_t>(tokens)];
    for (rank const& r : ranks_) {
      low = std::max(low, r.price[0] - 1);  // the latency of an idle rank counts, too
    }
    high = std::max(high, low + 1);
    while (high - low > 1) {
      std::int64_t const time = low + (high - low) / 2;
      std::int64_t done = 0;
      for (rank const& r : ranks_) {
        done += std::upper_bound(r.price.begin(), r.price.end(), time) - r.price.begin() - 1;
      }
      (done >= tokens ? high : low) = time;
    }
    return high;
  }

  /// Places `expert` and all later ones. `least` is a lower bound of the latency of each step with
  /// the experts placed so far.
  void place(std::size_t expert, longs const& least) {
    if (std::accumulate(least.begin(), least.end(), std::int64_t{0}) >= best_) {
      return;
    }
    if (expert == loads_.size()) {
      best_ = std::accumulate(least.begin(), least.end(), std::int64_t{0});
      return;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      rank& r = ranks_[i];
      // Of ranks with the same costs, slots and tokens, it is enough to try one.
      bool const is_new = std::none_of(
          ranks_.begin(), ranks_.begin() + static_cast<long>(i), [&](rank const& other) {
            return other.room == r.room && other.tokens == r.tokens && other.price == r.price;
          });
      if (r.room == 0 || !is_new) {
        continue;
      }
      --r.room;
      longs more = least;
      for (std::size_t t = 0; t < steps_; ++t) {
        r.tokens[t] += loads_[expert][t];
        more[t] = std::max(more[t], r.price[static_cast<std::size_t>(r.tokens[t])]);
      }
      place(expert + 1, more);
      for (std::size_t t = 0; t < steps_; ++t) {
        r.tokens[t] -= loads_[expert][t];
      }
      ++r.room;
    }
  }

  std::size_t steps_;
  std::vector<longs> loads_;  ///< loads of every expert in every step, heaviest expert first
  std::vector<rank> ranks_;
  longs floor_;  ///< lower bound of the latency of every step
  std::int64_t best_ = 0;
};

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Plans and their best possible peaks by exhaustive search.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "draws.hpp"

namespace plimsoll_test::refinement_quality_support {

using ints = std::vector<std::int32_t>;
using wides = std::vector<std::int64_t>;

/// The search was developed on seeds below 10000.
constexpr std::uint64_t first_seed = 100000;

/// Number of units per token. Loads are whole numbers and speeds are multiples of 1/4, so that all
/// costs are fractions of 64-bit integers: a replica weighs load * (unit / copies), with copies up
/// to 5.
constexpr std::int64_t unit = 60;

struct quality_case {
  ints loads;
  ints copies;
  ints offsets{0};  ///< `[ranks + 1]`
  wides quarters;   ///< speeds `[ranks]`, in 1/4; 0: a dead rank
  bool has_speeds = false;

  quality_case(std::uint64_t seed, bool any_copies) {
    draws draw(seed);
    std::int32_t const ranks = draw.among(2, any_copies ? 3 : 4);
    bool const uneven = draw.one_in(3);
    std::int32_t const most = any_copies ? 6 - ranks : 8 - ranks;  // 3 to 6 slots per rank
    std::int32_t const mean = draw.among(2, most);
    has_speeds = draw.one_in(4);
    bool const dead = ranks > 2 && draw.one_in(6);
    std::int32_t slots = 0;
    for (std::int32_t r = 0; r < ranks; ++r) {
      std::int32_t const room = uneven ? draw.among(std::max(mean - 1, 1), mean + 1) : mean;
      offsets.push_back(offsets.back() + room);
      std::int32_t const quarter = has_speeds ? draw.any({4, 4, 3, 2, 5, 8}) : 4;
      bool const lives = !(dead && r == 1);
      quarters.push_back(lives ? quarter : 0);
      slots += lives ? room : 0;
    }
    std::int32_t const spare = any_copies       ? draw.among(1, std::max(slots / 2, 1))
                               : draw.one_in(3) ? draw.among(1, 2)
                                                : 0;
    std::int32_t const filled = std::max(any_copies ? slots : slots - spare, 1);
    std::int32_t const extra = any_copies       ? std::min(spare, filled - 1)
                               : draw.one_in(2) ? draw.among(0, filled / 2)
                                                : 0;
    std::int32_t const experts = filled - extra;
    int const kind = draw.among(0, 5);
    for (std::int32_t e = 0; e < experts; ++e) {
      double const u = draw.unit();
      double load = 0;
      switch (kind) {
        case 0:  // Zipf
          load = 60000.0 / (1 + e);
          break;
        case 1:  // log-normal, by the sum of four uniform numbers
          load = 1000 * std::exp(1.7 * (u + draw.unit() + draw.unit() + draw.unit() - 2));
          break;
        case 2:  // few heavy experts
          load = e < 2 ? 5000 + 5000 * u : 100 + 1900 * u;
          break;
        case 3:  // nearly equal
          load = 1000 + 100 * u;
          break;
        case 4:  // uniform
          load = 1 + 9999 * u;
          break;
        default:  // few distinct loads
          load = draw.any({700, 1100, 1300});
      }
      loads.push_back(static_cast<std::int32_t>(load));
    }
    copies.assign(loads.size(), 1);
    for (std::int32_t left = extra; left > 0; --left) {  // to the heaviest replica, up to 5
      std::size_t heaviest = 0;
      for (std::size_t e = 1; e < loads.size(); ++e) {
        bool const heavier = loads[e] * copies[heaviest] > loads[heaviest] * copies[e];
        heaviest = copies[heaviest] == 5 || (copies[e] < 5 && heavier) ? e : heaviest;
      }
      copies[heaviest] += copies[heaviest] < 5 ? 1 : 0;
    }
  }

  [[nodiscard]] plimsoll::index_t experts() const { return std::ssize(loads); }
  [[nodiscard]] plimsoll::index_t slots() const { return offsets.back(); }
  [[nodiscard]] std::int64_t weight(std::size_t e, std::int32_t of) const {
    return loads[e] * (unit / of);
  }
  /// Largest cost of a rank: load in units divided by speed in quarters.
  [[nodiscard]] double peak_of(ints const& map) const {
    ints counts(loads.size(), 0);
    for (std::int32_t const e : map) {
      counts[static_cast<std::size_t>(std::max(e, 0))] += e >= 0 ? 1 : 0;
    }
    CHECK(*std::min_element(counts.begin(), counts.end()) > 0);
    double peak = 0;
    for (std::size_t r = 0; r < quarters.size(); ++r) {
      double load = 0;
      for (std::int32_t s = offsets[r]; s < offsets[r + 1]; ++s) {
        auto const e = map[static_cast<std::size_t>(s)];
        CHECK((e < 0 || quarters[r] > 0));
        load += e < 0 ? 0
                      : static_cast<double>(loads[static_cast<std::size_t>(e)]) *
                            static_cast<double>(unit) / counts[static_cast<std::size_t>(e)];
      }
      peak = std::max(peak, load == 0 ? 0 : load / static_cast<double>(quarters[r]));
    }
    return peak;
  }

  /// Branch and bound. Lowers `best`, a cost known to be reachable, to that of the best plan with
  /// these copies.
  void solve(ints const& counts, double& best) const {
    wides items;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      items.insert(items.end(), static_cast<std::size_t>(counts[e]), weight(e, counts[e]));
    }
    std::sort(items.rbegin(), items.rend());
    ints room;
    for (std::size_t r = 0; r < quarters.size(); ++r) {
      room.push_back(quarters[r] > 0 ? offsets[r + 1] - offsets[r] : 0);
    }
    wides carried(quarters.size(), 0);
    std::int64_t const total = std::accumulate(items.begin(), items.end(), std::int64_t{0});
    // Largest load of a rank that makes its cost less than `best`, by more than the rounding of
    // doubles.
    auto const may_carry = [&](std::size_t r) {
      return static_cast<std::int64_t>(
                 std::ceil(best * (1 - 1e-12) * static_cast<double>(quarters[r]))) -
             1;
    };
    std::function<void(std::size_t, std::int64_t)> const put = [&](std::size_t i,
                                                                   std::int64_t left) {
      if (i == items.size()) {
        double peak = 0;
        for (std::size_t r = 0; r < quarters.size(); ++r) {
          peak = std::max(peak, carried[r] == 0 ? 0.0
                                                : static_cast<double>(carried[r]) /
                                                      static_cast<double>(quarters[r]));
        }
        best = std::min(best, peak);
        return;
      }
      std::int64_t space = 0;
      for (std::size_t r = 0; r < quarters.size(); ++r) {
        std::int64_t const more = may_carry(r) - carried[r];
        if (more < 0) {
          return;
        }
        space += std::min(more, room[r] * items[i]);
      }
      if (space < left) {
        return;
      }
      for (std::size_t r = 0; r < quarters.size(); ++r) {
        bool seen = room[r] == 0;
        for (std::size_t q = 0; q < r && !seen; ++q) {
          seen = quarters[q] == quarters[r] && carried[q] == carried[r] && room[q] == room[r];
        }
        if (!seen && carried[r] + items[i] <= may_carry(r)) {
          --room[r];
          carried[r] += items[i];
          put(i + 1, left - items[i]);
          carried[r] -= items[i];
          ++room[r];
        }
      }
    };
    put(0, total);
  }
  /// Lowers `best` to the cost of the best plan that fills all slots, with up to 5 copies of an
  /// expert.
  void solve_any(double& best) const {
    std::int32_t places = 0;
    for (std::size_t r = 0; r < quarters.size(); ++r) {
      places += quarters[r] > 0 ? offsets[r + 1] - offsets[r] : 0;
    }
    ints counts(loads.size(), 1);
    std::function<void(std::size_t, std::int32_t)> const choose = [&](std::size_t e,
                                                                      std::int32_t left) {
      if (e + 1 == counts.size()) {
        counts[e] = 1 + left;
        if (counts[e] <= 5) {
          solve(counts, best);
        }
        return;
      }
      for (counts[e] = 1; counts[e] <= std::min(left + 1, 5); ++counts[e]) {
        choose(e + 1, left + 1 - counts[e]);
      }
    };
    choose(0, places - static_cast<std::int32_t>(loads.size()));
  }

  struct result {
    double peak;
    double value;  ///< of the certificate, in the units of `peak`
    double bound;
    plimsoll::certificate_status status;
    /// Returns peak / best, where `best` is the lowest peak of all plans for which the certificate
    /// holds, after checks of the certificate.
    [[nodiscard]] double over(double best) const {
      CHECK(value == doctest::Approx(peak).epsilon(1e-9));
      CHECK(bound <= best * (1 + 1e-9));
      if (status == plimsoll::certificate_status::optimal) {
        CHECK(peak <= best * (1 + 1e-9));
      }
      return peak / best;
    }
  };
  [[nodiscard]] result refine(std::int64_t trials) const {
    plimsoll::matrix_ref<std::int32_t const> const load(loads.data(), 1, experts());
    ints map(static_cast<std::size_t>(slots()), -7);
    ints counts = copies;
    plimsoll::matrix_ref<std::int32_t> const map_view(map.data(), 1, slots());
    plimsoll::matrix_ref<std::int32_t> const count_view(counts.data(), 1, experts());
    std::vector<double> speeds;
    std::vector<std::uint8_t> active;
    for (std::int64_t const quarter : quarters) {
      speeds.push_back(quarter == 0 ? 1 : static_cast<double>(quarter) / 4);
      active.push_back(quarter > 0 ? 1 : 0);
    }
    plimsoll::placement_options where{.on = {.ranks = std::ssize(quarters)}};
    where.rank_offsets = {offsets.data(), 1, std::ssize(offsets)};
    where.on.active = active;
    if (has_speeds) {
      where.on.speeds = speeds;
    }
    plimsoll::place(plimsoll::seq, load, count_view, where, map_view);
    auto const got = plimsoll::refine(plimsoll::seq, load, where,
                                      {.tolerance = 0, .max_trials = trials}, map_view, count_view);
    double const scale = static_cast<double>(unit) / 4;
    return {peak_of(map), got[0].value * scale, got[0].lower_bound * scale, got[0].status};
  }
};

/// Statistics of peak / optimum over a family.
struct quality {
  double worst = 1;
  double sum = 0;
  int cases = 0;
  int above = 0;
  std::uint64_t worst_seed = 0;
  void add(std::uint64_t seed, double ratio) {
    if (ratio > worst) {
      worst = ratio;
      worst_seed = seed;
    }
    above += ratio > 1 + 1e-9;
    sum += ratio;
    ++cases;
  }
  void report() const {
    MESSAGE("peak / optimum of " << cases << " instances: mean " << sum / cases << ", worst "
                                 << worst << " (seed " << worst_seed
                                 << "), above the optimum: " << above);
  }
};

}  // namespace plimsoll_test::refinement_quality_support

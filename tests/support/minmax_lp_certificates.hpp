// SPDX-License-Identifier: Apache-2.0
// The smallest possible peak of a layer in exact rational arithmetic, and checks of certificates
// against it.
#pragma once

#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "draws.hpp"
#include "wide_natural.hpp"

namespace plimsoll_test::minmax_lp_certificates_support {

using plimsoll::certificate;
using plimsoll::certificate_status;
using plimsoll::split_objective;

constexpr std::size_t n(index_t i) { return static_cast<std::size_t>(i); }

/// A layer with a slot for every pair of expert and rank in `ranks_of`.
struct split_problem {
  index_t experts;
  index_t ranks;
  std::vector<std::uint32_t> ranks_of;  ///< [experts]: a bit for every rank with a copy
  std::vector<double> loads;            ///< [experts]
  bool whole;                           ///< loads are integers and passed as such
  std::vector<double> base = {};        ///< [ranks] or empty
  std::vector<double> speeds = {};      ///< [ranks] or empty
  std::vector<std::uint8_t> active = {};
  double tolerance = 0;
  split_objective goal = split_objective::min_peak;
  index_t max_iterations = index_t{1} << 20;

  [[nodiscard]] bool lives(index_t r) const { return active.empty() || active[n(r)] != 0; }
  [[nodiscard]] double speed(index_t r) const {
    return !lives(r) ? 0 : speeds.empty() ? 1 : speeds[n(r)];
  }
  [[nodiscard]] double base_of(index_t r) const { return base.empty() ? 0 : base[n(r)]; }
  [[nodiscard]] double fastest() const {
    double result = 0;
    for (index_t r = 0; r < ranks; ++r) {
      result = std::max(result, speed(r));
    }
    return result;
  }
  /// Returns the unit of loads in the library: 2^-52 of the power of two above their total.
  [[nodiscard]] double unit() const {
    double total = 0;
    for (double const load : loads) {
      total += load;
    }
    for (double const load : base) {
      total += load;
    }
    int width = 0;
    std::frexp(total, &width);
    return total > 0 ? std::ldexp(1.0, width - 52) : 1;
  }
};

struct solved_split {
  std::vector<std::vector<double>> share;  ///< [ranks][experts]
  certificate result;
};

inline solved_split solve(split_problem const& p) {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int32_t> const counts(p.loads.size(), 1);
  for (index_t r = 0; r < p.ranks; ++r) {
    for (std::int32_t e = 0; e < p.experts; ++e) {
      if ((p.ranks_of[n(e)] >> r & 1) != 0) {
        map.push_back(e);
      }
    }
    offsets.push_back(static_cast<std::int32_t>(map.size()));
  }
  auto const slots = std::ssize(map);
  plimsoll::minmax_lp lp(plimsoll::seq,
                         {.physical_to_logical = {map.data(), 1, slots},
                          .replica_count = {counts.data(), 1, p.experts},
                          .ranks = p.ranks,
                          .rank_offsets = {offsets.data(), 1, p.ranks + 1}},
                         {.on = {.active = p.active, .speeds = p.speeds},
                          .tolerance = p.tolerance,
                          .max_iterations = p.max_iterations,
                          .objective = p.goal});
  std::vector<double> split(map.size());
  solved_split out{{}, {}};
  plimsoll::matrix_ref<double> const to(split.data(), 1, slots);
  plimsoll::minmax_lp_inputs inputs;
  if (!p.base.empty()) {
    inputs.base_load = plimsoll::matrix_ref<double const>(p.base.data(), 1, p.ranks);
  }
  if (p.whole) {
    std::vector<std::int64_t> const loads(p.loads.begin(), p.loads.end());
    lp.solve(plimsoll::matrix_ref<std::int64_t const>(loads.data(), 1, p.experts), inputs, to);
  } else {
    lp.solve(plimsoll::matrix_ref<double const>(p.loads.data(), 1, p.experts), inputs, to);
  }
  out.result = lp.certificates()[0];
  for (index_t r = 0; r < p.ranks; ++r) {
    out.share.emplace_back(n(p.experts), 0.0);
    for (index_t slot = offsets[n(r)]; slot < offsets[n(r) + 1]; ++slot) {
      out.share.back()[n(map[n(slot)])] = split[n(slot)];
    }
  }
  return out;
}

// Scales of loads, speeds and their quotients as natural numbers: load = level * speed.
constexpr int level_bits = 240;

constexpr int speed_bits = 200;

inline wide_natural exact_load(double load) { return {load, level_bits + speed_bits}; }

inline wide_natural exact_speed(double speed) { return {speed, speed_bits}; }

inline wide_natural exact_level(double level) { return {level, level_bits}; }

/// The smallest peak of all splits, as a quotient: the highest level of a set of ranks with the
/// load that only they can take.
struct exact_peak {
  wide_natural load;
  wide_natural speed;
};

inline exact_peak smallest_peak(split_problem const& p) {
  exact_peak best{exact_load(0), exact_speed(1)};
  std::uint32_t live = 0;
  for (index_t r = 0; r < p.ranks; ++r) {
    live |= p.lives(r) ? 1u << r : 0;
  }
  for (std::uint32_t set = live; set != 0; set = (set - 1) & live) {
    exact_peak one{exact_load(0), exact_speed(0)};
    for (index_t r = 0; r < p.ranks; ++r) {
      if ((set >> r & 1) != 0) {
        one.load = one.load + exact_load(p.base_of(r));
        one.speed = one.speed + exact_speed(p.speed(r));
      }
    }
    for (index_t e = 0; e < p.experts; ++e) {
      if ((p.ranks_of[n(e)] & live & ~set) == 0) {
        one.load = one.load + exact_load(p.loads[n(e)]);
      }
    }
    if (best.load * one.speed < one.load * best.speed) {
      best = one;
    }
  }
  return best;
}

/// Returns a bound on the load of a rank that rounding to units leaves out: less than one unit for
/// each expert and for the base load.
inline double rounded_off(split_problem const& p) {
  return p.whole && p.base.empty() ? 0 : static_cast<double>(p.experts + 1) * p.unit();
}

inline std::vector<double> random_speeds(draws& random, index_t ranks) {
  std::vector<double> speeds;
  if (random.one_in(3)) {
    return speeds;
  }
  auto const kind = random.among(0, 3);
  double const scale = random.any({1.0, 1.0, 3.0, 0.1, 0x1p-47, 0x1.8p62});
  for (index_t r = 0; r < ranks; ++r) {
    double speed = 1;
    if (kind == 0) {
      speed = 0x1p-16 + (1 - 0x1p-16) * random.unit();
    } else if (kind == 1) {
      speed = std::ldexp(1 + random.unit(), random.among(-16, -1));
    } else if (kind == 2) {
      speed = random.any({1.0, 0.5, 0x1p-16, 0x1.66666p-16, 0x1.8p-16, 0.3});
    }
    speeds.push_back(speed * scale);
  }
  return speeds;
}

inline split_problem random_problem(std::uint64_t seed) {
  draws random(seed);
  split_problem p{};
  p.experts = random.among(1, 8);
  p.ranks = random.one_in(8) ? random.among(8, 10) : random.among(1, 6);
  p.speeds = random_speeds(random, p.ranks);
  if (!p.speeds.empty()) {
    // Values that rounding puts just below the range are clamped.
    double const fastest = *std::max_element(p.speeds.begin(), p.speeds.end());
    for (double& speed : p.speeds) {
      speed = std::max(speed, fastest * 0x1p-16);
    }
  }
  if (p.ranks > 1 && random.one_in(4)) {
    p.active.assign(n(p.ranks), 1);
    p.active[n(random.among(0, p.ranks - 1))] = 0;
  }
  p.whole = random.one_in(2);
  auto const kind = random.among(0, 3);
  double const scale = random.any({1.0, 0x1p-60, 0x1p20, 1e-5});
  for (index_t e = 0; e < p.experts; ++e) {
    double load = random.among(0, 20);
    if (kind == 1) {
      load = static_cast<double>(random.bits() >> 24);
    } else if (kind == 2) {
      load = random.one_in(3) ? 0 : 1 << random.among(0, 20);
    } else if (kind == 3) {
      load = random.among(1, 1000) / (random.one_in(5) ? 1 : 100);
    }
    p.loads.push_back(p.whole ? std::floor(load)
                              : (load + random.unit()) * std::min(scale, kind == 1 ? 1 : scale));
    std::uint32_t ranks_of = 0;
    std::uint32_t live = 0;
    for (index_t r = 0; r < p.ranks; ++r) {
      ranks_of |= random.one_in(random.any({2, 3, 5})) ? 1u << r : 0;
      live |= p.lives(r) ? 1u << r : 0;
    }
    if ((ranks_of & live) == 0) {
      ranks_of |= live;
    }
    p.ranks_of.push_back(ranks_of);
  }
  if (random.one_in(3)) {
    for (index_t r = 0; r < p.ranks; ++r) {
      double const base = random.among(0, 20);
      p.base.push_back(!p.lives(r) ? 0 : p.whole ? base : base * random.unit() * scale);
    }
  }
  p.tolerance = random.any({0.0, 0.0, 1e-6, 1e-3});
  p.goal = random.one_in(3) ? split_objective::lexicographic : split_objective::min_peak;
  p.max_iterations = random.one_in(2) ? random.among(1, 9) : index_t{1} << 20;
  return p;
}

}  // namespace plimsoll_test::minmax_lp_certificates_support

// SPDX-License-Identifier: Apache-2.0
// Certificates of planning calls against an exhaustive search for the best plan, in exact
// arithmetic. Loads are multiples of 2^-20 and experts have at most 5 replicas, so that weights are
// whole multiples of 2^-20 / 60.
#include <doctest/doctest.h>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "support/certificates.hpp"
#include "support/draws.hpp"
#include "support/instances.hpp"

namespace plimsoll_test {

using namespace certificates_support;

TEST_CASE("certificates: those of place and refine hold for the loads as given") {
  std::int64_t proven = 0;
  for (std::int64_t seed = 0; seed < instances(3000); ++seed) {
    CAPTURE(seed);
    certified_case const c(static_cast<std::uint64_t>(seed));
    if (!c.is_legal) {
      continue;
    }
    plimsoll::matrix_ref<double const> const loads(c.loads.data(), 1, c.experts());
    ints map(static_cast<std::size_t>(c.slots), -7);
    ints counts = c.copies;
    plimsoll::matrix_ref<std::int32_t> const map_view(map.data(), 1, c.slots);
    plimsoll::matrix_ref<std::int32_t> const count_view(counts.data(), 1, c.experts());
    fraction const best = c.best(c.copies);
    auto const placed = plimsoll::place(plimsoll::seq, loads, count_view, c.options(), map_view);
    check_certificate(c, placed[0], c.peak_of(map), best);
    auto const packed = plimsoll::refine(plimsoll::seq, loads, c.options(),
                                         {.tolerance = 0, .max_trials = 0}, map_view, count_view);
    check_certificate(c, packed[0], c.peak_of(map), best);
    if (seed % 4 == 0) {
      auto const joint = plimsoll::refine(plimsoll::seq, loads, c.options(),
                                          {.tolerance = 0, .max_trials = 32}, map_view, count_view);
      if (*std::max_element(counts.begin(), counts.end()) <= 5) {
        std::int64_t const filled = c.slots - std::count(map.begin(), map.end(), -1);
        std::int64_t places = 0;
        for (std::int32_t const n : c.room) {
          places += n;
        }
        bool const may_choose = places > c.experts();
        check_certificate(c, joint[0], c.peak_of(map),
                          may_choose && filled > 0 ? c.best_of_any() : c.best(counts));
      }
    }
    proven += packed[0].status == certificate_status::optimal;
  }
  CHECK(proven > 0);
}

TEST_CASE("certificates: the value of a plan far from its bound is not too low") {
  // Halves are below the fixed-point unit, which has 47 bits for the total.
  std::vector<double> loads{3, 3, 2, 2, 2};
  for (double& load : loads) {
    load = load * 0x1p43 + 0.5;
  }
  ints const counts(loads.size(), 1);
  ints map(6);
  auto const placed =
      plimsoll::place(plimsoll::seq, plimsoll::matrix_ref<double const>(loads.data(), 1, 5),
                      plimsoll::matrix_ref<std::int32_t const>(counts.data(), 1, 5),
                      {.on = {.ranks = 2}}, plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 6));
  CHECK(placed[0].lower_bound <= 6 * 0x1p43 + 1.5);
  CHECK(placed[0].value >= 7 * 0x1p43 + 1.5);
  CHECK(placed[0].value <= 7 * 0x1p43 + 3);
}

TEST_CASE("certificates: those of replicate hold for the loads as given") {
  for (std::int64_t seed = 0; seed < instances(3000); ++seed) {
    CAPTURE(seed);
    certified_case const c(static_cast<std::uint64_t>(seed));
    ints counts(c.loads.size());
    auto const got = plimsoll::replicate(
        plimsoll::seq, plimsoll::matrix_ref<double const>(c.loads.data(), 1, c.experts()), c.slots,
        {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, c.experts()));
    auto const heaviest = [&](ints const& of) {
      fraction result{0, 1 << 16};
      for (std::size_t e = 0; e < of.size(); ++e) {
        result.load = std::max(result.load, c.weight(e, of[e]));
      }
      return result;
    };
    if (*std::max_element(counts.begin(), counts.end()) > 5) {
      continue;
    }
    fraction best = heaviest(counts);
    ints other(counts.size(), 1);
    std::function<void(std::size_t, std::int64_t)> const choose = [&](std::size_t e,
                                                                      std::int64_t left) {
      if (e == other.size()) {
        best = std::min(best, heaviest(other));
        return;
      }
      for (other[e] = 1; other[e] <= std::min<std::int64_t>(left + 1, 5); ++other[e]) {
        choose(e + 1, left + 1 - other[e]);
      }
      other[e] = 1;
    };
    choose(0, c.slots - c.experts());
    certified_case even = c;
    even.speeds.assign(even.speeds.size(), 1.0);
    check_certificate(even, got[0], heaviest(counts), best);
  }
}

TEST_CASE("certificates: replicate, if two loads differ by less than a unit of fixed point") {
  // The replica goes to the lighter expert. The best peak is half a token below the value.
  reals const loads{0x1p45, 0x1p45 + 0.5};
  ints counts(2);
  auto const got =
      plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<double const>(loads.data(), 1, 2), 3,
                          {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 2))[0];
  CHECK(counts == ints{2, 1});
  CHECK(got.status == certificate_status::feasible);
  CHECK(got.lower_bound <= 0x1p45);
  CHECK(got.value >= 0x1p45 + 0.5);
}

/// Latency of a rank: a power of two per token, plus a constant for each rank.
struct steep_cost {
  int per_token[3];
  double idle[3];
  double operator()(plimsoll::index_t rank, double tokens) const {
    return idle[rank] + std::ldexp(tokens, per_token[rank]);
  }
};

TEST_CASE("certificates: those of swap_search hold under costs of any steepness") {
  for (std::int64_t seed = 0; seed < instances(1500); ++seed) {
    CAPTURE(seed);
    draws draw(static_cast<std::uint64_t>(seed) + 77);
    std::int64_t const steps = draw.among(1, 3);
    std::int64_t const experts = draw.among(1, 6);
    std::int64_t const ranks = draw.among(1, 3);
    std::int64_t const slots = experts + draw.among(0, 6);
    ints loads;
    for (std::int64_t i = 0; i < steps * experts; ++i) {
      loads.push_back(draw.among(0, 200));
    }
    steep_cost cost{};
    for (int r = 0; r < 3; ++r) {
      cost.per_token[r] = draw.any({0, 0, 0, 1, 10, 30, 45, 60});
      cost.idle[r] = draw.any({0.0, 0.0, 3.0, 0x1p40});
    }
    auto const room = [&](std::int64_t r) { return (r + 1) * slots / ranks - r * slots / ranks; };
    auto const score = [&](ints const& rank_of) {
      int128 sum = 0;
      for (std::int64_t t = 0; t < steps; ++t) {
        std::int64_t tokens[3] = {};
        for (std::size_t e = 0; e < rank_of.size(); ++e) {
          tokens[rank_of[e]] += loads[static_cast<std::size_t>(t * experts) + e];
        }
        int128 longest = 0;
        for (std::int64_t r = 0; r < ranks; ++r) {
          if (room(r) > 0) {
            longest = std::max(longest, static_cast<int128>(cost.idle[r]) +
                                            (static_cast<int128>(tokens[r]) << cost.per_token[r]));
          }
        }
        sum += longest;
      }
      return sum;
    };
    ints rank_of(static_cast<std::size_t>(experts), 0);
    int128 best = -1;
    std::int64_t total = 1;
    for (std::int64_t e = 0; e < experts; ++e) {
      total *= ranks;
    }
    for (std::int64_t code = 0; code < total; ++code) {
      std::int64_t held[3] = {};
      std::int64_t rest = code;
      for (std::int32_t& r : rank_of) {
        r = static_cast<std::int32_t>(rest % ranks);
        rest /= ranks;
        ++held[r];
      }
      bool fits = true;
      for (std::int64_t r = 0; r < ranks; ++r) {
        fits = fits && held[r] <= room(r);
      }
      int128 const here = fits ? score(rank_of) : -1;
      best = fits && (best < 0 || here < best) ? here : best;
    }
    ints map(static_cast<std::size_t>(slots));
    auto const got = plimsoll::swap_search(
        plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, 1, experts),
        cost, {.on = {.ranks = ranks}, .restarts = 3, .min_gain = 0},
        plimsoll::matrix_ref<std::int32_t>(map.data(), 1, slots))[0];
    for (std::int64_t r = 0; r < ranks; ++r) {
      for (std::int64_t s = r * slots / ranks; s < (r + 1) * slots / ranks; ++s) {
        if (map[static_cast<std::size_t>(s)] >= 0) {
          rank_of[static_cast<std::size_t>(map[static_cast<std::size_t>(s)])] =
              static_cast<std::int32_t>(r);
        }
      }
    }
    int128 const real = score(rank_of);
    CHECK(scaled(got.lower_bound, 1, true) <= best);
    CHECK(scaled(got.value * (1 + 0x1p-50), 1, true) >= real);
    if (got.status == certificate_status::optimal) {
      CHECK(real - best <= best >> 50);  // costs are rounded to double
    }
  }
}

TEST_CASE("certificates: bounds hold if one rank is far slower than the others") {
  // The latencies of the other ranks are negligible next to the slow rank's; the optimum is 93.
  ints const loads{70, 50, 30, 20, 11, 5};
  ints map(9);
  auto const cost = [](plimsoll::index_t rank, double tokens) {
    return rank == 2 ? tokens * 0x1p60 : tokens;
  };
  auto const got = plimsoll::swap_search(
      plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 6), cost,
      {.on = {.ranks = 3}, .min_gain = 0}, plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 9))[0];
  CHECK(got.lower_bound > 0);
  CHECK(got.lower_bound <= 93);
  CHECK(got.value >= 93);
  CHECK(got.value <= 95);
}

}  // namespace plimsoll_test

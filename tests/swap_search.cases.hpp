// SPDX-License-Identifier: Apache-2.0
// Tests of swap_search under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/swap_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/owned.hpp"
#include "support/policies.hpp"
#include "support/print.hpp"
#include "support/refusal.hpp"
#include "support/search_case.hpp"
#include "support/swap_search.hpp"

namespace plimsoll_test {

using namespace swap_search_support;

PLIMSOLL_TEST_CASE("swap_search: experts that are busy in the same steps, by hand", P,
                   PLIMSOLL_POLICIES) {
  // Experts 0 and 1 are busy in step 0, experts 2 and 3 in step 1. Of 105 tokens a step, one rank
  // gets at least 53; with an expert of either pair on each rank, it gets 55.
  search_case c{.steps = 2, .layers = 1, .experts = 4, .slots = 4};
  c.loads = {50, 40, 10, 5, 5, 10, 40, 50};
  c.options = {.on = {.ranks = 2}};
  array_in<float, P> const loads(std::vector<float>(c.loads.begin(), c.loads.end()));
  search_outcome const got = search_of<P>(c, loads.view3(2, 1, 4), plimsoll::token_cost{});
  CHECK(got.certificates[0].value == 110);
  CHECK(got.certificates[0].lower_bound == doctest::Approx(106));
  auto const zero = std::find(got.map.begin(), got.map.end(), 0) - got.map.begin();
  CHECK(got.map[static_cast<std::size_t>(zero ^ 1)] == 3);  // on the same rank
}

inline void check_definition(search_fn search) {
  ints maps;
  for (std::size_t i = 0; i < known_searches().size(); ++i) {
    CAPTURE(i);
    search_outcome const got = search(known_searches()[i].c);
    known_searches()[i].check(got);
    if (i < 60) {
      maps.insert(maps.end(), got.map.begin(), got.map.end());
    }
  }
  report_hash("swap_search.random", maps);
}

PLIMSOLL_TEST_CASE("swap_search: equals a search that evaluates every swap", P, PLIMSOLL_POLICIES) {
  check_definition(searched<P>);
}

PLIMSOLL_TEST_CASE("swap_search: an int64 map and a returned placement equal the int32 map", P,
                   PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    search_case const c = random_search(seed, 5, 9);
    search_outcome const expected = searched<P>(c);
    CHECK(searched<P, float, std::int64_t>(c) == expected);
    if constexpr (can_be_kept<P>) {
      array_in<float, P> const loads(std::vector<float>(c.loads.begin(), c.loads.end()));
      search_options_in<P> const options(c);
      auto const made = plimsoll::swap_search(
          make_policy<P>(), loads.view3(c.steps, c.layers, c.experts), c.cost, c.slots, *options);
      CHECK(made.physical_to_logical.to_host() == expected.map);
      CHECK(made.replica_count.to_host() == c.all_copies());
      CHECK(made.rank_offsets.to_host() == c.offsets);
      CHECK(made.ranks == c.ranks());
      CHECK(same(made.certificates, expected.certificates));
    }
  }
}

inline void check_bounds(search_fn search) {
  double excess = 0;
  double sum_of_bounds = 0;
  double sum_of_optima = 0;
  int found = 0;
  int tight = 0;
  int layers = 0;
  for (std::uint64_t seed = 1000; seed < 1000 + cases_of(160); ++seed) {
    CAPTURE(seed);
    search_case c = random_search(seed, 3, 4);
    c.options.restarts = 4;
    c.options.max_swaps = 1000;
    index_t copies = 0;
    for (std::int32_t const count : c.all_copies()) {
      copies += count;
    }
    if (copies > 7 * c.layers) {
      c.counts.clear();
    }
    search_outcome const got = search(c);
    check_searched(c, got);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      slow_search slow(c, layer);
      auto const optimum = static_cast<double>(slow.optimum());
      plimsoll::certificate const& result = got.certificates[static_cast<std::size_t>(layer)];
      CHECK(result.value >= optimum);
      CHECK(result.lower_bound <= optimum);
      // The bisection finds the time to one part in 2^13, the tokens of each rank to one in 2^16.
      CHECK(result.lower_bound <= static_cast<double>(slow.bound(1)));
      CHECK(result.lower_bound >= static_cast<double>(slow.bound(1 - 0x1p-16 * 3)) * (1 - 0x1p-13));
      excess = std::max(excess, optimum > 0 ? result.value / optimum : 1);
      sum_of_bounds += result.lower_bound;
      sum_of_optima += optimum;
      found += result.value == optimum;
      tight += result.lower_bound == optimum;
      ++layers;
    }
  }
  MESSAGE("optimal in " << found << " of " << layers << " layers, worst " << excess
                        << " x; bound is tight in " << tight << ", mean "
                        << sum_of_bounds / sum_of_optima);
  CHECK(found * 10 > layers * 8);
  CHECK(tight * 10 > layers);
  CHECK(sum_of_bounds > 0.7 * sum_of_optima);
}

PLIMSOLL_TEST_CASE("swap_search: the optimum of small shapes lies between bound and score", P,
                   PLIMSOLL_POLICIES) {
  check_bounds(searched<P>);
}

/// Skewed whole loads of several layers, large enough for several swaps.
inline search_case wide_search(std::uint64_t seed) {
  generator random(seed);
  search_case c{.steps = 6, .layers = 3, .experts = 20, .slots = 24};
  c.options.on.ranks = 5;
  c.options.restarts = 6;
  for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
    double const u = random.unit();
    c.loads.push_back(std::floor(20 / (0.05 + u * u)));
  }
  c.cost.tile = 8;
  for (index_t r = 0; r < stairs::kinds; ++r) {
    c.cost.of_tile[r] = static_cast<double>(20 + r);
    c.cost.of_token[r] = static_cast<double>(r % 2);
  }
  return c;
}

inline void check_restarts(search_fn search) {
  search_case const c = wide_search(1);
  search_outcome const all = search(c);
  check_searched(c, all);
  CHECK(search(c) == all);
  report_hash("swap_search.restarts", all.map, all.scores);
  auto const with = [&](auto change) {
    search_case other = c;
    change(other);
    search_outcome got = search(other);
    check_searched(other, got);
    return got;
  };

  // The result of a restart does not depend on the number of restarts or on other restarts.
  search_outcome const one = with([](search_case& o) { o.options.restarts = 1; });
  search_outcome const none = with([](search_case& o) { o.options.max_swaps = 0; });
  for (index_t layer = 0; layer < c.layers; ++layer) {
    auto const first = static_cast<std::size_t>(layer * c.options.restarts);
    CHECK(one.scores[static_cast<std::size_t>(layer)] == all.scores[first]);
    CHECK(all.certificates[static_cast<std::size_t>(layer)].work > 0);
    CHECK(none.certificates[static_cast<std::size_t>(layer)].work == 0);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(c.options.restarts); ++i) {
      CHECK(all.scores[i] <= none.scores[i]);  // never worse than the start
    }
  }
  CHECK(all.scores != none.scores);

  // The seed changes all starts but the first; without noise all starts equal the first.
  search_outcome const seeded = with([](search_case& o) { o.options.seed = 77; });
  search_outcome const quiet = with([](search_case& o) { o.options.noise = 0; });
  int moved = 0;
  for (std::size_t i = 0; i < all.scores.size(); ++i) {
    bool const is_first = i % 6 == 0;
    moved += seeded.scores[i] != all.scores[i];
    CHECK((!is_first || seeded.scores[i] == all.scores[i]));
    CHECK(quiet.scores[i] == all.scores[i / 6 * 6]);
  }
  CHECK(moved > 5);
  bool differ = false;
  for (std::size_t i = 1; i < 6; ++i) {
    differ = differ || all.scores[i] != all.scores[0];
  }
  CHECK(differ);

  // The first start does not depend on the layer's number.
  search_outcome const turned = with([](search_case& o) {
    o.options.restarts = 1;
    index_t const width = o.layers * o.experts;
    for (index_t t = 0; t < o.steps; ++t) {
      auto const row = o.loads.begin() + t * width;
      std::rotate(row, row + o.experts, row + width);
    }
  });
  ints expected = one.map;
  std::rotate(expected.begin(), expected.begin() + c.slots, expected.end());
  CHECK(turned.map == expected);
  CHECK(turned.certificates[0].value == one.certificates[1].value);
  CHECK(turned.certificates[2].lower_bound == one.certificates[0].lower_bound);
  CHECK(turned.certificates[1].work == one.certificates[2].work);
}

PLIMSOLL_TEST_CASE("swap_search: restarts and seeds", P, PLIMSOLL_POLICIES) {
  check_restarts(searched<P>);
}

inline void check_when_it_stops(search_fn search) {
  int gained = 0;   // cases that gain from swaps below 5 %
  int way_out = 0;  // cases that gain from plateau moves
  int of_tail = 0;  // cases that gain from the quantile as the objective
  for (std::uint64_t seed = 66; seed < 66 + cases_of(20); ++seed) {
    CAPTURE(seed);
    search_case c = wide_search(seed);
    c.layers = 1;
    if (seed % 2 == 0) {  // one step, where several ranks may tie for the largest load
      c.steps = 1;
      c.experts = c.slots = 15;
      c.cost = {.tile = 1};
      for (double& load : c.loads) {
        load = 20 + std::fmod(load, 30);
      }
    }
    c.options.restarts = 1;
    c.options.min_gain = 0;
    search_outcome const full = search(c);
    double last = std::numeric_limits<double>::infinity();
    for (std::int64_t most = 0; most <= full.certificates[0].work + 1; ++most) {
      c.options.max_swaps = most;
      search_outcome const got = search(c);
      CHECK(got.certificates[0].work == std::min(most, full.certificates[0].work));
      CHECK((got.certificates[0].value < last || most > full.certificates[0].work));
      last = got.certificates[0].value;
    }
    CHECK(last == full.certificates[0].value);
    c.options.max_swaps = 1000;

    c.options.min_gain = 0.05;
    search_outcome const early = search(c);
    CHECK(early.certificates[0].value >= last);
    CHECK(early.certificates[0].work <= full.certificates[0].work);
    gained += early.certificates[0].value > last;

    c.options.min_gain = 1e-9;  // does not apply to plateau moves
    c.options.max_plateau_moves = 8;
    search_outcome const level = search(c);
    check_searched(c, level);
    CHECK(level.certificates[0].value <= last);
    CHECK(level.certificates[0].work >= full.certificates[0].work);
    way_out += level.certificates[0].value < last;

    c.options.max_plateau_moves = 0;
    c.options.objective = latency_objective::quantile;
    c.options.quantile = 0.8;  // the second longest of six steps
    search_outcome const tail = search(c);
    check_searched(c, tail);
    search_case judge = c;
    of_tail += tail.certificates[0].value < replayed_scores(judge, full.map)[0];
  }
  CHECK(gained > static_cast<int>(cases_of(4)));
  CHECK(way_out > 0);
  CHECK(of_tail >= static_cast<int>(cases_of(4)));
}

PLIMSOLL_TEST_CASE("swap_search: stopping criteria", P, PLIMSOLL_POLICIES) {
  check_when_it_stops(searched<P>);
}

/// Number of pairs of copies of an expert on one rank.
inline int copies_together(search_case const& c, ints const& map) {
  int pairs = 0;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    std::int32_t const* const slots = map.data() + layer * c.slots;
    for (index_t r = 0; r < c.ranks(); ++r) {
      for (index_t i = c.offset(layer, r); i < c.offset(layer, r + 1); ++i) {
        for (index_t j = c.offset(layer, r); j < i; ++j) {
          pairs += slots[i] >= 0 && slots[i] == slots[j] ? 1 : 0;
        }
      }
    }
  }
  return pairs;
}

inline void check_perturbed(search_fn search) {
  fnv1a all;
  int better = 0;
  int still_optimal = 0;
  std::uint64_t const cases = std::max<std::uint64_t>(cases_of(120), 30);  // few are improved
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    search_case c = random_search(seed, 5, 9);
    c.options.max_plateau_moves = 0;
    search_outcome const plain = search(c);
    c.options.max_perturbations = 6;
    search_outcome const got = search(c);
    check_searched(c, got);
    CHECK(copies_together(c, got.map) <= copies_together(c, plain.map));
    bool is_same = true;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      auto const& before = plain.certificates[static_cast<std::size_t>(layer)];
      auto const& after = got.certificates[static_cast<std::size_t>(layer)];
      CHECK(after.value <= before.value);
      CHECK(after.lower_bound == before.lower_bound);
      CHECK(after.work >= before.work);
      CHECK(after.work <= c.options.restarts * c.options.max_swaps);
      better += after.value < before.value;
      is_same = is_same && before.status == certificate_status::optimal;
    }
    if (is_same) {  // all layers are optimal already: nothing is tried
      CHECK(got == plain);
      ++still_optimal;
    }
    all.add(got.map);
    all.add(got.scores);
  }
  CHECK(better > static_cast<int>(cases_of(10)));
  CHECK(still_optimal > static_cast<int>(cases_of(10)));
  report_hash("swap_search.perturbed", all.value());

  // Layers of more than 64 slots are not perturbed.
  search_case wide = wide_search(3);
  wide.layers = 1;
  wide.steps = 2;
  wide.experts = 60;
  wide.options.restarts = 2;
  wide.loads = reals(120);
  for (std::size_t i = 0; i < wide.loads.size(); ++i) {
    wide.loads[i] = static_cast<double>(mix(i) % 700);
  }
  for (index_t const slots : {64, 65}) {
    CAPTURE(slots);
    wide.slots = slots;
    wide.options.max_perturbations = 0;
    search_outcome const plain = search(wide);
    wide.options.max_perturbations = 2;
    CHECK((search(wide) == plain) == (slots == 65));
  }
}

PLIMSOLL_TEST_CASE("swap_search: perturbations never make a plan worse", P, PLIMSOLL_POLICIES) {
  check_perturbed(searched<P>);
}

inline void check_units(search_fn search) {
  for (std::uint64_t seed = 100; seed < 100 + cases_of(24); ++seed) {
    CAPTURE(seed);
    search_case const c = random_search(seed, 5, 9);
    search_outcome const expected = search(c);
    auto const check_same = [&](search_case const& other, double unit) {
      search_outcome const got = search(other);
      CHECK(got.map == expected.map);
      for (std::size_t i = 0; i < expected.scores.size(); ++i) {
        CHECK(got.scores[i] == expected.scores[i] * unit);
      }
      for (std::size_t i = 0; i < expected.certificates.size(); ++i) {
        CHECK(got.certificates[i].value == expected.certificates[i].value * unit);
        CHECK(got.certificates[i].work == expected.certificates[i].work);
        CHECK(got.certificates[i].lower_bound <= got.certificates[i].value);
      }
    };
    // Millions of tokens, and eighths of tokens, are not tabulated.
    for (double const tokens_per_load : {0x1p-20, 8.0}) {
      search_case other = c;
      other.cost.tokens_per_load = tokens_per_load;
      for (double& load : other.loads) {
        load /= tokens_per_load;
      }
      check_same(other, 1);
    }
    for (double const unit : {0x1p-300, 0x1p-40, 0x1p40, 0x1p300}) {
      search_case other = c;
      other.cost.unit = unit;
      check_same(other, unit);
    }
    for (double const unit : {1e-12, 1e12}) {
      search_case other = c;
      other.cost.unit = unit;
      check_searched(other, search(other));
    }
  }
  // Ranks too different for a common unit: the value counts the slow rank, to 2^-50 of its time.
  search_case c{.steps = 2, .experts = 4, .slots = 4, .loads = {5, 6, 7, 8, 1, 2, 3, 4}};
  c.options.on.ranks = 2;
  c.options.min_gain = 0;
  c.cost = {.tile = 1, .of_tile = {1e-12, 1e12}};
  search_outcome const got = search(c);
  CHECK(got.certificates[0].value == doctest::Approx(14e12).epsilon(1e-12));
  CHECK(got.map == ints{3, 2, 1, 0});
}

PLIMSOLL_TEST_CASE("swap_search: any number of tokens, any unit of time", P, PLIMSOLL_POLICIES) {
  check_units(searched<P>);
}

inline void check_search_edges(search_fn search) {
  auto const one = [&](search_case const& c) {
    search_outcome const got = search(c);
    check_searched(c, got);
    return got;
  };
  {
    search_outcome const got = search({.layers = 0, .experts = 3, .slots = 3});
    CHECK(got.certificates.empty());
  }
  {  // The fast rank takes the only expert.
    search_case c{.steps = 2, .slots = 2, .loads = {32, 64}};
    c.options.on.ranks = 2;
    c.cost.of_tile[0] = 3;
    search_outcome const got = one(c);
    CHECK(got.map == ints{-1, 0});
    CHECK(got.certificates[0].value == 6);
    CHECK(got.certificates[0].status == certificate_status::optimal);
    CHECK(got.certificates[0].work == 0);
  }
  {
    search_case c{.steps = 2, .experts = 3, .slots = 4, .loads = {16, 32, 16, 0, 0, 16}};
    search_outcome const got = one(c);
    CHECK(got.map == ints{1, 2, 0, -1});
    CHECK(got.certificates[0].value == 5);
  }
  {  // Without tokens, idle ranks still take time.
    search_case c{.steps = 3, .layers = 2, .experts = 3, .slots = 5, .loads = reals(18, 0.0)};
    c.options.on.ranks = 2;
    search_outcome const idle = one(c);
    CHECK(idle.certificates[1].value == 0);
    CHECK(idle.certificates[1].lower_bound == 0);
    CHECK(idle.certificates[1].status == certificate_status::optimal);
    CHECK(idle.map == ints{0, 1, 2, -1, -1, 0, 1, 2, -1, -1});
    c.cost.idle[1] = 7;
    search_outcome const busy = one(c);
    CHECK(busy.certificates[0].value == 21);
    CHECK(busy.certificates[0].status == certificate_status::optimal);
    // A dead rank takes no time, not even idle time.
    c.active = {1, 0};
    c.slots = 6;
    search_outcome const dead = search(c);
    CHECK(dead.certificates[0].value == 0);
    CHECK(dead.map == ints{0, 1, 2, -1, -1, -1, 0, 1, 2, -1, -1, -1});
  }
  {  // Copies share the load and go to different ranks if possible; a slot of no rank stays empty.
    search_case c{.experts = 2, .slots = 6, .loads = {96, 16}};
    c.options.on.ranks = 2;
    c.counts = {3, 1};
    c.offsets = {0, 4, 5};
    search_outcome const got = one(c);
    CHECK(std::count(got.map.begin(), got.map.end(), 0) == 3);
    CHECK(got.map[4] == 0);
    CHECK(got.map[5] == -1);
    CHECK(got.certificates[0].value == 5);
  }
  {  // 4 + 3 + 2 against 4 + 3; one swap gives 4 + 4 against 3 + 3 + 2.
    search_case c{.experts = 5, .slots = 6, .loads = {64, 64, 48, 48, 32}};
    c.options.on.ranks = 2;
    c.options.restarts = 1;
    search_outcome const got = one(c);
    CHECK(got.map == ints{3, 2, 4, 1, 0, -1});
    CHECK(got.certificates[0].value == 8);
    CHECK(got.certificates[0].work == 1);
  }
  {  // More steps and ranks than fit into shared memory.
    generator random(5);
    search_case c{.steps = 80, .layers = 2, .experts = 130, .slots = 140};
    c.options.on.ranks = 48;
    c.options.restarts = 2;
    c.cost = wide_search(0).cost;
    for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
      double const u = random.unit();
      c.loads.push_back(std::floor(20 / (0.05 + u * u)));
    }
    search_outcome const got = one(c);
    CHECK(got.certificates[0].work > 0);
    report_hash("swap_search.large", got.map, got.scores);
  }
}

PLIMSOLL_TEST_CASE("swap_search: edges", P, PLIMSOLL_POLICIES) { check_search_edges(searched<P>); }

inline void check_bad_values(search_fn search) {
  // There are no tokens in step 0 and in layer 0.
  search_case plain{.steps = 2, .layers = 2, .experts = 3, .slots = 4, .loads = reals(12, 0.0)};
  plain.options.on.ranks = 2;
  std::fill(plain.loads.begin() + 9, plain.loads.end(), 16.0);
  auto const check = [&](auto change, std::string const& expected) {
    search_case c = plain;
    change(c);
    check_message(refusal_of([&] { search(c); }), expected);
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  check([](search_case&) {}, "no error");

  std::string const load = "swap_search: loads: expected values from 0 to below 2^47, got ";
  check([](search_case& c) { c.loads[10] = -1; }, load + "-1 in layer 1, expert 1, step 1");
  check([](search_case& c) { c.loads[2] = -3; }, load + "-3 in layer 0, expert 2, step 0");
  check([](search_case& c) { c.loads[6] = nan; }, load + "NaN in layer 0, expert 0, step 1");
  check([](search_case& c) { c.loads[5] = 0x1p47; },
        load + "140737488355328 in layer 1, expert 2, step 0");
  check(
      [](search_case& c) { c.loads[3] = c.loads[10] = 0x1p46; },
      "swap_search: loads: expected a total below 2^47 per layer, got 140737488355360 in layer 1");

  std::string const cost =
      "swap_search: cost: expected numbers from 0 to below 2^960 that do not fall as tokens rise, "
      "got ";
  check([](search_case& c) { c.cost.of_tile[1] = -2; }, cost + "-6 in layer 1, rank 1, step 1");
  check(
      [](search_case& c) {
        c.cost.idle[0] = 5;
        c.cost.of_token[0] = -0.0625;
      },
      // 5 + 3 tiles - 48 tokens / 16 is not less than 5.
      "no error");
  check(
      [](search_case& c) {
        c.cost.idle[0] = 50;
        c.cost.of_token[0] = -0.5;
      },
      cost + "29 in layer 1, rank 0, step 1");
  check([](search_case& c) { c.cost.idle[1] = -1; }, cost + "-1 in layer 0, rank 1, step 0");
  check([](search_case& c) { c.cost.idle[0] = nan; }, cost + "NaN in layer 0, rank 0, step 0");
  check([](search_case& c) { c.cost.unit = nan; }, cost + "NaN in layer 0, rank 0, step 0");
  check([](search_case& c) { c.cost.idle[0] = infinity; }, cost + "inf in layer 0, rank 0, step 0");
  check([](search_case& c) { c.cost.of_tile[0] = 0x1p960; },
        cost + "2.9235942034199997e+289 in layer 1, rank 0, step 1");
  // The cost of dead ranks is not checked.
  check(
      [](search_case& c) {
        c.cost.idle[1] = nan;
        c.active = {1, 0};
        c.slots = 6;
      },
      "no error");

  std::string const copies =
      "swap_search: replica_count: expected 1 to 32767 copies of every expert on live ranks, got ";
  check([](search_case& c) { c.counts = {1, 1, 1, 1, 0, 1}; }, copies + "0 in layer 1, expert 1");
  check([](search_case& c) { c.counts = {1, 1, -4, 1, 1, 1}; }, copies + "-4 in layer 0, expert 2");
  check([](search_case& c) { c.counts = {1, 1, 1, 32768, 1, 1}; },
        copies + "32768 in layer 1, expert 0");
  std::string const total =
      "swap_search: replica_count: expected a total of at most the slots, got ";
  check([](search_case& c) { c.counts = {1, 1, 2, 1, 3, 1}; }, total + "5 in layer 1");
  check([](search_case& c) { c.active = {1, 0}; }, total + "3 in layer 0");
  check([](search_case& c) { c.offsets = {0, 2, 4, 1, 2, 2}; },
        "swap_search: rank_offsets: expected offsets that rise from 0 to at most the number of "
        "slots, got 2 in layer 1, rank 0");
  check([](search_case& c) { c.offsets = {0, 2, 5, 0, 2, 4}; },
        "swap_search: rank_offsets: expected offsets that rise from 0 to at most the number of "
        "slots, got 5 in layer 0, rank 1");
  check([](search_case& c) { c.offsets = {0, 2, 3, 0, 1, 2}; }, total + "3 in layer 1");
  check(
      [](search_case& c) {
        c.active = {0, 0};
      },
      "swap_search: on.active: expected at least 1 live rank, got 0");
}

PLIMSOLL_TEST_CASE("swap_search: bad values are named", P, PLIMSOLL_POLICIES) {
  check_bad_values(searched<P>);
}

}  // namespace plimsoll_test

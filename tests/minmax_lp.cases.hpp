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
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/minmax_lp.hpp"
#include "support/placement_updates.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/update_sequences.hpp"

namespace plimsoll_test {

using namespace minmax_lp_support;
using plimsoll::fault_kind;

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
  CHECK(!again.faults[0]);
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
  auto const check_refused = [](split_result const& result, fault_kind kind, index_t where,
                                double got) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    CHECK(result.certificates[0].status == certificate_status::infeasible);
    CHECK(result.certificates[0].value == infinity);
    CHECK(result.certificates[0].lower_bound == infinity);
    CHECK(result.certificates[0].work == 0);
    CHECK(result.faults[0].kind == kind);
    CHECK(result.faults[0].where == where);
    CHECK(result.faults[0].got == got);
    CHECK(result.faults[0].also == -1);
  };
  // Load on an expert without a slot, or only on a dead rank; a base load there; invalid loads.
  auto const lacking = split_in<P>(one_layer({{0}, {0}}, {4, 1})).solve();
  check_refused(lacking, fault_kind::unplaced_load, 1, 1);
  CHECK(lacking.split == reals{0, 0});
  CHECK(lacking.bottleneck == flags{0, 0});
  CHECK(lacking.error ==
        "minmax_lp::solve: loads: expected load only on experts with a slot of a live rank, got 1 "
        "in layer 0, expert 1");
  split_case dead = one_layer({{0, 1}, {0}}, {4, 1});
  dead.active = {0, 1};
  check_refused(split_in<P>(dead).solve(), fault_kind::unplaced_load, 1, 1);
  dead.loads = {4, 0};
  CHECK(split_in<P>(dead).solve().split == reals{0, 0, 4});
  dead.base = {1, 0};
  auto const based = split_in<P>(dead).solve();
  check_refused(based, fault_kind::dead_load, 0, 1);
  CHECK(based.error ==
        "minmax_lp::solve: inputs.base_load: expected no load on dead ranks, got 1 in layer 0, "
        "rank 0");
  dead.base = {0, -3};
  auto const below = split_in<P>(dead).solve();
  check_refused(below, fault_kind::base_load, 1, -3);
  CHECK(below.error ==
        "minmax_lp::solve: inputs.base_load: expected values from 0 to below 2^47, got -3 in "
        "layer 0, rank 1");
  // The first of two bad layers.
  split_case layers = one_layer({{0}, {1}}, {});
  layers.layers = 3;
  layers.experts = 2;
  layers.map = {0, 1, 0, 1, 0, 1};
  layers.offsets = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  layers.loads = {1, 1, -6, 1, 1, -5};
  auto const some = split_in<P>(layers).solve();
  CHECK(some.error.ends_with("got -6 in layer 1, expert 0"));
  CHECK(!some.faults[0]);
  CHECK(some.faults[1].got == -6);
  CHECK(some.faults[2].where == 1);
  for (double const bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), 0x1p47}) {
    split_case const c = one_layer({{0}, {0}}, {4});
    split_in<P> const in(c);
    plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
    array_in<double, P> const loads(reals{bad});
    array_in<double, P> split(2, -7.0);
    lp.solve(loads.view2(1, 1), split.view2(1, 2));
    CHECK(plimsoll::read(make_policy<P>(), lp.faults())[0].kind == fault_kind::load);
    CHECK(split.values() == reals{0, 0});
    CHECK(refusal_of([&] { lp.check(); }) ==
          "minmax_lp::solve: loads: expected values from 0 to below 2^47, got " +
              plimsoll::detail::text(bad) + " in layer 0, expert 0");
  }
  auto const heavy = split_in<P>(one_layer({{0}, {1}}, {1LL << 46, 1LL << 46})).solve();
  check_refused(heavy, fault_kind::total_load, -1, 0x1p47);
  CHECK(heavy.error ==
        "minmax_lp::solve: loads: expected a total below 2^47 per layer, got 140737488355328 in "
        "layer 0");
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
        "minmax_lp: options.on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, "
        "rank 1");
  // Speeds may be as low as 2^-16 of the fastest live rank's.
  bad.quarters = {4 << 20, 4 << 4};
  CHECK(refusal(bad) == "no error");
  bad.quarters = {4 << 20, 4 << 3};
  CHECK(refusal(bad) ==
        "minmax_lp: options.on.speeds: expected speeds of live ranks from 2^-16 of the fastest to "
        "the fastest, got 8 for rank 1, where rank 0 is the fastest");
  bad.active = {1, 0};
  CHECK(refusal(bad) == "no error");
  bad.active = {0, 1};
  CHECK(refusal(bad) == "no error");

  split_in<P> const in(good);
  plimsoll::placement_ref other_layers = in.placement();
  other_layers.replica_count.extents[0] = 2;
  CHECK(refusal_of([&] { plimsoll::minmax_lp const lp(make_policy<P>(), other_layers); }) ==
        "minmax_lp: placement.replica_count: expected 1 layers, got 2");
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

/// Takes random placements one after the other and compares each split with that of new objects,
/// one for each layer. `run_of(step)` returns a function that repeats `step`: itself, or a replay
/// of its CUDA graph.
template <class P, class RunOf>
void check_updates(std::uint64_t seed, RunOf const& run_of) {
  auto const policy = make_policy<P>();
  updated_placement<P> model(seed);
  generator& draw = model.draw();
  index_t const layers = model.layers();
  index_t const experts = model.experts();
  index_t const ranks = std::ssize(model.layer(0).active);
  index_t const most = model.max_slots();
  array_in<double, P> loads(layers * experts);
  array_in<double, P> base(layers * ranks);
  array_in<double, P> split(layers * most);
  array_in<double, P> own_split(layers * most);
  array_in<std::uint8_t, P> bottleneck(layers * ranks);
  array_in<std::uint8_t, P> own_bottleneck(ranks);
  minmax_lp_options options{
      .max_slots = most,
      .objective = seed % 2 == 0 ? split_objective::min_peak : split_objective::lexicographic};
  auto const proof_of = [&](auto& lp, index_t layer) {
    certificate const c =
        plimsoll::read(policy, lp.certificates())[static_cast<std::size_t>(layer)];
    return reals{c.value, c.lower_bound, static_cast<double>(c.work),
                 static_cast<double>(c.status)};
  };
  auto const part = [](auto const& all, index_t first, index_t count) {
    return std::vector(all.begin() + first, all.begin() + first + count);
  };

  auto first = std::make_unique<placement_arrays<P>>(model.all(), experts);
  options.on = first->on();
  plimsoll::minmax_lp lp(policy, first->placement(), options);
  first.reset();  // the object has copied it
  auto const run = run_of([&] {
    lp.solve(loads.view2(layers, experts), {.base_load = base.view2(layers, ranks)},
             split.view2(layers, most), {.bottleneck = bottleneck.view2(layers, ranks)});
  });
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    index_t const refused =
        turn == 0 ? -1
                  : model.step([&](index_t layer, auto const& to, plimsoll::rank_set const* on) {
                      on == nullptr ? lp.update(layer, to) : lp.update(layer, to, *on);
                    });
    check_update(lp, "minmax_lp", refused);
    reals load_of;
    for (index_t i = 0; i < layers * experts; ++i) {
      load_of.push_back(static_cast<double>(draw.between(0, draw.between(0, 60))) / 4);
    }
    loads.assign(load_of);
    reals base_of;
    for (index_t i = 0; i < layers * ranks; ++i) {
      bool const lives = model.layer(i / ranks).active[static_cast<std::size_t>(i % ranks)] != 0;
      base_of.push_back(lives ? static_cast<double>(draw.between(0, 9)) : 0.0);
    }
    base.assign(base_of);
    run();
    reals const got_split = split.values();
    flags const got_bottleneck = bottleneck.values();
    for (index_t layer = 0; layer < layers; ++layer) {
      CAPTURE(layer);
      index_t const slots = std::ssize(model.layer(layer).map);
      placement_arrays<P> const arrays({model.layer(layer)}, experts);
      options.on = arrays.on();
      options.max_slots = 0;
      plimsoll::minmax_lp fresh(policy, arrays.placement(), options);
      fresh.solve(
          plimsoll::matrix_ref<double const>(loads.data() + layer * experts, 1, experts),
          {.base_load = plimsoll::matrix_ref<double const>(base.data() + layer * ranks, 1, ranks)},
          own_split.view2(1, slots), {.bottleneck = own_bottleneck.view2(1, ranks)});
      CHECK(part(got_split, layer * most, slots) == part(own_split.values(), 0, slots));
      CHECK(part(got_split, layer * most + slots, most - slots) ==
            reals(static_cast<std::size_t>(most - slots), 0.0));
      CHECK(part(got_bottleneck, layer * ranks, ranks) == own_bottleneck.values());
      CHECK(proof_of(lp, layer) == proof_of(fresh, 0));
    }
    check_current(lp, model, "minmax_lp");
  }
}

PLIMSOLL_TEST_CASE("minmax_lp: updated objects split as new ones do", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) { return step; });
  }
}

PLIMSOLL_TEST_CASE("minmax_lp: refused updates", P, PLIMSOLL_PREPARED_POLICIES) {
  split_case const c = one_layer({{0, 1}, {0}}, {4, 1});
  split_in<P> const in(c);
  plimsoll::minmax_lp lp(make_policy<P>(), in.placement());
  auto const refusal = [&](plimsoll::placement_ref const& placement, index_t first = 0,
                           plimsoll::rank_set const& on = {}) {
    return refusal_of([&] { lp.update(first, placement, on); });
  };
  plimsoll::placement_ref to = in.placement();
  CHECK(refusal(to) == "no error");
  CHECK(refusal(to, 1) == "minmax_lp::update: first_layer: expected 0 to 0 as layer, got 1");
  CHECK(refusal(to, 0, {.ranks = 3}) ==
        "minmax_lp::update: on.ranks: expected 2 ranks, as in the placement, got 3");
  to.ranks = 1;
  CHECK(refusal(to) == "minmax_lp::update: placement.ranks: expected 2 ranks, got 1");
  to = in.placement();
  to.replica_count.extents[1] = 3;
  CHECK(refusal(to) == "minmax_lp::update: placement.replica_count: expected 2 experts, got 3");
  to = in.placement();
  to.replica_count.extents[0] = 2;
  CHECK(refusal(to) == "minmax_lp::update: placement.replica_count: expected 1 layers, got 2");
  to = in.placement();
  to.physical_to_logical.extents[0] = 2;
  CHECK(refusal(to) ==
        "minmax_lp::update: placement.physical_to_logical: expected 1 to 1 layers from first_layer "
        "on, got 2");
  to.physical_to_logical.extents[0] = 1;
  to.physical_to_logical.extents[1] = 4;
  CHECK(refusal(to) ==
        "minmax_lp::update: placement.physical_to_logical: expected 1 to 3 slots (those that the "
        "object has room for), got 4");

  // Values are refused where they are read.
  array_in<double, P> const speeds(reals{1 << 20, 4});
  lp.update(0, in.placement(), plimsoll::rank_set{.speeds = speeds.view1()});
  CHECK(refusal_of([&] { lp.check(); }) ==
        "minmax_lp::update: on.speeds: expected speeds of live ranks from 2^-16 of the fastest to "
        "the fastest, got 4 for rank 1 in layer 0, where rank 0 is the fastest");
  lp.update(0, in.placement());
  CHECK_NOTHROW(lp.check());
  array_in<std::int32_t, P> const map(ints{0, 1, 2});
  to = in.placement();
  to.physical_to_logical = map.view2(1, 3);
  lp.update(0, to);
  CHECK(refusal_of([&] { lp.check(); }) ==
        "minmax_lp::update: physical_to_logical: expected -1 or an expert of the layer, got 2 in "
        "layer 0, rank 1, slot 2");
}

}  // namespace plimsoll_test

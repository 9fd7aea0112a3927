// SPDX-License-Identifier: Apache-2.0
// Tests of replay under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/replay.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/replay_case.hpp"

namespace plimsoll_test {

template <class P, class T = std::int32_t>
reals replayed(replay_case const& c) {
  return replay_in<P>(c).replay(c.loads_as<T>());
}

inline void check_replayed(replay_case const& c, reals const& got) {
  REQUIRE(std::ssize(got) == c.rows());
  for (index_t row = 0; row < c.rows(); ++row) {
    CAPTURE(row);
    double const value = got[static_cast<std::size_t>(row)];
    CHECK(value == doctest::Approx(c.balancedness(row / c.layers, row % c.layers)).epsilon(1e-12));
    CHECK(value > 0);
    CHECK(value <= 1);
  }
}

PLIMSOLL_TEST_CASE("replay: equals the definition, in every type", P, PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    CAPTURE(seed);
    replay_case const c = random_replay(seed);
    reals const got = replayed<P>(c);
    check_replayed(c, got);
    for_each_load_type([&]<class T>(T) { CHECK(replayed<P, T>(c) == got); });
    all.insert(all.end(), got.begin(), got.end());
  }
  report_hash("replay.random", all);
}

PLIMSOLL_TEST_CASE("replay: equals the mean of rank_loads and measure", P, PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    CAPTURE(seed);
    replay_case c = random_replay(seed);
    c.active.clear();
    reals const got = replayed<P>(c);
    replay_in<P> const in(c);
    array_in<std::int32_t, P> const loads(c.loads_as<std::int32_t>());
    array_in<double, P> of_ranks(c.steps * c.layers * c.ranks);
    array_in<plimsoll::balance_stats, P> measured(c.steps * c.layers);
    for (index_t plan = 0; plan < c.plans; ++plan) {
      CAPTURE(plan);
      auto const whole = in.placement();
      auto const rows_of = [&](plimsoll::matrix_ref<std::int32_t const> rows) {
        if (rows.data != nullptr) {
          rows.data += plan * c.layers * rows.strides[0];
          rows.extents[0] = c.layers;
        }
        return rows;
      };
      plimsoll::rank_loads(
          make_policy<P>(), loads.view3(c.steps, c.layers, c.experts),
          plimsoll::placement_ref{rows_of(whole.physical_to_logical), rows_of(whole.replica_count),
                                  c.ranks, rows_of(whole.rank_offsets)},
          of_ranks.view3(c.steps, c.layers, c.ranks));
      plimsoll::measure(make_policy<P>(), of_ranks.view2(c.steps * c.layers, c.ranks),
                        measured.view1());
      auto const steps = measured.values();
      for (index_t layer = 0; layer < c.layers; ++layer) {
        double sum = 0;
        for (index_t step = 0; step < c.steps; ++step) {
          sum += steps[static_cast<std::size_t>(step * c.layers + layer)].balancedness;
        }
        CHECK(got[static_cast<std::size_t>(plan * c.layers + layer)] ==
              doctest::Approx(sum / static_cast<double>(c.steps)).epsilon(1e-12));
      }
    }
  }
}

PLIMSOLL_TEST_CASE("replay: by hand", P, PLIMSOLL_POLICIES) {
  // Plan 0: ranks {0}, {1, 1}, {-}. Plan 1: {0, 1}, {0}, {1}.
  replay_case c{.steps = 3, .layers = 1, .experts = 2, .slots = 4, .ranks = 3, .plans = 2};
  c.loads = {6, 4, 0, 0, 0, 3};
  c.map = {0, 1, 1, -1, 0, 1, 0, 1};
  c.counts = {1, 2, 2, 2};
  c.offsets = {0, 1, 3, 4, 0, 2, 3, 4};
  // Mean / peak of the steps of plan 0: 10 / 3 over 6, no load, 1 over 3; of plan 1: 10 / 3 over 5,
  // no load, 1 over 1.5.
  reals const got = replayed<P>(c);
  CHECK(got[0] == doctest::Approx((10.0 / 18 + 1 + 1.0 / 3) / 3).epsilon(1e-15));
  CHECK(got[1] == doctest::Approx((10.0 / 15 + 1 + 2.0 / 3) / 3).epsilon(1e-15));
  // The mean is over the live ranks.
  c.plans = 1;
  c.map.resize(4);
  c.counts.resize(2);
  c.offsets.resize(4);
  c.active = {1, 1, 0};
  CHECK(replayed<P>(c)[0] == doctest::Approx((10.0 / 12 + 1 + 1.0 / 2) / 3).epsilon(1e-15));
}

/// `replay` with the optimal split, compiled once for all policies.
inline void check_split_replays(reals (*replay)(replay_case const&)) {
  // One rank holds experts 0 and 1, the other expert 0: with 4 of its 6 tokens there, each has 4 in
  // step 0. In step 1 the first rank keeps 6 of 8. A step without load counts as 1.
  replay_case hand{.steps = 3, .experts = 2, .slots = 3, .ranks = 2};
  hand.loads = {6, 2, 2, 6, 0, 0};
  hand.map = {1, 0, 0};
  hand.counts = {2, 1};
  hand.offsets = {0, 2, 3};
  hand.split = plimsoll::split_rule::optimal;
  CHECK(replay(hand)[0] == doctest::Approx((1 + 4 / 6.0 + 1) / 3));
  reals all;
  int cases = 0;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    CAPTURE(seed);
    replay_case c = random_replay(seed);
    if (c.ranks > 6) {
      continue;
    }
    ++cases;
    reals const even = replay(c);
    c.split = plimsoll::split_rule::optimal;
    reals const got = replay(c);
    for (index_t row = 0; row < c.rows(); ++row) {
      CAPTURE(row);
      double const value = got[static_cast<std::size_t>(row)];
      CHECK(value ==
            doctest::Approx(split_balancedness(c, row / c.layers, row % c.layers)).epsilon(1e-12));
      CHECK(value >= even[static_cast<std::size_t>(row)] * (1 - 1e-12));
      CHECK(value <= 1);
    }
    all.insert(all.end(), got.begin(), got.end());
  }
  CHECK(cases > 60);
  report_hash("replay.optimal", all);
}

PLIMSOLL_TEST_CASE("replay: the optimal split", P, PLIMSOLL_POLICIES) {
  check_split_replays(replayed<P>);
  replay_case c = random_replay(3);
  c.split = plimsoll::split_rule::optimal;
  reals const expected = replayed<P>(c);
  for_each_load_type([&]<class T>(T) { CHECK(replayed<P, T>(c) == expected); });
}

PLIMSOLL_TEST_CASE("replay: edges", P, PLIMSOLL_POLICIES) {
  SUBCASE("perfect balance is 1, also if thirds are rounded") {
    replay_case c{.layers = 60, .experts = 7, .slots = 21, .ranks = 3};
    for (std::int32_t i = 0; i < c.layers * 21; ++i) {
      c.map.push_back(i % 7);
    }
    for (std::int64_t i = 0; i < c.layers * 7; ++i) {
      c.loads.push_back(1 + i * i % 10007);
      c.counts.push_back(3);
    }
    for (double const value : replayed<P>(c)) {
      CHECK(value <= 1);
      CHECK(value >= 1 - 1e-15);
    }
  }
  SUBCASE("no load at all") {
    replay_case c{.steps = 11, .layers = 2, .experts = 2, .slots = 2, .ranks = 2};
    c.loads.assign(44, 0);
    c.map = {0, 1, 1, 0};
    c.counts = {1, 1, 1, 1};
    CHECK(replayed<P>(c) == reals{1, 1});
  }
  SUBCASE("a single rank") {
    replay_case c{.steps = 3, .experts = 2, .slots = 2, .ranks = 1};
    c.loads = {1, 2, 3, 4, 0, 0};
    c.map = {1, 0};
    c.counts = {1, 1};
    CHECK(replayed<P>(c) == reals{1});
  }
  SUBCASE("more ranks than slots") {
    replay_case c{.steps = 9, .experts = 1, .slots = 1, .ranks = 64};
    c.loads.assign(9, 5);
    c.map = {0};
    c.counts = {1};
    CHECK(replayed<P>(c) == reals{1.0 / 64});
  }
  SUBCASE("no plans, no layers") {
    replay_case c{.steps = 2, .layers = 3, .experts = 2, .slots = 2, .plans = 0};
    c.loads.assign(12, -1);  // not read
    CHECK(replayed<P>(c).empty());
    c.layers = 0;
    c.plans = 5;
    CHECK(replayed<P>(c).empty());
  }
}

PLIMSOLL_TEST_CASE("replay: loads and result in any layout", P, PLIMSOLL_POLICIES) {
  replay_case c = random_replay(17);
  c.steps = 5;  // every second of ten
  c.loads.resize(static_cast<std::size_t>(c.steps * c.layers * c.experts), 1);
  reals const expected = replayed<P>(c);
  auto const width = static_cast<std::ptrdiff_t>(c.layers * c.experts);
  std::vector<float> wide(static_cast<std::size_t>(2 * c.steps * width),
                          std::numeric_limits<float>::quiet_NaN());
  for (std::ptrdiff_t step = 0; step < c.steps; ++step) {
    std::copy_n(c.loads.begin() + step * width, width, wide.begin() + 2 * step * width);
  }
  array_in<float, P> const in(wide);
  auto view = in.view3(c.steps, c.layers, c.experts);
  view.strides[0] *= 2;
  replay_in<P> const placed(c);
  CHECK(placed.replay(view) == expected);

  array_in<double, P> out(2 * c.rows(), -7.0);
  plimsoll::matrix_ref<double> transposed(out.data(), c.plans, c.layers);
  transposed.strides[0] = 2;
  transposed.strides[1] = 2 * c.plans;
  plimsoll::replay(make_policy<P>(), view, placed.placement(), placed.options(), transposed);
  auto const got = out.values();
  for (index_t row = 0; row < c.rows(); ++row) {
    index_t const at = 2 * (row % c.layers * c.plans + row / c.layers);
    CHECK(got[static_cast<std::size_t>(at)] == expected[static_cast<std::size_t>(row)]);
    CHECK(got[static_cast<std::size_t>(at + 1)] == -7);
  }
}

/// A load that is a product, which a compiler would contract with the sum to which it is added.
struct product_load {
  index_t layers;
  index_t experts;
  PLIMSOLL_HD double operator()(index_t step, index_t layer, index_t e) const {
    return static_cast<double>(
               mix(static_cast<std::uint64_t>((step * layers + layer) * experts + e)) >> 20) *
           0.1;
  }
};

PLIMSOLL_TEST_CASE("replay: generated loads", P, PLIMSOLL_POLICIES) {
  reals all;
  for (std::uint64_t seed = 300; seed < 340; ++seed) {
    CAPTURE(seed);
    replay_case const c = random_replay(seed);
    product_load const load{c.layers, c.experts};
    reals stored;
    for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
      stored.push_back(load(i / (c.layers * c.experts), i / c.experts % c.layers, i % c.experts));
    }
    replay_in<P> const placed(c);
    reals const got = placed.replay(plimsoll::generate(load, c.steps, c.layers, c.experts));
    CHECK(got == placed.replay(stored));
    all.insert(all.end(), got.begin(), got.end());
  }
  report_hash("replay.generated", all);
}

PLIMSOLL_TEST_CASE("replay: more experts and plans than shared memory holds", P,
                   PLIMSOLL_POLICIES) {
  replay_case c{.steps = 10, .layers = 2, .experts = 900, .slots = 1000, .ranks = 64, .plans = 9};
  c.loads = random_loads<std::int64_t>(4, c.steps * c.layers * c.experts);
  generator random(4);
  c.place(random);
  reals const got = replayed<P>(c);
  check_replayed(c, got);
  report_hash("replay.large", got);
}

/// The message with which `replay` refuses a case.
template <class P, class T>
std::string replay_refusal(replay_case const& c, std::vector<T> const& loads) {
  try {
    static_cast<void>(replay_in<P>(c).replay(loads));
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

/// Two layers of three experts in nine equal steps, under two plans.
inline replay_case plain_replay() {
  replay_case c{.steps = 9, .layers = 2, .experts = 3, .slots = 4, .ranks = 2, .plans = 2};
  c.loads.assign(54, 5);
  c.map = {0, 1, 2, -1, 0, 1, 2, 0, 0, 1, 2, 1, 2, 1, 0, -1};
  c.counts = {1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 1};
  return c;
}

PLIMSOLL_TEST_CASE("replay: a bad load is named", P, PLIMSOLL_POLICIES) {
  replay_case const c = plain_replay();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double limit = 0x1p47;
  // Sets the load of an expert in a step and layer.
  auto const with = [&]<class T>(std::vector<T> loads, index_t step, index_t layer, index_t e,
                                 double value) {
    loads[static_cast<std::size_t>((step * 2 + layer) * 3 + e)] = static_cast<T>(value);
    return loads;
  };
  auto const whole = c.loads_as<std::int32_t>();
  auto const real = c.loads_as<float>();
  auto const range = std::string("replay: loads: expected values from 0 to below 2^47, got ");
  CHECK(replay_refusal<P>(c, whole) == "no error");
  CHECK(replay_refusal<P>(c, with(whole, 0, 0, 0, -3)) ==
        range + "-3 in layer 0, expert 0, step 0");
  CHECK(replay_refusal<P>(c, with(whole, 7, 1, 2, -1)) ==
        range + "-1 in layer 1, expert 2, step 7");
  CHECK(replay_refusal<P>(c, with(real, 8, 1, 1, nan)) ==
        range + "NaN in layer 1, expert 1, step 8");
  CHECK(replay_refusal<P>(c, with(real, 3, 0, 2, limit)) ==
        range + "140737488355328 in layer 0, expert 2, step 3");
  // A fault is reported even if another one could hide it.
  CHECK(replay_refusal<P>(c, with(with(real, 3, 0, 2, nan), 3, 0, 0, -limit)) ==
        range + "-140737488355328 in layer 0, expert 0, step 3");
  CHECK(replay_refusal<P>(c, with(with(real, 4, 0, 0, -1), 2, 0, 1, -2)) ==
        range + "-2 in layer 0, expert 1, step 2");
  // Among eight steps, the first layer comes first, then the first step.
  CHECK(replay_refusal<P>(c, with(with(real, 8, 0, 0, -1), 7, 1, 1, -2)) ==
        range + "-2 in layer 1, expert 1, step 7");
  CHECK(replay_refusal<P>(c, with(with(real, 7, 0, 0, -1), 3, 1, 1, -2)) ==
        range + "-1 in layer 0, expert 0, step 7");
  CHECK(replay_refusal<P>(c, with(with(real, 8, 1, 0, -1), 0, 1, 1, -2)) ==
        range + "-2 in layer 1, expert 1, step 0");
  CHECK(replay_refusal<P>(
            c, with(with(with(real, 8, 1, 0, limit / 2), 8, 1, 1, limit / 2), 8, 1, 2, 0)) ==
        "replay: loads: expected a total below 2^47 per layer, got 140737488355328 in layer 1, "
        "step 8");
  CHECK(replay_refusal<P>(c, with(with(with(real, 8, 1, 0, limit / 2), 8, 1, 1, limit / 4), 8, 1, 2,
                                  0)) == "no error");
}

PLIMSOLL_TEST_CASE("replay: a bad plan is named", P, PLIMSOLL_POLICIES) {
  auto const refusal = [](auto change) {
    replay_case c = plain_replay();
    change(c);
    return replay_refusal<P>(c, c.loads_as<std::int32_t>());
  };
  CHECK(refusal([](replay_case& c) { c.map[2] = -1; }) ==
        "replay: physical_to_logical: expected every expert on a live rank, got none in layer 0, "
        "expert 2");
  CHECK(refusal([](replay_case& c) { c.counts[11] = 2; }) ==
        "replay: replica_count: expected 1 copies, as in physical_to_logical, got 2 in layer 1, "
        "expert 2");
  CHECK(refusal([](replay_case& c) { c.counts[3] = 0; }) ==
        "replay: replica_count: expected 2 copies, as in physical_to_logical, got 0 in layer 1, "
        "expert 0");
  CHECK(refusal([](replay_case& c) { c.map[7] = 3; }) ==
        "replay: physical_to_logical: expected -1 or an expert of the layer, got 3 in layer 1, "
        "rank 1, slot 3");
  CHECK(refusal([](replay_case& c) { c.map[7] = -2; }) ==
        "replay: physical_to_logical: expected -1 or an expert of the layer, got -2 in layer 1, "
        "rank 1, slot 3");
  CHECK(refusal([](replay_case& c) { c.offsets = {0, 2, 4, 0, 3, 2, 0, 2, 4, 0, 2, 4}; }) ==
        "replay: rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
        "got 2 in layer 1, rank 1");
  CHECK(refusal([](replay_case& c) {
          constexpr std::int32_t far = std::numeric_limits<std::int32_t>::max();
          c.offsets = {0, 2, far, 0, 2, 4, 0, 2, 4, 0, 2, 4};
        }) ==
        "replay: rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
        "got 2147483647 in layer 0, rank 1");
  CHECK(refusal([](replay_case& c) { c.offsets = {-9, 2, 4, 0, 2, 4, 0, 2, 4, 0, 2, 4}; }) ==
        "replay: rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
        "got 2 in layer 0, rank 0");
  CHECK(refusal([](replay_case& c) { c.offsets = {0, 2, 3, 0, 2, 3, 0, 2, 4, 0, 2, 4}; }) ==
        "replay: physical_to_logical: expected -1 in slots that belong to no rank, got 0 in layer "
        "1, slot 3");
  CHECK(refusal([](replay_case& c) {
          c.active = {1, 0};
        }) ==
        "replay: physical_to_logical: expected -1 in the slots of a rank that is not active, got 2 "
        "in layer 0, rank 1, slot 2");
  CHECK(refusal([](replay_case& c) {
          c.active = {0, 0};
        }) ==
        "replay: physical_to_logical: expected -1 in the slots of a rank that is not active, got 0 "
        "in layer 0, rank 0, slot 0");
}

}  // namespace plimsoll_test

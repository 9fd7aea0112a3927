// SPDX-License-Identifier: Apache-2.0
// Plans of LLEP: capacity rounded down, rounded up, and with small excesses that stay at home.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/least_loaded.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

struct lla_run {
  plimsoll::least_loaded_options options;
  std::vector<std::int64_t> loads;  ///< [experts]
};

/// Arrays as the cases have them.
struct lla_plan {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> segments;  ///< [segments, 3]: rank, begin, end
  std::vector<std::int64_t> rank_loads;
  std::vector<std::array<std::int32_t, 3>> transfers;  ///< expert, from, to, rising
  plimsoll::spill_report report;
};

template <class P>
lla_plan lla_plan_of(lla_run const& run) {
  auto const policy = make_policy<P>();
  array_in<std::int64_t, P> const loads(run.loads);
  plimsoll::least_loaded planner(policy, run.options);
  planner.plan(loads.view1());
  planner.check();
  plimsoll::validate(policy, planner.plan_ref(), loads.view1(), run.options);
  lla_plan plan{};
  plan.report = plimsoll::read(policy, planner.report());
  auto const offsets = plimsoll::read(policy, planner.offsets());
  auto const rank_loads = plimsoll::read(policy, planner.rank_loads());
  plan.offsets.assign(offsets.begin(), offsets.end());
  plan.rank_loads.assign(rank_loads.begin(), rank_loads.end());
  auto const segments = plimsoll::read(policy, planner.segments());
  for (std::size_t i = 0; i < static_cast<std::size_t>(plan.report.segments); ++i) {
    plimsoll::spill_segment const& of = segments[i];
    plan.segments.insert(plan.segments.end(), {of.rank, of.begin, of.end});
  }
  auto const transfers = plimsoll::read(policy, planner.transfers());
  for (std::size_t i = 0; i < static_cast<std::size_t>(plan.report.transfers); ++i) {
    plimsoll::spill_transfer const& of = transfers[i];
    plan.transfers.push_back({of.expert, of.from, of.to});
  }
  std::sort(plan.transfers.begin(), plan.transfers.end());
  return plan;
}
using lla_plan_fn = lla_plan (*)(lla_run const&);

/// The case's plan; what touches on one rank is one segment.
inline lla_plan expected_plan(golden_case const& golden, std::string const& variant) {
  auto const offsets = golden.array<std::int64_t>("offsets_" + variant);
  auto const segments = golden.array<std::int64_t>("segments_" + variant);
  lla_plan plan{};
  plan.offsets.push_back(0);
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    std::int64_t last = -1;
    for (auto i = static_cast<std::size_t>(offsets[e]);
         i < static_cast<std::size_t>(offsets[e + 1]); ++i) {
      if (segments[3 * i] == last) {
        plan.segments.back() = segments[3 * i + 2];
      } else {
        plan.segments.insert(plan.segments.end(),
                             {segments[3 * i], segments[3 * i + 1], segments[3 * i + 2]});
      }
      last = segments[3 * i];
    }
    plan.offsets.push_back(std::ssize(plan.segments) / 3);
  }
  plan.rank_loads = golden.array<std::int64_t>("gpu_load_" + variant);
  // npy files without elements are not read.
  if (golden.integer("expected.num_transfers_" + variant) > 0) {
    auto const numbers = golden.array<std::int32_t>("transfers_" + variant);
    for (std::size_t i = 0; i < numbers.size(); i += 3) {
      plan.transfers.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    }
  }
  return plan;
}

/// Whether the imbalance calls for a plan is up to the threshold, not to how it is planned.
inline void check_lla_threshold(golden_case const& golden, lla_plan_fn plan_of, lla_run run) {
  run.options.lambda = golden.real("params.lambda");
  auto const home = golden.array<std::int64_t>("native_gpu_load");
  for (std::string const of : {"gpu", "expert"}) {
    CAPTURE(of);
    run.options.trigger = of == "gpu" ? plimsoll::spill_trigger::rank_imbalance
                                      : plimsoll::spill_trigger::expert_imbalance;
    lla_plan const got = plan_of(run);
    double const ratio = golden.real("expected.ratio_" + of);
    CHECK(std::fabs(got.report.imbalance - ratio) <= 1e-12 * ratio);
    // One rank has nobody to spill to.
    bool const spills = golden.integer("expected.rebalance_by_" + of + "_ratio") != 0;
    CHECK((got.report.spills != 0) == (spills && run.options.on.ranks > 1));
    if (got.report.spills == 0) {
      CHECK(got.rank_loads == home);
      CHECK(got.transfers.empty());
    }
  }
}

// What a case checks is compiled once, for all policies.
inline void check_lla(lla_plan_fn plan_of) {
  for (golden_case const& golden : golden_cases("lla")) {
    std::string const name = golden.name();
    CAPTURE(name);
    lla_run run;
    run.loads = golden.array<std::int64_t>("load");
    run.options.experts = golden.integer("params.experts");
    run.options.on.ranks = golden.integer("params.gpus");
    run.options.alpha = golden.real("params.alpha");
    run.options.min_chunk = golden.integer("params.min_chunk");
    check_lla_threshold(golden, plan_of, run);
    run.options.lambda = 0;
    auto const home = golden.array<std::int64_t>("native_gpu_load");
    fnv1a hash;
    for (std::string const variant : {"floor", "ceil", "text"}) {
      CAPTURE(variant);
      bool const up = variant == "ceil";
      run.options.round = up ? plimsoll::rounding_mode::up : plimsoll::rounding_mode::down;
      run.options.small_excess = variant == "text" ? plimsoll::small_excess_policy::home
                                                   : plimsoll::small_excess_policy::helper;
      lla_plan const got = plan_of(run);
      lla_plan const expected = expected_plan(golden, variant);
      CHECK(got.offsets == expected.offsets);
      CHECK(got.segments == expected.segments);
      CHECK(got.rank_loads == expected.rank_loads);
      CHECK(got.transfers == expected.transfers);
      CHECK(got.report.capacity ==
            golden.real(up ? "params.capacity_ceil" : "params.capacity_floor"));
      CHECK(got.report.result.value == golden.real("expected.max_load_" + variant));
      CHECK(got.report.home_peak ==
            static_cast<double>(*std::max_element(home.begin(), home.end())));
      CHECK((got.report.forced > 0) == (golden.integer("expected.num_forced_" + variant) > 0));
      hash.add(got.offsets);
      hash.add(got.segments);
      hash.add(got.rank_loads);
      hash.add(got.transfers);
    }
    report_hash_value("golden.lla." + name, hash.value());
  }
}

TEST_SUITE("golden.lla") {
  PLIMSOLL_TEST_CASE("golden: lla", P, PLIMSOLL_PREPARED_POLICIES) { check_lla(lla_plan_of<P>); }
}

}  // namespace plimsoll_test

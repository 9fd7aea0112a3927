// SPDX-License-Identifier: Apache-2.0
// Splits whose smallest peak is known as a fraction.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

TEST_SUITE("golden.minmax_lp") {
  PLIMSOLL_TEST_CASE("golden: minmax_lp", P, PLIMSOLL_PREPARED_POLICIES) {
    int compared = 0;
    for (golden_case const& golden : golden_cases("minmax_lp")) {
      std::string const name = golden.name();
      CAPTURE(name);
      ++compared;
      index_t const ranks = golden.integer("params.gpus");
      auto const expert_of = golden.array<std::int32_t>("phy2log");
      auto const rank_of = golden.array<std::int32_t>("phy2gpu");
      auto const load = golden.array<std::int64_t>("load");
      auto const experts = static_cast<index_t>(load.size());
      auto const slots = static_cast<index_t>(expert_of.size());
      std::vector<std::int32_t> map;
      std::vector<std::int32_t> offsets{0};
      for (std::int32_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < rank_of.size(); ++i) {
          if (rank_of[i] == r) {
            map.push_back(expert_of[i]);
          }
        }
        offsets.push_back(static_cast<std::int32_t>(map.size()));
      }
      double const least = static_cast<double>(golden.integer("expected.M_star_num")) /
                           static_cast<double>(golden.integer("expected.M_star_den"));
      array_in<std::int32_t, P> const map_in(map);
      array_in<std::int32_t, P> const offsets_in(offsets);
      array_in<std::int64_t, P> const loads_in(load);
      plimsoll::placement_ref placement;
      placement.physical_to_logical = map_in.view2(1, slots);
      placement.replica_count = {nullptr, 1, experts};
      placement.ranks = ranks;
      placement.rank_offsets = offsets_in.view2(1, ranks + 1);
      for (double const tolerance : {0.0, 1e-6}) {
        plimsoll::minmax_lp lp(make_policy<P>(), placement, {.tolerance = tolerance});
        array_in<double, P> split(slots);
        lp.solve(loads_in.view2(1, experts), split.view2(1, slots));
        plimsoll::certificate const result = plimsoll::read(make_policy<P>(), lp.certificates())[0];
        double const exact = 1e-12 * least;
        CHECK(result.value <= least * (1 + tolerance) + exact);
        CHECK(result.value >= least - exact);
        CHECK(result.lower_bound <= least + exact);
        if (tolerance == 0 || result.status == plimsoll::certificate_status::optimal) {
          CHECK(std::fabs(result.value - least) <= exact);
        }
        // What it says is what it does.
        auto const parts = split.values();
        std::vector<double> given(static_cast<std::size_t>(experts), 0);
        double peak = 0;
        for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
          double carried = 0;
          for (std::int32_t slot = offsets[r]; slot < offsets[r + 1]; ++slot) {
            double const part = parts[static_cast<std::size_t>(slot)];
            CHECK(part >= 0);
            carried += part;
            given[static_cast<std::size_t>(map[static_cast<std::size_t>(slot)])] += part;
          }
          peak = carried > peak ? carried : peak;
        }
        CHECK(std::fabs(peak - result.value) <= exact);
        for (std::size_t e = 0; e < load.size(); ++e) {
          CHECK(std::fabs(given[e] - static_cast<double>(load[e])) <=
                1e-12 * static_cast<double>(load[e]));
        }
        report_hash("golden.minmax_lp." + name + (tolerance > 0 ? ".close" : ""), parts);
      }
    }
    CHECK(compared >= 2);
  }
}

}  // namespace plimsoll_test

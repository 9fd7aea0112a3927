// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/metrics.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/skewed_loads.hpp"

namespace plimsoll_test {

using plimsoll::balance;
using plimsoll::balance_summary;

template <class P, class T>
std::vector<balance> measured(std::vector<T> const& loads, index_t rows, index_t columns) {
  array_in<T, P> const in(loads);
  array_in<balance, P> out(rows);
  plimsoll::measure(make_policy<P>(), in.view2(rows, columns), out.view1());
  return out.values();
}

template <class P>
balance_summary summarized(std::vector<balance> const& rows) {
  array_in<balance, P> const in(rows);
  return plimsoll::summarize(make_policy<P>(), in.view1());
}

inline std::vector<double> members(std::vector<balance> const& rows) {
  std::vector<double> result;
  for (balance const& row : rows) {
    result.insert(result.end(), {row.mean, row.peak, row.balancedness, row.imbalance,
                                 row.coefficient_of_variation});
  }
  return result;
}

TEST_CASE_TEMPLATE("metrics: equals the definitions, in every type", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  for (index_t const columns : {1, 2, 31, 32, 33, 64, 300}) {
    CAPTURE(columns);
    constexpr index_t rows = 5;
    auto const loads = skewed_loads(rows, columns, 3);
    auto const check = [&]<class T>(T) {
      auto const got = measured<P>(as<T>(loads), rows, columns);
      for (index_t r = 0; r < rows; ++r) {
        double mean = 0;
        double peak = 0;
        double square = 0;
        for (std::int64_t const load : row_of(loads, r, columns)) {
          mean += static_cast<double>(load) / static_cast<double>(columns);
          peak = std::fmax(peak, static_cast<double>(load));
          square += static_cast<double>(load * load) / static_cast<double>(columns);
        }
        balance const& b = got[static_cast<std::size_t>(r)];
        CHECK(b.mean == doctest::Approx(mean).epsilon(1e-12));
        CHECK(b.peak == peak);
        if (peak > 0) {
          CHECK(b.balancedness == doctest::Approx(mean / peak).epsilon(1e-12));
          CHECK(b.imbalance == doctest::Approx(peak / mean).epsilon(1e-12));
          CHECK(b.peak_to_mean() == b.imbalance);
          double const variance = std::fmax(square - mean * mean, 0.0);
          CHECK(std::fabs(b.coefficient_of_variation - std::sqrt(variance) / mean) < 1e-6);
        }
      }
      report_hash("metrics." + std::to_string(columns), members(got));
    };
    for_each_load_type(check);
  }
}

TEST_CASE_TEMPLATE("metrics: exact small cases", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  auto const got =
      measured<P>(std::vector<std::int32_t>{1, 3, 2, 2, 4, 4, 4, 4, 0, 0, 0, 0, 8, 0, 0, 0}, 4, 4);
  CHECK(members({got[0]}) == std::vector<double>{2, 3, 2.0 / 3, 1.5, std::sqrt(0.5) / 2});
  CHECK(members({got[1]}) == std::vector<double>{4, 4, 1, 1, 0});
  CHECK(members({got[2]}) == std::vector<double>{0, 0, 1, 1, 0});  // nothing to do is balanced
  CHECK(members({got[3]}) == std::vector<double>{2, 8, 0.25, 4, std::sqrt(12.0) / 2});

  balance_summary const all = summarized<P>(got);
  CHECK(all.mean_of_ratios == doctest::Approx((2.0 / 3 + 1 + 1 + 0.25) / 4));
  CHECK(all.ratio_of_sums == doctest::Approx(8.0 / 15));
  CHECK(all.worst == 0.25);
  CHECK(all.worst_row == 3);
  balance_summary const idle = summarized<P>({got[2], got[2]});
  CHECK(idle.mean_of_ratios == 1);
  CHECK(idle.ratio_of_sums == 1);
  CHECK(idle.worst_row == 0);
}

TEST_CASE_TEMPLATE("metrics: no rows, strided rows", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  CHECK(measured<P>(std::vector<float>{}, 0, 4).empty());
  array_in<float, P> const in(std::vector<float>{1, -9, 3, -9, 5, -9, 7, -9});
  plimsoll::matrix_ref<float const> loads = in.view2(2, 2);
  loads.strides[0] = 4;
  loads.strides[1] = 2;
  array_in<balance, P> out(2);
  plimsoll::measure(make_policy<P>(), loads, out.view1());
  CHECK(out.values()[0].mean == 2);
  CHECK(out.values()[1].peak == 7);
}

TEST_CASE_TEMPLATE("metrics: bad values cannot be taken for a result", P, PLIMSOLL_POLICIES) {
  if (!backend_available<P>()) {
    return;
  }
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  auto const got = measured<P>(std::vector<float>{1, 2, 3, -4, nan, 5, 0x1p47f, 0}, 4, 2);
  CHECK(got[0].balancedness == 0.75);
  for (double const member : members({got[1], got[2], got[3]})) {
    CHECK(std::isnan(member));
  }
  CHECK_THROWS_WITH_AS(summarized<P>(got),
                       "summarize: rows: expected rows measured from loads from 0 to below 2^47, "
                       "got other loads in row 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(summarized<P>({}), "summarize: rows: expected at least 1 row, got 0",
                       plimsoll::invalid_input);
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `measure`: mean, peak and spread of one row of loads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Problem = row. `Balance` is the public result type.
template <class Loads, class Balance>
struct metrics_body {
  using device_team = warp;

  Loads loads;
  vector_ref<Balance> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t row) const {
    index_t const n = loads.extent(1);
    auto const load = [this, row](index_t i) { return loads(row, i); };
    if (team.any(n, [=](index_t i) { return !is_load(load(i)); })) {
      team.single([=, this] {
        double const unknown = double_of(0x7ff8000000000000u);  // not a number
        out[row] = Balance{unknown, unknown, unknown, unknown, unknown};
      });
      return;
    }
    double const total = sum(team, n, load);
    double const mean = divide(total, static_cast<double>(n));
    double const peak = static_cast<double>(team.max(n, load));
    double const squares = team.sum_ordered(n, [=](index_t i) {
      double const difference = add(static_cast<double>(load(i)), -mean);
      return multiply(difference, difference);
    });
    team.single([=, this] {
      if (peak == 0) {
        out[row] = Balance{0, 0, 1, 1, 0};  // nothing to do is balanced
      } else {
        double const deviation = square_root(divide(squares, static_cast<double>(n)));
        out[row] =
            Balance{mean, peak, divide(mean, peak), divide(peak, mean), divide(deviation, mean)};
      }
    });
  }

 private:
  template <class Team, class F>
  PLIMSOLL_HD static double sum(Team& team, index_t n, F load) {
    if constexpr (std::floating_point<decltype(load(index_t{}))>) {
      return team.sum_ordered(n, [=](index_t i) { return static_cast<double>(load(i)); });
    } else {
      return static_cast<double>(
          team.sum(n, [=](index_t i) { return static_cast<std::int64_t>(load(i)); }));
    }
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

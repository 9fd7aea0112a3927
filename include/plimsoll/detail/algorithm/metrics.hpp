// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `measure`, `correlate` and `classify_experts`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/metrics_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns total / n; if all loads are equal, returns their value, from which the rounded mean may
/// differ.
template <class Team, class F>
PLIMSOLL_HD double mean_of_row(Team& team, index_t n, F load, double total) {
  return team.any(n, [=](index_t i) { return load(i) != load(0); })
             ? divide(total, static_cast<double>(n))
             : static_cast<double>(load(0));
}

/// Body of `measure`. Problem = row.
template <class Loads>
struct metrics_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  Loads loads;
  vector_ref<balance_stats> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t row) const {
    index_t const n = loads.extent(1);
    auto const load = [this, row](index_t i) { return loads(row, i); };
    if (team.any(n, [=](index_t i) { return !is_load(load(i)); })) {
      team.single([=, this] {
        double const unknown = double_of(0x7ff8000000000000u);  // not a number
        out[row] = balance_stats{unknown, unknown, unknown, unknown, unknown};
      });
      return;
    }
    double const peak = static_cast<double>(team.max(n, load));
    // Scales up loads whose squares or means would underflow. A power of two changes no other bit.
    double const unit = peak < 0x1p-400 ? 0x1p600 : 1.0;
    auto const lifted = [=](index_t i) { return multiply(static_cast<double>(load(i)), unit); };
    double const top = multiply(peak, unit);
    // The exact mean is at most the peak, but the rounded mean may exceed it.
    double const mean = minimum{}(mean_of_row(team, n, lifted, sum(team, n, load, lifted)), top);
    double const squares = team.sum_ordered(n, [=](index_t i) {
      double const difference = add(lifted(i), -mean);
      return multiply(difference, difference);
    });
    team.single([=, this] {
      if (peak == 0) {
        out[row] = balance_stats{0, 0, 1, 1, 0};  // a row without load counts as balanced
      } else {
        double const deviation = square_root(divide(squares, static_cast<double>(n)));
        out[row] = balance_stats{divide(mean, unit), peak, divide(mean, top), divide(top, mean),
                                 divide(deviation, mean)};
      }
    });
  }

 private:
  /// Returns the sum of the scaled loads. Integers need no scaling.
  template <class Team, class F, class G>
  PLIMSOLL_HD static double sum(Team& team, index_t n, F load, G lifted) {
    if constexpr (std::floating_point<decltype(load(index_t{}))>) {
      return team.sum_ordered(n, lifted);
    } else {
      return static_cast<double>(
          team.sum(n, [=](index_t i) { return static_cast<std::int64_t>(load(i)); }));
    }
  }
};

/// Body of `correlate`. Problem = one expert of one layer: a row of the matrix.
template <class Loads>
struct correlation_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< `[steps, layers, experts]`
  tensor_ref<double> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<double>(loads.extent(0));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    index_t const steps = loads.extent(0);
    index_t const layer = problem / experts;
    index_t const e = problem % experts;
    double* const mine = memory.take<double>(steps);  // load - mean
    course const own = course_of(layer, e);
    team.for_each(steps, [=, this](index_t t) { mine[t] = deviation(own, t, layer, e); });
    // Every sum runs over the steps in order, so that the matrix is symmetric to the bit.
    team.for_each(experts, [=, this](index_t other) {
      course const others = course_of(layer, other);
      double product = 0;
      double square = 0;
      double others_square = 0;
      for (index_t t = 0; t < steps; ++t) {
        double const theirs = deviation(others, t, layer, other);
        product = mul_then_add(mine[t], theirs, product);
        square = mul_then_add(mine[t], mine[t], square);
        others_square = mul_then_add(theirs, theirs, others_square);
      }
      double const scale = square_root(multiply(square, others_square));
      double const r = scale > 0 ? divide(product, scale) : 0.0;
      out(layer, e, other) = e == other ? 1.0 : maximum{}(-1.0, minimum{}(r, 1.0));
    });
  }

 private:
  /// Mean of the loads of an expert over the steps, and the power of two by which loads are scaled
  /// up if products of four would underflow. Scaling changes no other bit, and no correlation.
  struct course {
    int lift;
    double mean;
  };

  [[nodiscard]] PLIMSOLL_HD double value_of(index_t t, index_t layer, index_t e, int lift) const {
    auto const value = static_cast<double>(loads(t, layer, e));
    return lift == 0 ? value : scale_by_power_of_two(value, lift);
  }
  [[nodiscard]] PLIMSOLL_HD double deviation(course const& own_course, index_t t, index_t layer,
                                             index_t e) const {
    return add(value_of(t, layer, e, own_course.lift), -own_course.mean);
  }
  [[nodiscard]] PLIMSOLL_HD course course_of(index_t layer, index_t e) const {
    double const first = value_of(0, layer, e, 0);
    bool changes = false;
    double largest = 0;
    for (index_t t = 0; t < loads.extent(0); ++t) {
      double const value = value_of(t, layer, e, 0);
      changes = changes || value != first;
      largest = maximum{}(largest, value < 0 ? -value : value);
    }
    if (!changes) {
      return {0, first};  // the rounded mean of equal numbers may differ from them
    }
    auto const exponent = static_cast<int>(bits_of(largest) >> 52) - 1023;
    int const lift = exponent < -100 ? -exponent : 0;
    double sum = 0;
    for (index_t t = 0; t < loads.extent(0); ++t) {
      sum = add(sum, value_of(t, layer, e, lift));
    }
    return {lift, divide(sum, static_cast<double>(loads.extent(0)))};
  }
};

/// Body of `classify_experts`. Problem = layer.
template <class Loads>
struct classes_body {
  using device_team = block<128>;

  Loads loads;  ///< `[steps, layers, experts]`
  expert_use_options options;
  matrix_ref<expert_use> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<double>(loads.extent(0));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(2);
    index_t const steps = loads.extent(0);
    // Mean load of the experts in each step.
    double* const fair = memory.take<double>(steps);
    for (index_t t = 0; t < steps; ++t) {
      auto const load = [=, this](index_t e) { return static_cast<double>(loads(t, layer, e)); };
      double const mean = mean_of_row(team, experts, load, team.sum_ordered(experts, load));
      team.single([=] { fair[t] = mean; });
    }
    index_t const with_load = team.count(steps, [=](index_t t) { return fair[t] > 0; });
    team.for_each(experts, [=, this](index_t e) {
      index_t busy_steps = 0;
      double busy = 0;
      double busy_fair = 0;
      for (index_t t = 0; t < steps; ++t) {
        auto const load = static_cast<double>(loads(t, layer, e));
        if (load > multiply(options.busy, fair[t])) {
          ++busy_steps;
          busy = add(busy, load);
          busy_fair = add(busy_fair, fair[t]);
        }
      }
      auto const part = divide(static_cast<double>(busy_steps),
                               static_cast<double>(maximum{}(with_load, index_t{1})));
      bool const surges = busy_steps > 0 && busy >= multiply(options.surge, busy_fair);
      out(layer, e) = busy_steps > 0 && part >= options.consistent_part ? expert_use::consistent
                      : surges && part <= options.temporal_part         ? expert_use::temporal
                                                                        : expert_use::ordinary;
    });
  }
};

}}}  // namespace plimsoll::detail

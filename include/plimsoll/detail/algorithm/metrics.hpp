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

/// Body of `correlate`. Problem = layer and expert: its row of the matrix.
template <class Loads>
struct correlation_body {
  using device_team = warp;

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
    auto* const mine = memory.take<double>(steps);  // load - mean
    double const mean = mean_of(layer, e);
    team.for_each(steps, [=, this](index_t t) { mine[t] = add(value_of(t, layer, e), -mean); });
    // Every sum runs over the steps in order, so that both halves of the matrix agree.
    team.for_each(experts, [=, this](index_t other) {
      double const others_mean = mean_of(layer, other);
      double product = 0;
      double square = 0;
      double others_square = 0;
      for (index_t t = 0; t < steps; ++t) {
        double const theirs = add(value_of(t, layer, other), -others_mean);
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
  [[nodiscard]] PLIMSOLL_HD double value_of(index_t t, index_t layer, index_t e) const {
    return static_cast<double>(loads(t, layer, e));
  }
  [[nodiscard]] PLIMSOLL_HD double mean_of(index_t layer, index_t e) const {
    double const first = value_of(0, layer, e);
    bool changes = false;
    double sum = 0;
    for (index_t t = 0; t < loads.extent(0); ++t) {
      double const value = value_of(t, layer, e);
      changes = changes || value != first;
      sum = add(sum, value);
    }
    // The mean of equal numbers may be rounded to another.
    return changes ? divide(sum, static_cast<double>(loads.extent(0))) : first;
  }
};

/// Body of `classify_experts`. Problem = layer. `Options` and `Use` are the public types.
template <class Loads, class Options, class Use>
struct classes_body {
  using device_team = block<128>;

  Loads loads;  ///< `[steps, layers, experts]`
  Options options;
  matrix_ref<Use> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<double>(loads.extent(0));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(2);
    index_t const steps = loads.extent(0);
    auto* const fair = memory.take<double>(steps);  // what each expert would get of equal shares
    for (index_t t = 0; t < steps; ++t) {
      double const total = team.sum_ordered(
          experts, [=, this](index_t e) { return static_cast<double>(loads(t, layer, e)); });
      team.single([=] { fair[t] = divide(total, static_cast<double>(experts)); });
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
      out(layer, e) = busy_steps > 0 && part >= options.consistent_part ? Use::consistent
                      : surges && part <= options.temporal_part         ? Use::temporal
                                                                        : Use::ordinary;
    });
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of histories of steps, the body that checks loads and finds the steps with load, and means
/// over steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Consecutive steps of a history.
struct history_part {
  index_t first;
  index_t count;
};

/// The loads of a history from one step on.
template <class Loads>
struct loads_from_step {
  Loads loads;
  index_t first;

  PLIMSOLL_HD auto operator()(index_t step, index_t layer, index_t expert) const {
    return loads(first + step, layer, expert);
  }
};

/// Returns the loads of a part of a history.
template <class T>
tensor_ref<T> part_of(tensor_ref<T> const& loads, history_part const& part) {
  tensor_ref<T> result = loads;
  result.data += part.first * loads.stride(0);
  result.extents[0] = part.count;
  return result;
}
template <class F>
auto part_of(generated<F, 3> const& loads, history_part const& part) {
  return generate(loads_from_step<generated<F, 3>>{loads, part.first}, part.count, loads.extent(1),
                  loads.extent(2));
}

/// Checks the loads of a layer, and their total over all steps. Problem = layer.
template <class Loads>
struct history_check_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  Loads loads;              ///< `[steps, layers, experts]`
  std::uint8_t* loaded;     ///< `[steps, layers]`: whether the layer has load
  problem_report* reports;  ///< `[layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    index_t const steps = loads.extent(0);
    problem_report outcome{};
    double total = 0;
    for (index_t step = 0; step < steps; ++step) {
      auto const load = [this, step, layer](index_t e) { return loads(step, layer, e); };
      // An invalid load counts as 2^47, which makes the sum too large.
      double const sum = team.sum_ordered(loads.extent(2), [=](index_t e) {
        return is_load(load(e)) ? static_cast<double>(load(e)) : 0x1p47;
      });
      if (!outcome.refused && sum >= 0x1p47) {
        outcome = scale_loads(team, loads.extent(2), load).report();
        outcome.refused.also = steps > 1 ? step : -1;
      }
      total = add(total, sum);
      team.single([=, this] { loaded[step * loads.extent(1) + layer] = sum > 0 ? 1 : 0; });
    }
    if (!outcome.refused && total >= 0x1p47) {
      outcome = refusal(fault_kind::total_load, -1, total);
    }
    team.single([=, this] { reports[layer] = outcome; });
  }
};

/// Writes the mean of each row over the steps: the sum of its values, in order, over their number.
/// Problem = row.
template <class Values>
struct step_means_body {
  using device_team = warp;

  Values values;  ///< `[plans * layers, steps]`, or sums of some steps each
  index_t steps;
  matrix_ref<double> means;  ///< `[plans, layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t row) const {
    index_t const layers = means.extent(1);
    double const sum =
        team.sum_ordered(values.extent(1), [this, row](index_t i) { return values(row, i); });
    team.single(
        [=, this] { means(row / layers, row % layers) = divide(sum, static_cast<double>(steps)); });
  }
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `measure`, `correlate` and `classify_experts`: checks options, launches the bodies, and
/// summarizes measured rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/metrics.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/metrics_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_expert_use_options(std::string_view function,
                                      expert_use_options const& options) {
  expect_number(function, "options.busy", 0, 0x1p16, options.busy);
  expect_number(function, "options.consistent_part", 0, 1, options.consistent_part);
  expect_number(function, "options.temporal_part", 0, 1, options.temporal_part);
  expect_number(function, "options.surge", 0, 0x1p16, options.surge);
}

inline balance_summary summary_of(std::string_view function,
                                  std::vector<balance_stats> const& measured,
                                  empty_step_policy empty) {
  expect_enumerator(function, "empty", empty_step_policy::skip, empty);
  if (measured.empty()) {
    fail(function, "rows", "at least 1 row", "0");
  }
  balance_summary summary;
  double ratios = 0;
  double means = 0;
  double peaks = 0;
  std::size_t counted = 0;
  for (std::size_t row = 0; row < measured.size(); ++row) {
    double const balancedness = measured[row].balancedness;
    if (!(balancedness >= 0)) {
      fail(function, "rows", "rows measured from loads from 0 to below 2^47",
           text("other loads in row ", row));
    }
    if (empty == empty_step_policy::skip && measured[row].peak == 0) {
      continue;
    }
    ++counted;
    if (summary.worst_row < 0 || balancedness < summary.worst) {
      summary.worst = balancedness;
      summary.worst_row = static_cast<index_t>(row);
    }
    ratios += balancedness;
    means += measured[row].mean;
    peaks += measured[row].peak;
  }
  summary.mean_of_ratios = counted == 0 ? 1.0 : ratios / static_cast<double>(counted);
  summary.ratio_of_sums = peaks == 0 ? 1.0 : means / peaks;
  return summary;
}

/// Returns the pairs of temporal experts that `correlated_pairs` returns. Reads the matrix of one
/// layer at a time.
template <class Context>
std::vector<expert_pair> pairs_above(Context const& context,
                                     tensor_ref<double const> const& correlation,
                                     matrix_ref<expert_use const> const& use, double least) {
  index_t const layers = correlation.extent(0);
  index_t const experts = correlation.extent(1);
  std::vector<expert_use> const uses = rows_on_host(context, use);
  std::vector<expert_pair> pairs;
  for (index_t l = 0; l < layers; ++l) {
    matrix_ref<double const> of_layer(correlation.data + l * correlation.stride(0), experts,
                                      experts);
    of_layer.strides[0] = correlation.stride(1);
    of_layer.strides[1] = correlation.stride(2);
    std::vector<double> const r = rows_on_host(context, of_layer);
    auto const is_temporal = [&](index_t e) {
      return uses[static_cast<std::size_t>(l * experts + e)] == expert_use::temporal;
    };
    for (index_t a = 0; a < experts; ++a) {
      for (index_t b = a + 1; b < experts; ++b) {
        double const value = r[static_cast<std::size_t>(a * experts + b)];
        if (value >= least && is_temporal(a) && is_temporal(b)) {
          pairs.push_back({l, a, b, value});
        }
      }
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](expert_pair const& x, expert_pair const& y) {
    return x.correlation > y.correlation;
  });
  return pairs;
}

template <class Context, class Loads>
void enqueue_measure(Context const& context, Loads const& loads,
                     vector_ref<balance_stats> const& out) {
  launch(context, loads.extent(0), metrics_body<Loads>{loads, out});
}

template <class Context, class Loads>
void enqueue_correlate(Context const& context, Loads const& loads,
                       tensor_ref<double> const& correlation) {
  launch(context, loads.extent(1) * loads.extent(2), correlation_body<Loads>{loads, correlation});
}

template <class Context, class Loads>
void enqueue_classify(Context const& context, Loads const& loads, expert_use_options const& options,
                      matrix_ref<expert_use> const& use) {
  launch(context, loads.extent(1), classes_body<Loads>{loads, options, use});
}

}}}  // namespace plimsoll::detail

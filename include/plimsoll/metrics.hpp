// SPDX-License-Identifier: Apache-2.0
/// @file
/// How evenly loads are spread.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/metrics.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// How one row of loads (the ranks of a layer, the experts of a layer) is spread. A row without
/// load counts as balanced.
struct balance {
  double mean = 0;
  double peak = 0;
  /// mean / peak, in (0, 1]; 1 is perfect.
  double balancedness = 1;
  /// peak / mean, from 1; the literature also calls it PAR. TensorRT-LLM's ratio is this minus 1.
  double imbalance = 1;
  /// Population standard deviation / mean.
  double coefficient_of_variation = 0;

  /// Another name of `imbalance`, usual for the loads of experts: CRAFT calls a layer with more
  /// than 10 highly skewed.
  [[nodiscard]] PLIMSOLL_HD constexpr double peak_to_mean() const { return imbalance; }
};

/// Balance over many rows. Rows without load count as balanced.
struct balance_summary {
  /// Mean over rows of mean / peak (SGLang's aggregate).
  double mean_of_ratios = 1;
  /// Sum of means / sum of peaks (vLLM's aggregate).
  double ratio_of_sums = 1;
  /// Lowest balancedness of a row, and the first row that has it.
  double worst = 1;
  index_t worst_row = -1;
};

/// @brief Mean, peak, balancedness, imbalance and coefficient of variation of every row.
///
/// @param loads `[rows, columns]` in the policy's memory, 1 to 65535 columns; int32, uint32, int64,
///   float, double or generated
/// @param[out] out `[rows]` of `balance`. A row with a load that is negative, NaN, or 2^47 and more
///   gets NaN everywhere, which `summarize` refuses
/// @throws invalid_input for shapes
/// @complexity O(rows * columns), four passes over a row
/// @workspace none
/// @stream enqueues one kernel, does not synchronise
/// @determinism the same bits under every policy: sums are integers or in the order of
///   `sum_ordered` (see determinism.md)
template <execution_policy P, load_matrix_view Loads, output_of<balance, 1> Out>
void measure(P const& policy, Loads const& loads, Out&& out) {
  auto const load = detail::normalize<2>(loads);
  vector_ref<balance> const results = detail::normalize<1>(out);
  detail::expect_between("measure", "loads", 1, expert_limit, load.extent(1), "columns");
  detail::expect_extent("measure", "out", load.extent(0), results.extent(0), "rows");
  detail::launch(detail::resolve(policy), load.extent(0),
                 detail::metrics_body<std::remove_const_t<decltype(load)>, balance>{load, results});
}

/// @brief Both usual aggregates and the worst row of what `measure` wrote.
///
/// @param rows contiguous `balance`s in the policy's memory, at least one
/// @throws invalid_input for no rows, and for a row that `measure` could not measure
/// @complexity O(rows), on the calling thread
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, view_of<balance, 1> Rows>
balance_summary summarize(P const& policy, Rows&& rows) {
  std::vector<balance> const measured = read(policy, rows);
  if (measured.empty()) {
    detail::fail("summarize", "rows", "at least 1 row", "0");
  }
  balance_summary summary;
  double ratios = 0;
  double means = 0;
  double peaks = 0;
  for (std::size_t row = 0; row < measured.size(); ++row) {
    double const balancedness = measured[row].balancedness;
    if (!(balancedness >= 0)) {
      detail::fail("summarize", "rows", "rows measured from loads from 0 to below 2^47",
                   "other loads in row " + std::to_string(row));
    }
    if (summary.worst_row < 0 || balancedness < summary.worst) {
      summary.worst = balancedness;
      summary.worst_row = static_cast<index_t>(row);
    }
    ratios += balancedness;
    means += measured[row].mean;
    peaks += measured[row].peak;
  }
  summary.mean_of_ratios = ratios / static_cast<double>(measured.size());
  summary.ratio_of_sums = peaks == 0 ? 1.0 : means / peaks;
  return summary;
}

}  // namespace plimsoll

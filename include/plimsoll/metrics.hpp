// SPDX-License-Identifier: Apache-2.0
/// @file
/// Balance metrics of loads, and the use of experts over time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/metrics.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Balance of one row of loads: the ranks of a layer, or the experts of a layer. A row without load
/// counts as balanced.
struct balance_stats {
  double mean = 0;
  double peak = 0;
  /// mean / peak, in (0, 1]; 1 is perfect.
  double balancedness = 1;
  /// peak / mean, at least 1; 1 if all loads are equal. The literature also calls it PAR
  /// (peak-to-average ratio). TensorRT-LLM's imbalance ratio is this minus 1.
  double imbalance = 1;
  /// Population standard deviation / mean.
  double coefficient_of_variation = 0;

  /// Returns `imbalance`, under the name that is usual for loads of experts: CRAFT calls a layer
  /// with a ratio above 10 highly skewed.
  [[nodiscard]] PLIMSOLL_HD constexpr double peak_to_mean() const { return imbalance; }
};

/// Summary of the balance of many rows.
struct balance_summary {
  /// Mean over rows of mean / peak (SGLang's aggregate).
  double mean_of_ratios = 1;
  /// Sum of means / sum of peaks (vLLM's aggregate).
  double ratio_of_sums = 1;
  /// Lowest balancedness of any row, and the first row that has it.
  double worst = 1;
  index_t worst_row = -1;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Measures mean, peak, balancedness, imbalance and coefficient of variation of every row.
///
/// @param loads `[rows, columns]` in the policy's memory, 1 to 65535 columns; int32, uint32, int64,
///   float, double or generated
/// @param[out] out `[rows]` of `balance_stats`. A row with a load that is negative, NaN, or at
///   least 2^47 gets NaN in every member, and `summarize` refuses it
/// @throws invalid_input for wrong shapes
/// @complexity O(rows * columns), five passes over a row
/// @workspace none
/// @stream enqueues one kernel, does not synchronise
/// @determinism the same bits under every policy: sums are of integers, or in the fixed order of
///   `sum_ordered` (see determinism.md)
template <execution_policy P, load_matrix_view Loads, output_of<balance_stats, 1> Out>
void measure(P const& policy, Loads const& loads, Out&& out) {
  auto const load = detail::argument<2>("measure", "loads", loads);
  vector_ref<balance_stats> const results = detail::argument<1>("measure", "out", out);
  detail::expect_between("measure", "loads", 1, expert_limit, load.extent(1), "columns");
  detail::expect_extent("measure", "out", load.extent(0), results.extent(0), "rows");
  detail::launch(
      detail::resolve(policy), load.extent(0),
      detail::metrics_body<std::remove_const_t<decltype(load)>, balance_stats>{load, results});
}

}  // namespace PLIMSOLL_DEVICE_ABI

/// Treatment of rows without load in `summarize`, such as steps that a recorder has not filled yet
/// or layers that were not served.
enum class empty_step_policy : std::int32_t {
  count,  ///< counted as balanced
  skip    ///< left out of every figure
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Summarizes the output of `measure`: both usual aggregates, and the worst row.
///
/// @param rows the output of `measure`, in the policy's memory, at least one row
/// @param empty treatment of rows without load. With `skip`, if no row has load, the summary is 1,
///   1, 1 and worst row -1
/// @throws invalid_input for no rows, and for a row that `measure` filled with NaN
/// @complexity O(rows), on the calling thread
/// @stream synchronises once
/// @determinism the same bits under every policy
template <execution_policy P, view_of<balance_stats, 1> Rows>
balance_summary summarize(P const& policy, Rows&& rows,
                          empty_step_policy empty = empty_step_policy::count) {
  std::vector<balance_stats> const measured = read(policy, rows);
  if (measured.empty()) {
    detail::fail("summarize", "rows", "at least 1 row", "0");
  }
  balance_summary summary;
  double ratios = 0;
  double means = 0;
  double peaks = 0;
  std::size_t counted = 0;
  for (std::size_t row = 0; row < measured.size(); ++row) {
    double const balancedness = measured[row].balancedness;
    if (!(balancedness >= 0)) {
      detail::fail("summarize", "rows", "rows measured from loads from 0 to below 2^47",
                   detail::text("other loads in row ", row));
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

}  // namespace PLIMSOLL_DEVICE_ABI

/// Use of an expert over time.
enum class expert_use : std::int32_t {
  ordinary,
  consistent,  ///< busy in most steps
  temporal     ///< busy in few steps, with a high load in these: an average hides it
};

/// Thresholds of `classify_experts`. The paper gives none; its consistent experts are busy in 85 %
/// of the steps, its temporal ones in 17 %, with three times the tokens.
struct expert_use_options {
  /// An expert is busy in a step if its load exceeds this multiple of the mean over the experts.
  double busy = 1;
  /// An expert is consistent if it is busy in at least this fraction of the steps with load.
  double consistent_part = 0.7;
  /// An expert is temporal if it is busy in at most this fraction of the steps with load, and its
  /// load in these steps is at least `surge` times the mean over the experts.
  double temporal_part = 0.3;
  /// See `temporal_part`.
  double surge = 2;
};

/// Two experts of a layer, and the correlation of their loads over the steps.
struct expert_pair {
  index_t layer = 0;
  index_t first = 0;
  index_t second = 0;
  double correlation = 0;
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Computes Pearson's correlation, over the steps, of the loads of every two experts of a
/// layer.
///
/// Experts that are busy together should not share a rank (GEM, arXiv 2605.19945, section 3.2).
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; at least one step; int32,
///   uint32, int64, float, double or generated; magnitudes up to 2^47
/// @param[out] correlation `[layers, experts, experts]` double, from -1 to 1; 1 of an expert with
///   itself, 0 with an expert whose load never changes
/// @throws invalid_input for wrong shapes
/// @complexity O(layers experts^2 steps)
/// @workspace 8 bytes per step for each problem in flight
/// @stream enqueues one kernel, does not synchronise
/// @determinism the same bits under every policy; the matrix is symmetric to the bit
template <execution_policy P, load_tensor_view Loads, output_of<double, 3> Out>
void correlate(P const& policy, Loads const& loads, Out&& correlation) {
  constexpr char const* name = "correlate";
  auto const load = detail::argument<3>(name, "loads", loads);
  tensor_ref<double> const out = detail::argument<3>(name, "correlation", correlation);
  index_t const experts = load.extent(2);
  detail::expect_between(name, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::expect_between(name, "loads", 1, expert_limit, experts, "experts");
  detail::expect_extent(name, "correlation", load.extent(1), out.extent(0), "layers");
  detail::expect_extent(name, "correlation", experts, out.extent(1), "experts");
  detail::expect_extent(name, "correlation", experts, out.extent(2), "experts");
  detail::launch(detail::resolve(policy), load.extent(1) * experts,
                 detail::correlation_body<std::remove_const_t<decltype(load)>>{load, out});
}

/// @brief Classifies every expert as consistent (busy in most steps), temporal (busy in few steps,
/// with a high load in these) or ordinary.
///
/// @param loads `[steps, layers, experts]`, as for `correlate`; at least 0
/// @param options the thresholds
/// @param[out] use `[layers, experts]` of `expert_use`
/// @throws invalid_input for wrong shapes and options
/// @complexity O(layers experts steps)
/// @workspace 8 bytes per step for each problem in flight
/// @stream enqueues one kernel, does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, output_of<expert_use, 2> Out>
void classify_experts(P const& policy, Loads const& loads, expert_use_options const& options,
                      Out&& use) {
  constexpr char const* name = "classify_experts";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<expert_use> const out = detail::argument<2>(name, "use", use);
  detail::expect_between(name, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::expect_between(name, "loads", 1, expert_limit, load.extent(2), "experts");
  detail::expect_extent(name, "use", load.extent(1), out.extent(0), "layers");
  detail::expect_extent(name, "use", load.extent(2), out.extent(1), "experts");
  detail::expect_number(name, "options.busy", 0, 0x1p16, options.busy);
  detail::expect_number(name, "options.consistent_part", 0, 1, options.consistent_part);
  detail::expect_number(name, "options.temporal_part", 0, 1, options.temporal_part);
  detail::expect_number(name, "options.surge", 0, 0x1p16, options.surge);
  using body =
      detail::classes_body<std::remove_const_t<decltype(load)>, expert_use_options, expert_use>;
  detail::launch(detail::resolve(policy), load.extent(1), body{load, options, out});
}

/// @brief Lists the pairs of temporal experts whose loads are correlated, highest correlation
/// first. A plan from averaged loads may put both experts of such a pair on one rank.
///
/// @param correlation `[layers, experts, experts]`, in the policy's memory, as `correlate` writes
///   it
/// @param use `[layers, experts]`, as `classify_experts` writes it
/// @param least the lowest correlation to list, -1 to 1
/// @return pairs with first < second, sorted by descending correlation, then by ascending layer and
///   experts
/// @throws invalid_input for wrong shapes and a wrong `least`
/// @complexity O(layers experts^2), on the calling thread
/// @stream synchronises for each layer
/// @determinism the same bits under every policy
template <execution_policy P, view_of<double, 3> Correlation, view_of<expert_use, 2> Use>
std::vector<expert_pair> correlated_pairs(P const& policy, Correlation&& correlation, Use&& use,
                                          double least = 0.8) {
  constexpr char const* name = "correlated_pairs";
  tensor_ref<double const> const matrix = detail::argument<3>(name, "correlation", correlation);
  matrix_ref<expert_use const> const classes = detail::argument<2>(name, "use", use);
  index_t const layers = matrix.extent(0);
  index_t const experts = matrix.extent(1);
  detail::expect_extent(name, "correlation", experts, matrix.extent(2), "experts");
  detail::expect_extent(name, "use", layers, classes.extent(0), "layers");
  detail::expect_extent(name, "use", experts, classes.extent(1), "experts");
  detail::expect_number(name, "least", -1, 1, least);
  auto const context = detail::resolve(policy);
  std::vector<expert_use> const uses = detail::rows_on_host(context, classes);
  std::vector<expert_pair> pairs;
  for (index_t l = 0; l < layers; ++l) {
    matrix_ref<double const> of_layer(matrix.data + l * matrix.stride(0), experts, experts);
    of_layer.strides[0] = matrix.stride(1);
    of_layer.strides[1] = matrix.stride(2);
    std::vector<double> const r = detail::rows_on_host(context, of_layer);
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

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

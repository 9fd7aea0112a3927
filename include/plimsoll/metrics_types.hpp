// SPDX-License-Identifier: Apache-2.0
/// @file
/// Balance of loads and use of experts over time, without the functions that measure them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Balance of one row of loads: the ranks of a layer, or the experts of a layer. A row without load
/// counts as balanced.
struct balance_stats {
  /// Mean over the columns, in the unit of the loads.
  double mean = 0;
  /// Largest load of a column.
  double peak = 0;
  /// Mean / peak, in (0, 1]; 1 is perfect. SGLang calls it utilization.
  double balancedness = 1;
  /// Peak / mean, at least 1; 1 if all loads are equal. The literature also calls it PAR
  /// (peak-to-average ratio). TensorRT-LLM's imbalance ratio is this minus 1. CRAFT's skew is this
  /// of the experts of a layer.
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
  /// Lowest balancedness of any row.
  double worst = 1;
  /// The first row with the lowest balancedness; -1 if no row counts.
  index_t worst_row = -1;
};

/// Treatment of rows without load in `summarize`, such as steps that a recorder has not filled yet
/// or layers that were not served.
enum class empty_step_policy : std::int32_t {
  count,  ///< counted as balanced
  skip    ///< left out of every figure
};

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
  /// load in these steps is high enough (`surge`).
  double temporal_part = 0.3;
  /// The load of a temporal expert, summed over its busy steps, is at least this multiple of the
  /// mean over the experts, summed over the same steps.
  double surge = 2;
};

/// Two experts of a layer, and the correlation of their loads over the steps.
struct expert_pair {
  /// Layer of both experts.
  index_t layer = 0;
  /// The expert with the lower id.
  index_t first = 0;
  /// The other expert.
  index_t second = 0;
  /// Pearson's correlation of their loads, -1 to 1.
  double correlation = 0;
};

}}  // namespace plimsoll

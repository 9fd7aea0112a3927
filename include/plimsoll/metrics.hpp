// SPDX-License-Identifier: Apache-2.0
/// @file
/// Balance metrics of loads, and the use of experts over time.
#pragma once

#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/metrics.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/metrics_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Measures mean, peak, balancedness, imbalance and coefficient of variation of every row.
///
/// @param loads `[rows, columns]` in the policy's memory, 1 to 65535 columns; int32, uint32, int64,
///   float, double or generated
/// @param[out] out `[rows]` of `balance_stats`. A row with a load that is negative, NaN, or at
///   least 2^47 gets NaN in every member, and `summarize` refuses it
/// @throws invalid_input for wrong shapes
/// @complexity O(rows * columns), five passes over a row
/// @workspace none
/// @stream enqueues one kernel, does not synchronize
/// @determinism the same bits under every policy: sums are of integers, or in the fixed order of
///   `sum_ordered` (see docs/design.md)
template <execution_policy P, class Loads, class Out>
void measure(P const& policy, Loads const& loads, Out&& out) {
  detail::checked_call call("measure");
  auto const load = PLIMSOLL_LOADS(call, "measure", loads, "[rows, columns]");
  auto const results = PLIMSOLL_OUTPUT(balance_stats, call, "measure", out, "[rows]");
  detail::expect_between(call, "loads", 1, expert_limit, load.extent(1), "columns");
  detail::enqueue_measure(detail::resolve(policy), load, results);
}

/// @brief Returns what `measure(policy, loads, out)` writes, as an array `[rows]` in the policy's
/// memory.
///
/// @workspace keeps 40 bytes per row, from the policy
template <execution_policy P, class Loads>
array<balance_stats, P> measure(P const& policy, Loads const& loads) {
  auto const load = PLIMSOLL_LOADS(unchecked, "measure", loads, "[rows, columns]");
  array<balance_stats, P> out(policy, load.extent(0));
  measure(policy, load, out);
  return out;
}

/// @brief Summarizes the output of `measure`: both usual aggregates, and the worst row.
///
/// @param rows the output of `measure`, in the policy's memory, at least one row
/// @param empty treatment of rows without load. With `skip`, if no row has load, the summary is 1,
///   1, 1 and worst row -1
/// @throws invalid_input for no rows, and for a row that `measure` filled with NaN
/// @complexity O(rows), on the calling thread
/// @stream synchronizes once
/// @determinism the same bits under every policy
template <execution_policy P, class Rows>
balance_summary summarize(P const& policy, Rows const& rows,
                          empty_step_policy empty = empty_step_policy::count) {
  auto const measured = PLIMSOLL_INPUT(balance_stats, unchecked, "summarize", rows, "[rows]");
  return detail::summary_of("summarize", read(policy, measured), empty);
}

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
/// @stream enqueues one kernel, does not synchronize
/// @determinism the same bits under every policy; the matrix is symmetric to the bit
template <execution_policy P, class Loads, class Out>
void correlate(P const& policy, Loads const& loads, Out&& correlation) {
  detail::checked_call call("correlate");
  auto const load = PLIMSOLL_LOADS(call, "correlate", loads, "[steps, layers, experts]");
  detail::expect_between(call, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::expect_between(call, "loads", 1, expert_limit, load.extent(2), "experts");
  auto const out =
      PLIMSOLL_OUTPUT(double, call, "correlate", correlation, "[layers, experts, experts]");
  detail::enqueue_correlate(detail::resolve(policy), load, out);
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
/// @stream enqueues one kernel, does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Out>
void classify_experts(P const& policy, Loads const& loads, expert_use_options const& options,
                      Out&& use) {
  detail::checked_call call("classify_experts");
  auto const load = PLIMSOLL_LOADS(call, "classify_experts", loads, "[steps, layers, experts]");
  detail::expect_between(call, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  detail::expect_between(call, "loads", 1, expert_limit, load.extent(2), "experts");
  auto const out = PLIMSOLL_OUTPUT(expert_use, call, "classify_experts", use, "[layers, experts]");
  detail::expect_expert_use_options(call, options);
  detail::enqueue_classify(detail::resolve(policy), load, options, out);
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
/// @stream synchronizes for each layer
/// @determinism the same bits under every policy
template <execution_policy P, class Correlation, class Use>
std::vector<expert_pair> correlated_pairs(P const& policy, Correlation const& correlation,
                                          Use const& use, double least = 0.8) {
  detail::checked_call call("correlated_pairs");
  tensor_ref<double const> const matrix =
      PLIMSOLL_INPUT(double, call, "correlated_pairs", correlation, "[layers, experts, experts]");
  matrix_ref<expert_use const> const classes =
      PLIMSOLL_INPUT(expert_use, call, "correlated_pairs", use, "[layers, experts]");
  detail::expect_number(call, "least", -1, 1, least);
  return detail::pairs_above(detail::resolve(policy), matrix, classes, least);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

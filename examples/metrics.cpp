// SPDX-License-Identifier: Apache-2.0
// The balance of three layers on four ranks, and two experts that are busy in the same steps.
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/metrics.hpp>
#include <vector>

int main() {
  // [balance]
  // Tokens of four ranks in three layers; the last layer was not served.
  int const tokens[12] = {240, 200, 210, 150, 50, 10, 10, 10, 0, 0, 0, 0};
  plimsoll::array const loads(plimsoll::seq, tokens, 3, 4);  // [rows, columns]
  auto const rows = plimsoll::measure(plimsoll::seq, loads);
  for (plimsoll::balance_stats const& row : rows.to_host()) {
    std::printf("mean %.0f, peak %.0f, balancedness %.3f, imbalance %.2f\n", row.mean, row.peak,
                row.balancedness, row.imbalance);
  }
  auto const served = plimsoll::empty_step_policy::skip;
  auto const summary = plimsoll::summarize(plimsoll::seq, rows, served);
  std::printf("mean of ratios %.3f, ratio of sums %.3f, worst row %d\n", summary.mean_of_ratios,
              summary.ratio_of_sums, int(summary.worst_row));
  // [end]

  // [experts]
  // Ten steps of eight experts: 2 is always busy; 0 and 1 are busy in the same two steps.
  std::vector<int> trace;
  for (int step = 0; step < 10; ++step) {
    bool const burst = step % 5 == 2;
    trace.insert(trace.end(), {burst ? 900 : 20, burst ? 700 + step : 30, 500, 90, 90, 80, 80, 70});
  }
  plimsoll::array const steps(plimsoll::seq, trace, 10, 1, 8);         // [steps, layers, experts]
  auto correlation = plimsoll::zeros<double>(plimsoll::seq, 1, 8, 8);  // [layers, experts, experts]
  auto use = plimsoll::zeros<plimsoll::expert_use>(plimsoll::seq, 1, 8);  // [layers, experts]
  plimsoll::correlate(plimsoll::seq, steps, correlation);
  plimsoll::classify_experts(plimsoll::seq, steps, {}, use);
  for (auto const& pair : plimsoll::correlated_pairs(plimsoll::seq, correlation, use)) {
    std::printf("layer %d: temporal experts %d and %d, correlation %.4f\n", int(pair.layer),
                int(pair.first), int(pair.second), pair.correlation);
  }
  bool const consistent = use.to_host()[2] == plimsoll::expert_use::consistent;
  std::printf("expert 2 is %s\n", consistent ? "consistent" : "not consistent");
  // [end]
}

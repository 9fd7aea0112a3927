// SPDX-License-Identifier: Apache-2.0
/// @file
/// The performance goals; the only copy of their limits.
#pragma once

#include <optional>

namespace examples {

/// A benchmark `goal/<name>`. Limits are medians in microseconds.
struct goal {
  char const* name;
  char const* what;
  std::optional<double> host_limit;
  std::optional<double> h200_limit;
};

// A goal enters with its benchmark.
inline constexpr goal all_goals[] = {
    {"eplb", "rebalance 58 layers x 256 experts, 320 slots, 64 ranks, one core", 1500, 200},
    {"craft",
     "estimate, allocate and place: 3000 steps x 58 layers x 256 experts, 64 ranks, 7 replica "
     "counts, two cores",
     150000, 3000},
    {"minmax_lp", "split one layer of 256 experts, 64 ranks, 64 additional replicas, gap 1e-6", 3,
     std::nullopt},
    {"minmax_lp_dense", "the same with 256 additional replicas", 60, std::nullopt},
};

}  // namespace examples

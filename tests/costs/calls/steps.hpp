// SPDX-License-Identifier: Apache-2.0
// Counts the steps of one thread by the basic blocks that the compiler reports (g++'s
// -fsanitize-coverage=trace-pc).
#pragma once

#include <cstdint>

namespace device_costs {

/// Starts to count basic blocks.
void start_counting();

/// Stops, and returns the number of executions of the most frequent block since the start: the
/// iterations of its loop, or 1 for code without a loop.
std::int64_t stop_counting();

}  // namespace device_costs

// SPDX-License-Identifier: Apache-2.0
// Plans two layers on two ranks, of which rank 0 is slower, so that their steps end early.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/gem.hpp>

int main() {
  // [example]
  // Rows of eight: layer 0, then layer 1.
  int const tokens[] = {90, 60, 40, 10, 20, 80, 70, 30,   // step 0
                        10, 80, 90, 20, 90, 10, 10, 90,   // step 1
                        70, 60, 60, 10, 40, 60, 40, 60};  // step 2

  plimsoll::array const loads(plimsoll::seq, tokens, 3, 2, 4);  // [steps, layers, experts]
  // 3 us more for each tile of 32 tokens. Rank 0 takes 12 % longer.
  std::int64_t const samples[] = {32, 64, 96, 128, 160, 192, 224};
  double const microseconds[] = {23, 26, 29, 32, 35, 38, 41};
  double const speeds[] = {1 / 1.12, 1};
  plimsoll::latency_curves const curves{
      .tokens = samples, .latency = {microseconds, 1, 7}, .dense_until = 224, .speeds = speeds};
  auto const plan = plimsoll::gem(plimsoll::seq, loads, curves, 4, {.on = {.ranks = 2}});
  auto const map = plan.physical_to_logical.view();
  for (int layer = 0; layer < 2; ++layer) {
    auto const& certificate = plan.certificates[static_cast<std::size_t>(layer)];
    std::printf("layer %d: rank 0 has experts %d %d, rank 1 %d %d; %.2f us, not below %.2f\n",
                layer, map(layer, 0), map(layer, 1), map(layer, 2), map(layer, 3),
                certificate.value, certificate.lower_bound);
  }
  // [end]

  // [trace_length]
  // Plans on the last step, or on both steps, before step 2, and measures step 2.
  auto latencies = plimsoll::zeros<double>(plimsoll::seq, 2, 2);  // [lengths, layers]
  plimsoll::trace_length_latencies(plimsoll::seq, loads, curves, 4, 2, {1, 2}, {.on = {.ranks = 2}},
                                   latencies);
  for (int i = 0; i < 2; ++i) {
    std::printf("planned on %d: %.2f and %.2f us\n", i + 1, latencies.view()(i, 0),
                latencies.view()(i, 1));
  }
  // [end]
}

// SPDX-License-Identifier: Apache-2.0
// Four tokens choose one of two experts. Three choose expert 0, which keeps only two of them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <vector>

int main() {
  // [example]
  std::vector<float> const router{2, 0, 3, 0, 1, 0, 0, 1};
  plimsoll::array const logits(plimsoll::seq, router, 4, 2);  // [tokens, experts]

  plimsoll::token_drop drop(
      plimsoll::seq, {.route = {.k = 1}, .limit = {.experts = 2, .max_tokens = 4, .factor = 1}});

  auto ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4, drop.width());
  auto weights = plimsoll::zeros<float>(plimsoll::seq, 4, drop.width());
  auto counts = plimsoll::zeros<std::int32_t>(plimsoll::seq, 2);
  auto report = plimsoll::zeros<plimsoll::capacity_report>(plimsoll::seq);
  drop.apply(
      logits,
      {.ids = ids.view(), .weights = weights.view(), .counts = counts.view(), .report = report});
  // [end]

  std::printf("capacity %d\n", static_cast<int>(drop.capacity(4)));
  auto const expert = ids.to_host();
  auto const weight = weights.to_host();
  for (std::size_t token = 0; token < 4; ++token) {
    std::printf("token %zu: expert %d, weight %.3f\n", token, expert[token],
                static_cast<double>(weight[token]));
  }
  std::printf("tokens of experts: %d %d\n", counts.to_host()[0], counts.to_host()[1]);
  std::printf("dropped %.0f %% of the choices\n", 100 * report.to_host().dropped_fraction);
}

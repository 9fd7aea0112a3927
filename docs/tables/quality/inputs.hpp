// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inputs of the quality tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../../examples/apps/make_loads/popularity.hpp"
#include "../../../examples/apps/plan_experts/plan.hpp"
#include "../traces.hpp"

namespace examples {

/// Loads `[layers, experts]`.
struct input {
  index_t layers;
  index_t experts;
  std::vector<std::int64_t> loads;

  [[nodiscard]] plimsoll::matrix_ref<std::int64_t const> view() const {
    return {loads, layers, experts};
  }
};

/// Returns loads for which EPLB's peak is far above the lowest possible.
[[nodiscard]] inline input hand_made_loads() {
  return {1, 8, {600, 560, 120, 120, 20, 10, 10, 10}};
}

/// Returns loads of popularities exp(z), z standard normal, and 131072 tokens that visit 8 experts
/// each: those of the second step of `make_loads --tokens 131072 --top-k 8 --skew 0 --drift 1`.
[[nodiscard]] inline input lognormal_loads(index_t layers, index_t experts) {
  constexpr std::uint64_t seed = 0;
  constexpr std::int64_t tokens = 131072;
  constexpr std::int64_t top_k = 8;
  input result{layers, experts, {}};
  std::vector<std::int32_t> counts(static_cast<std::size_t>(experts));
  for (index_t layer = 0; layer < layers; ++layer) {
    layer_popularity popularity(seed, static_cast<std::uint64_t>(layer), counts.size(), 0);
    popularity.walk(1);
    count_tokens(popularity.weights(), tokens * top_k, tokens, counts);
    result.loads.insert(result.loads.end(), counts.begin(), counts.end());
  }
  return result;
}

/// Reads counts `[parts, layers, experts]` of a file and sums them over the parts.
[[nodiscard]] inline input measured_loads(std::string const& file) {
  auto const counts = measured_counts(file, 1);
  input result{counts.shape[1], counts.shape[2], {}};
  result.loads.resize(static_cast<std::size_t>(result.layers * result.experts));
  for (std::size_t i = 0; i < counts.values.size(); ++i) {
    result.loads[i % result.loads.size()] += counts.values[i];
  }
  return result;
}

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of token counts, windows and decaying sums; counters of ids and of tokens in slots.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Treatment of the values that the outputs hold before a call.
enum class count_mode : std::int32_t {
  overwrite,  ///< replaces them
  add         ///< adds to them
};

/// Options of `count_tokens` and `count_tokens_by_source`.
struct count_options {
  /// Replaces counts and counters (`overwrite`) or adds to them (`add`).
  count_mode mode = count_mode::overwrite;
};

/// Options of `load_window`.
struct load_window_options {
  /// Number of steps in a full window, 1 to 2^31 - 1. vLLM keeps 1000.
  index_t window = 1000;
};

/// Options of `load_decay`.
struct load_decay_options {
  /// Weight of a step relative to the step after it, above 0 and up to 1. TensorRT-LLM
  /// has 0.9.
  double decay = 0.9;
};

/// Counts of one layer's ids by validity; the three add up to the number of ids.
struct routing_counters {
  std::int64_t routed = 0;        ///< Ids in [0, experts), counted for an expert.
  std::int64_t unrouted = 0;      ///< Ids of -1.
  std::int64_t out_of_range = 0;  ///< All other ids, and ids of tokens outside every source range.
};

/// Counts of one layer's tokens by slot contents; the three add up to the sum over all slots.
struct scatter_counters {
  std::int64_t scattered = 0;     ///< Tokens counted for an expert.
  std::int64_t empty_slots = 0;   ///< Tokens in slots that hold -1.
  std::int64_t out_of_range = 0;  ///< Tokens in slots that hold another id outside [0, experts).
};

}}  // namespace plimsoll

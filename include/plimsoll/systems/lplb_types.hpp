// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of LPLB.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

struct lplb_options {
  /// A tolerance of 0, so that splits are optimal and the peak in whole tokens is the smallest.
  minmax_lp_options lp = {.tolerance = 0};
  /// The most token copies (tokens times k) of one `dispatch`.
  index_t max_token_copies = 0;
  /// Meets the quotas exactly, in the order of tokens, or on average, by draws.
  dispatch_method method = dispatch_method::in_order;
  /// For `sampled`: key of the random number generator.
  std::uint64_t seed = 0;
};

/// Random numbers of one `lplb::dispatch` of sampled tokens.
struct lplb_batch {
  /// Subsequence of the random numbers: one per step and layer. A CUDA graph replays the value of
  /// its capture.
  std::uint64_t subsequence = 0;
  /// The number of the first token, if the batch is a part of a larger one.
  std::uint64_t first_token = 0;
};

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and results of `round_split`, `divide_quotas` and `dispatch`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The result of `round_split` for one layer.
struct quota_report {
  std::int64_t peak = 0;   ///< Tokens of the most loaded rank: at most `split_peak`, rounded up.
  double split_peak = 0;   ///< Load of the most loaded rank in the split, with its fraction.
  std::int64_t moves = 0;  ///< The number of times that fractions moved along a cycle or a path.
  /// None, or the value for which all quotas of the layer are 0; `check` turns that into an error.
  fault refused = {};
};

/// The method by which `dispatch` chooses among an expert's replicas.
enum class dispatch_method : std::int32_t {
  in_order,  ///< the first tokens fill the quota of the first replica, the next that of the second
  sampled    ///< each token draws a replica with probability quota / load
};

/// Options of `dispatch`.
struct dispatch_options {
  /// Experts of the layer, 1 to 65535.
  index_t experts = 0;
  /// Meets the quotas exactly, in the order of tokens, or on average, by draws.
  dispatch_method method = dispatch_method::in_order;
  /// For `sampled`: the key of the random number generator.
  std::uint64_t seed = 0;
  /// For `sampled`: the subsequence of random numbers, different for each step and layer.
  std::uint64_t subsequence = 0;
  /// For `sampled`: the number of the first token, if the batch is a part of a larger one.
  std::uint64_t first_token = 0;
};

/// Counts the ids of a batch by outcome. The counts other than beyond_quota add up to the number of
/// ids.
struct dispatch_counters {
  std::int64_t routed = 0;  ///< Ids assigned to a slot.
  /// Routed ids that exceed the quotas of their expert. `in_order` assigns them to its slots
  /// in turn.
  std::int64_t beyond_quota = 0;
  std::int64_t without_slot = 0;  ///< Ids of experts that have no slot; they get slot -1.
  std::int64_t unrouted = 0;      ///< Ids of -1; they get slot -1.
  std::int64_t out_of_range = 0;  ///< All other ids; they get slot -1.
};

}}  // namespace plimsoll

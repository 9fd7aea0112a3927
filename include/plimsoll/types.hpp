// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small types that several primitives share.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// Extents, strides and positions.
using index_t = std::int64_t;

/// Element types in which loads may be given: token copies per expert, or any non-negative measure.
template <class T>
concept load_value = (std::floating_point<T> && sizeof(T) <= 8) ||
                     (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8)) ||
                     (std::unsigned_integral<T> && sizeof(T) == 4);

/// The total load of one problem (a layer of a step) must stay below this.
inline constexpr std::int64_t load_limit = std::int64_t{1} << 47;
/// Largest number of ranks, and of copies of one expert.
inline constexpr index_t rank_limit = (index_t{1} << 15) - 1;
/// Largest number of experts in a layer.
inline constexpr index_t expert_limit = (index_t{1} << 16) - 1;

/// Where two replicas of one expert should not meet.
enum class sharing : std::int32_t {
  allowed,        ///< they may meet anywhere, as in EPLB
  not_on_a_rank,  ///< each on a rank of its own
  not_on_a_node   ///< each on a node of its own
};

/// What becomes of a rule that cannot be kept.
enum class strictness : std::int32_t {
  preferred,  ///< broken for replicas that find no room otherwise
  required    ///< invalid_input
};

/// What is known about a result.
enum class certificate_status : std::int32_t {
  optimal,           ///< value equals lower_bound: nothing better exists
  within_tolerance,  ///< the gap is no larger than the tolerance asked for
  feasible,          ///< legal; the gap between value and lower_bound is what the method leaves
  work_limit,        ///< legal; stopped by the work limit with this gap
  infeasible         ///< no legal result exists
};

/// Proof of quality that every optimiser gives per problem. Value and bound are in units of load
/// (or of load per speed where ranks have speeds); smaller is better.
struct certificate {
  double value = 0;        ///< what the result attains
  double lower_bound = 0;  ///< what no result can go below
  std::int64_t work = 0;   ///< steps done, in the unit that the primitive documents
  certificate_status status = certificate_status::feasible;

  /// (value - lower_bound) / lower_bound; 0 where both are 0.
  [[nodiscard]] constexpr double gap() const {
    return value == lower_bound ? 0.0 : (value - lower_bound) / lower_bound;
  }
};

}  // namespace plimsoll

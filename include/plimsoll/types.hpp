// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small types that several primitives share.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Type of extents, strides and indices.
using index_t = std::int64_t;

/// Element types of loads: float, double, int32, int64 and uint32. A load is a number of token
/// copies, or any other non-negative measure.
template <class T>
concept load_value = (std::floating_point<T> && sizeof(T) <= 8) ||
                     (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8)) ||
                     (std::unsigned_integral<T> && sizeof(T) == 4);

/// Upper limit, not included, of the total load of one problem (a layer of a step).
inline constexpr std::int64_t load_limit = std::int64_t{1} << 47;
/// Largest number of ranks, and of replicas of one expert.
inline constexpr index_t rank_limit = (index_t{1} << 15) - 1;
/// Largest number of experts in a layer.
inline constexpr index_t expert_limit = (index_t{1} << 16) - 1;

namespace detail {

/// Converts a 16-bit IEEE 754 interchange format with `Exponent` exponent bits and `Fraction`
/// fraction bits to float, exactly.
template <int Exponent, int Fraction>
PLIMSOLL_HD constexpr float widen(std::uint16_t bits) {
  constexpr int shift = 23 - Fraction;
  constexpr std::uint32_t top = (1u << Exponent) - 1;
  constexpr std::uint32_t bias = 127 - (top >> 1);
  std::uint32_t const sign = std::uint32_t{bits} >> 15 << 31;
  std::uint32_t const exponent = (std::uint32_t{bits} >> Fraction) & top;
  std::uint32_t const fraction = bits & ((1u << Fraction) - 1);
  if (exponent == 0 && bias != 0) {
    // Subnormal: `fraction` times the smallest subnormal, 2^(bias + 1 - 127 - Fraction).
    float const unit = __builtin_bit_cast(float, (bias + 1 - Fraction) << 23);
    float const size = static_cast<float>(fraction) * unit;
    return sign != 0 ? -size : size;
  }
  std::uint32_t const wide = exponent == top ? 0xffu : exponent + bias;
  return __builtin_bit_cast(float, sign | (wide << 23) | (fraction << shift));
}

}  // namespace detail

/// Half-precision storage type (IEEE 754 binary16) for router scores. Under a CUDA compiler, a view
/// of `__half` is accepted as a view of `float16`. Arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;
  PLIMSOLL_HD constexpr operator float() const { return detail::widen<5, 10>(bits); }
};
/// bfloat16 storage type: the upper half of a float. Under a CUDA compiler, a view of
/// `__nv_bfloat16` is accepted as a view of `bfloat16`.
struct bfloat16 {
  std::uint16_t bits = 0;
  PLIMSOLL_HD constexpr operator float() const { return detail::widen<8, 7>(bits); }
};

namespace detail {

/// Type by which the library reads scores of type `T`. detail/device/scores.cuh specializes it for
/// CUDA's types.
template <class T>
struct score_storage {
  using type = T;
};

}  // namespace detail

/// Anti-affinity of the replicas of one expert: the places that two replicas must not share.
enum class anti_affinity : std::int32_t {
  none,  ///< no restriction, as in EPLB
  rank,  ///< at most one replica of an expert per rank
  node   ///< at most one replica of an expert per node
};

/// Strength of a constraint: soft or hard.
enum class strictness : std::int32_t {
  preferred,  ///< soft: violated by replicas that fit in no other slot
  required    ///< hard: throws invalid_input if it cannot be met
};

/// Split of an expert's tokens among its copies.
enum class split_rule : std::int32_t {
  even,    ///< every copy gets the same number
  optimal  ///< so that the largest load of a rank is as small as possible, as by `minmax_lp`
};

/// Function that turns a router's outputs into scores.
enum class score_function : std::int32_t {
  none,     ///< the outputs are scores already
  softmax,  ///< softmax over the experts of a token
  sigmoid   ///< sigmoid of each output
};

/// Normalization of the weights of a token.
enum class normalization : std::int32_t {
  none,    ///< weights stay as they are
  to_one,  ///< they add up to 1
  to_sum   ///< they add up to the weights of all of the token's choices, dropped ones included
};

/// Direction of rounding to whole numbers.
enum class rounding_mode : std::int32_t { down, up };

/// Drop policy: which (token, expert) pairs an expert keeps if it gets more than its capacity.
enum class drop_policy : std::int32_t {
  score,          ///< keeps the pairs with the highest scores
  order,          ///< keeps the pairs of the first tokens
  reverse_order,  ///< keeps the pairs of the last tokens
  random          ///< keeps pairs at random, by the counter-based generator
};

/// Number of buffer rows that each expert gets.
enum class padding_mode : std::int32_t {
  none,         ///< as many as it has tokens
  to_capacity,  ///< its capacity, even if it or the whole batch has fewer tokens
  to_multiple   ///< its tokens, rounded up to a multiple
};

/// Status of a result.
enum class certificate_status : std::int32_t {
  /// No result is better, in the units in which the primitive decides: the value equals the bound,
  /// or is as close as the page of the primitive says.
  optimal,
  within_tolerance,  ///< the gap is at most the requested tolerance
  feasible,          ///< valid; the method proves no smaller gap
  iteration_limit,   ///< valid; stopped by the iteration limit before the gap was closed
  infeasible         ///< no valid result exists
};

/// Proof of quality that every optimizer reports per problem.
///
/// Planning calls round loads, and an expert's load per replica, down to multiples of 2^-47 of the
/// lowest power of two above their total. The lower_bound is rounded down, so that it holds for the
/// loads as given. The value is not below what the result attains if loads were rounded. If only
/// loads per replica were rounded, it may be lower, by at most one such multiple for each replica
/// of a rank, over its speed. Planning calls report optimal only if that is proven for the loads as
/// given; value and lower_bound are then the optimum, rounded.
struct certificate {
  /// Value of the result, in units of load (or load per speed); smaller is better.
  double value = 0;
  /// Bound below which no result can be.
  double lower_bound = 0;
  /// Work done, in the unit that the primitive documents.
  std::int64_t work = 0;
  /// Strength of the proof: optimal, within tolerance, or less.
  certificate_status status = certificate_status::feasible;

  /// Returns (value - lower_bound) / lower_bound; 0 if both are equal.
  [[nodiscard]] constexpr double gap() const {
    return value == lower_bound ? 0.0 : (value - lower_bound) / lower_bound;
  }
};

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small types that several primitives share.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

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

namespace detail {

/// The number that `bits` hold as IEEE 754 interchange format with `Exponent` bits of exponent and
/// `Fraction` of fraction. Every such number of 16 bits is a float.
template <int Exponent, int Fraction>
PLIMSOLL_HD constexpr float widen(std::uint16_t bits) {
  constexpr int shift = 23 - Fraction;
  constexpr std::uint32_t top = (1u << Exponent) - 1;
  constexpr std::uint32_t bias = 127 - (top >> 1);
  std::uint32_t const sign = std::uint32_t{bits} >> 15 << 31;
  std::uint32_t const exponent = (std::uint32_t{bits} >> Fraction) & top;
  std::uint32_t const fraction = bits & ((1u << Fraction) - 1);
  if (exponent == 0 && bias != 0) {
    // A subnormal: fraction units of the smallest, which is 2^(bias + 1 - 127 - Fraction).
    float const unit = __builtin_bit_cast(float, (bias + 1 - Fraction) << 23);
    float const size = static_cast<float>(fraction) * unit;
    return sign != 0 ? -size : size;
  }
  std::uint32_t const wide = exponent == top ? 0xffu : exponent + bias;
  return __builtin_bit_cast(float, sign | (wide << 23) | (fraction << shift));
}

}  // namespace detail

/// A half-precision number (IEEE 754 binary16) as engines store scores; with a CUDA compiler a view
/// of `__half` is taken as one of these. Arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;
  PLIMSOLL_HD constexpr operator float() const { return detail::widen<5, 10>(bits); }
};
/// The upper half of a float; a view of `__nv_bfloat16` is taken as one of these.
struct bfloat16 {
  std::uint16_t bits = 0;
  PLIMSOLL_HD constexpr operator float() const { return detail::widen<8, 7>(bits); }
};

/// Where two replicas of one expert should not meet.
enum class anti_affinity : std::int32_t {
  none,  ///< they may meet anywhere, as in EPLB
  rank,  ///< each on a rank of its own
  node   ///< each on a node of its own
};

/// What becomes of a rule that cannot be kept.
enum class strictness : std::int32_t {
  preferred,  ///< broken for replicas that find no room otherwise
  required    ///< invalid_input
};

/// What becomes of a router's outputs before experts are weighed by them.
enum class score_function : std::int32_t {
  none,     ///< they are scores already
  softmax,  ///< over the experts of a token
  sigmoid   ///< each by itself
};

/// What the weights of a token add up to.
enum class normalization : std::int32_t {
  none,    ///< whatever comes out
  to_one,  ///< 1
  to_sum   ///< what all its choices had together before some were dropped
};

/// To whole numbers.
enum class rounding_mode : std::int32_t { down, up };

/// Which pairs stay where there are more than fit.
enum class drop_policy : std::int32_t {
  score,          ///< those with the highest scores
  order,          ///< those of the first tokens
  reverse_order,  ///< those of the last tokens
  random          ///< any, by the counter-based generator
};

/// Rows of a buffer that each expert gets.
enum class padding_mode : std::int32_t {
  none,         ///< as many as it has tokens
  to_capacity,  ///< its capacity, whatever it has
  to_multiple   ///< a multiple of so many
};

/// What is known about a result.
enum class certificate_status : std::int32_t {
  optimal,           ///< nothing better exists, in the units that the primitive decides in
  within_tolerance,  ///< the gap is no larger than the tolerance asked for
  feasible,          ///< legal; the gap between value and lower_bound is what the method leaves
  iteration_limit,   ///< legal; stopped by the work limit with this gap
  infeasible         ///< no legal result exists
};

/// Proof of quality that every optimiser gives per problem. Value and bound are in units of load
/// (or of load per speed where ranks have speeds); smaller is better.
///
/// Planning calls round loads down to multiples of 2^-47 of their total and an expert's load per
/// copy likewise. Their lower_bound holds for the loads as given: it is rounded down. Their value
/// is not below what the result attains where loads were rounded; where only loads per copy were,
/// by at most one such multiple for each replica of a rank, over its speed. They report optimal
/// only where that is proven for the loads as given; value and lower_bound are then the optimum,
/// rounded.
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

}}  // namespace plimsoll

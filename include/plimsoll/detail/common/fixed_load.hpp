// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts loads to 47-bit fixed point, so that every decision about them uses integers.
///
/// A problem's loads are multiplied by the power of two that brings their total just below 2^47.
/// Integers stay exact; a floating load keeps all bits that are worth at least 2^-47 of the total.
/// The same values give the same fixed-point loads in every type.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A load (or a sum of loads) times 2^shift, rounded down.
using fixed_load = std::uint64_t;

/// The scale of one problem's loads, or the fault that prevents a conversion.
struct load_scale {
  int shift = 0;
  fault refused = {};
  bool is_rounded = false;  ///< some fixed-point load is below the load; set by `read_loads`
  bool is_zero = false;     ///< there is no load; set by `read_loads`

  [[nodiscard]] PLIMSOLL_HD problem_report report() const { return {certificate{}, refused}; }
};

/// Returns true if a value can be a load: at least 0 and below 2^47. NaN fails; the comparison with
/// the limit is exact in every type.
template <load_value T>
PLIMSOLL_HD bool is_load(T value) {
  return value >= T{0} && !(static_cast<double>(value) >= 0x1p47);
}

/// Checks the loads row(0), ..., row(n - 1) and returns their scale.
template <class Team, class Row>
PLIMSOLL_HD load_scale scale_loads(Team& team, index_t n, Row row) {
  using load = std::remove_cvref_t<decltype(row(index_t{}))>;
  // One pass is enough for valid loads: an invalid load counts as 2^47, which makes the total too
  // large, and fewer than 2^16 values up to 2^47 each cannot overflow 63 bits.
  double total = 0;
  int width = 0;
  if constexpr (std::floating_point<load>) {
    total = team.sum_ordered(n, [=](index_t i) {
      return is_load(row(i)) ? static_cast<double>(row(i)) : static_cast<double>(load_limit);
    });
    width = total > 0 ? static_cast<int>(bits_of(total) >> 52) - 1022 : 0;
  } else {
    auto const sum = team.sum(n, [=](index_t i) {
      return is_load(row(i)) ? static_cast<std::int64_t>(row(i)) : load_limit;
    });
    total = static_cast<double>(sum);
    width = bit_width(static_cast<std::uint64_t>(sum));
  }
  if (width > 47) {
    index_t const bad = team.min(n, [=](index_t i) { return is_load(row(i)) ? n : i; });
    return bad < n ? load_scale{0, fault_of(fault_kind::load, bad, row(bad))}
                   : load_scale{0, fault_of(fault_kind::total_load, -1, total)};
  }
  return load_scale{total > 0 ? 47 - width : 0};
}

template <load_value T>
PLIMSOLL_HD fixed_load to_fixed(T value, int shift) {
  if constexpr (std::floating_point<T>) {
    return fixed_point(static_cast<double>(value), shift);
  } else {
    return static_cast<fixed_load>(value) << shift;
  }
}

/// Returns true if the fixed-point load is less than the load.
template <load_value T>
PLIMSOLL_HD bool is_rounded(T value, int shift) {
  if constexpr (std::floating_point<T>) {
    return scale_by_power_of_two(static_cast<double>(to_fixed(value, shift)), -shift) !=
           static_cast<double>(value);
  } else {
    return false;
  }
}

/// Checks the loads row(0), ..., row(n - 1), raises them to `exponent`, and writes them to
/// `load[0..n)` in fixed point. If it refuses a load, `load` is unspecified.
template <class Team, class Row>
PLIMSOLL_HD load_scale read_loads(Team& team, index_t n, Row row, double exponent,
                                  fixed_load* load) {
  using value = std::remove_cvref_t<decltype(row(index_t{}))>;
  // Until the scale is known, `load` keeps the bits of doubles. An invalid load counts as 2^47,
  // which makes the total too large.
  index_t const quarter = (n + 3) / 4;
  team.for_each(quarter, [=](index_t i) {
    value given[4];  // read at once, so that a GPU waits for its memory once
    for (index_t k = 0; k < 4; ++k) {
      given[k] = row(minimum{}(i + k * quarter, n - 1));
    }
    for (index_t k = 0; k < 4 && i + k * quarter < n; ++k) {
      double const x = is_load(given[k]) ? static_cast<double>(given[k]) : 0x1p47;
      load[i + k * quarter] = bits_of(exponent == 1.0 || x == 0x1p47 ? x : power(x, exponent));
    }
  });
  double const total = team.sum_ordered(n, [=](index_t i) { return double_of(load[i]); });
  int const shift = total > 0 ? 1069 - static_cast<int>(bits_of(total) >> 52) : 0;
  if (shift < 0) {
    index_t const bad = team.min(n, [=](index_t i) { return is_load(row(i)) ? n : i; });
    return bad < n ? load_scale{0, fault_of(fault_kind::load, bad, row(bad))}
                   : load_scale{0, fault_of(fault_kind::total_load, -1, total)};
  }
  bool const rounds = std::floating_point<value> || exponent != 1.0;
  bool const rounded =
      rounds && team.any(n, [=](index_t i) { return is_rounded(double_of(load[i]), shift); });
  team.for_each(n, [=](index_t i) { load[i] = to_fixed(double_of(load[i]), shift); });
  return load_scale{shift, {}, rounded, !(total > 0)};
}

/// Gives every expert the same load. A layer without load says nothing about its experts, so it is
/// planned as if they were alike.
template <class Team>
PLIMSOLL_HD void equalize_loads(Team& team, index_t n, fixed_load* load) {
  team.for_each(n, [=](index_t i) { load[i] = fixed_load{1} << 30; });
}

/// Returns the load of one of an expert's copies, rounded down.
PLIMSOLL_HD inline fixed_load share(fixed_load load, std::int32_t copies) {
  return copies == 1 ? load : divide_floor(load, static_cast<std::uint32_t>(copies));
}

/// Returns a fixed-point load in units of load.
PLIMSOLL_HD inline double from_fixed(fixed_load value, int shift) {
  return scale_by_power_of_two(static_cast<double>(value), -shift);
}

/// Sort keys of a load and an id: by load, then by rising id. A load takes 48 bits: sums of
/// floating loads may exceed 2^47 by a few units.
inline constexpr std::uint64_t load_mask = (std::uint64_t{1} << 48) - 1;

PLIMSOLL_HD constexpr std::uint64_t lighter_first(fixed_load load, index_t id) {
  return (load << 16) | static_cast<std::uint64_t>(id);
}
PLIMSOLL_HD constexpr std::uint64_t heavier_first(fixed_load load, index_t id) {
  return lighter_first(load_mask - load, id);
}
PLIMSOLL_HD constexpr index_t id_of(std::uint64_t key) {
  return static_cast<index_t>(key & 0xffff);
}
PLIMSOLL_HD constexpr fixed_load light_load_of(std::uint64_t key) { return key >> 16; }
PLIMSOLL_HD constexpr fixed_load heavy_load_of(std::uint64_t key) {
  return load_mask - (key >> 16);
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts ids between int32 and int64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Converts an id; one beyond int32 becomes INT32_MIN, which is no id either.
template <class To, class From>
PLIMSOLL_HD constexpr To convert_id(From id) {
  bool const fits = static_cast<From>(static_cast<std::int32_t>(id)) == id;
  return fits ? static_cast<To>(id) : static_cast<To>(INT32_MIN);
}

/// Copies ids of another type by `convert_id`.
/// Problem = row, counted over the first two dimensions.
template <class From, class To>
struct convert_ids_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  tensor_ref<From const> from;
  tensor_ref<To> to;

  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return from.extent(0) * from.extent(1); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const a = problem / from.extent(1);
    index_t const b = problem % from.extent(1);
    team.for_each(from.extent(2),
                  [this, a, b](index_t c) { to(a, b, c) = convert_id<To>(from(a, b, c)); });
  }
};

}}}  // namespace plimsoll::detail

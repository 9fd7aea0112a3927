// SPDX-License-Identifier: Apache-2.0
/// @file
/// Columns of routed ids: one for each expert, one for -1, and one for other numbers.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the column of an id among `experts + 2`: the expert itself; `experts` for -1, which is
/// not routed; `experts + 1` for any other number.
PLIMSOLL_HD constexpr std::int32_t column_of_id(std::int64_t id, index_t experts) {
  bool const is_expert = id >= 0 && id < experts;
  return static_cast<std::int32_t>(is_expert ? id : experts + (id != -1));
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies rows of matrices.
#pragma once

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Copies rows. Problem = row.
template <class T>
struct copy_rows_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  matrix_ref<T const> from;
  matrix_ref<T> to;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t row) const {
    team.for_each(from.extent(1), [this, row](index_t i) { to(row, i) = from(row, i); });
  }
};

}}}  // namespace plimsoll::detail

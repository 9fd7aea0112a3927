// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `lplb`: messages about refused counts.
#pragma once

#include <cstddef>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/minmax_lp.hpp>
#include <plimsoll/detail/host/quota.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Throws for the first layer whose counts `lplb::plan` could not split or round.
inline void expect_all_planned(std::vector<certificate> const& certificates,
                               std::vector<quota_report> const& reports) {
  constexpr char const* name = "lplb::plan";
  for (std::size_t layer = 0; layer < certificates.size(); ++layer) {
    expect_solved(name, "counts", certificates[layer], static_cast<index_t>(layer));
    expect_rounded(name, "counts", reports[layer], static_cast<index_t>(layer));
  }
}

}}}  // namespace plimsoll::detail

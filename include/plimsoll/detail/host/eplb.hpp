// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `eplb` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/host/refinement.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/report.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_eplb_fault(refused_value const& of) {
  throw_map_fault(of, "logical_to_physical");
  throw_replication_fault(of);
  throw_refinement_fault(of);
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `quota` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/fixed_load.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_quota_fault(refused_value const& of) {
  throw_load_fault(of);
  throw_map_fault(of);
  switch (of.found().kind) {
    case fault_kind::share:
      of.fail("split", "values from 0 to the load of the slot's expert, 0 in empty slots",
              of.got() + of.where("slot"));
    case fault_kind::shares:
      of.fail("split", text("shares that add up to the expert's load, ", of.found().got),
              text("others", of.in_layer(), of.where("expert")));
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

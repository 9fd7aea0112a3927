// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that searches and replays of latencies refuse.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_latency_fault(refused_value const& of) {
  throw_placement_fault(of);
  switch (of.found().kind) {
    case fault_kind::cost:
      of.fail("cost", "numbers from 0 to below 2^960 that do not fall as tokens rise",
              of.got() + of.where("rank") + of.also("step"));
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about values that `gem` refuses.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/latency.hpp>
#include <plimsoll/detail/host/replication.hpp>
#include <plimsoll/detail/report.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_gem_fault(refused_value const& of) {
  throw_replication_fault(of);
  throw_latency_fault(of);
}

}}}  // namespace plimsoll::detail

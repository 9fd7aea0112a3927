// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `slot_assignment`: checks of its options, and messages about refused values.
#pragma once

#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/slot_assignment_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_slot_assignment_options(std::string_view function,
                                           slot_assignment_options const& options) {
  expect_rank_set(function, options.on);
  expect_no_speeds(function, options.on, "slots are divided by number");
}

inline void throw_slot_assignment_fault(refused_value const& of) {
  throw_topology_fault(of);
  if (of.found().kind == fault_kind::layer_slots) {
    of.fail("layer_slots", "at least 0 in every layer",
            text(of.found().got, " in layer ", of.found().where));
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `least_loaded`: messages about refused values.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/fixed_load.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void throw_spill_fault(refused_value const& of) {
  switch (of.found().kind) {
    case fault_kind::tokens:
      of.fail("loads", "at most 2^31 - 1 tokens", text(of.found().got));
    case fault_kind::cost:
      of.fail("price.cost", "numbers from 0 to below 2^960",
              text(of.found().got, " for rank ", of.found().where));
    case fault_kind::counts:
      of.fail("counts", text("the planned load, ", of.found().also, " tokens"),
              text(of.found().got, of.where("expert")));
    default:
      throw_load_fault(of);
  }
}

}}}  // namespace plimsoll::detail

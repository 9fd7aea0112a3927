// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about refused ranks and nodes.
#pragma once

#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Throws for a live rank that is far slower than rank `fastest`. `where` has the words that follow
/// the number of a rank.
[[noreturn]] inline void fail_relative_speed(std::string_view function, std::string_view argument,
                                             double speed, index_t rank, index_t fastest,
                                             std::string_view where = {}) {
  fail(function, argument, "speeds of live ranks from 2^-16 of the fastest to the fastest",
       text(speed, " for rank ", rank, where, ", where rank ", fastest, " is the fastest"));
}

/// Throws what `rank_input` refused. `ranks` is the name of the rank set, and `where` the words
/// that follow the number of a rank.
inline void throw_rank_fault(refused_value const& refused, std::string const& ranks,
                             std::string const& where = {}) {
  fault const& found = refused.found();
  switch (found.kind) {
    case fault_kind::no_rank:
      refused.fail(ranks + ".active", "at least 1 live rank", "0" + where);
    case fault_kind::speed:
      refused.fail(ranks + ".speeds", "values from 2^-64 to 2^64",
                   text(found.got, " for rank ", found.where, where));
    case fault_kind::relative_speed:
      fail_relative_speed(refused.function, ranks + ".speeds", found.got, found.where, found.also,
                          where);
    default:
      break;
  }
}

inline void throw_topology_fault(refused_value const& refused) {
  switch (refused.found().kind) {
    case fault_kind::no_rank:
      refused.fail("on.active", "at least 1 live rank", "0");
    case fault_kind::rank_offsets:
      refused.fail("rank_offsets", "offsets that rise from 0 to at most the number of slots",
                   refused.got() + refused.where("rank"));
    case fault_kind::speed:
      refused.fail("on.speeds", "values from 2^-64 to 2^64", refused.got() + refused.where("rank"));
    case fault_kind::node_offsets:
      refused.fail("node_offsets", "offsets that rise from 0 to the number of experts",
                   refused.got() + refused.where("node"));
    case fault_kind::node_experts:
      refused.fail("node_experts", "every expert once",
                   text("another list", refused.in_layer(), refused.where("expert")));
    case fault_kind::relative_speed:
      fail_relative_speed(refused.function, "on.speeds", refused.found().got, refused.found().where,
                          refused.found().also);
    default:
      break;
  }
}

}}}  // namespace plimsoll::detail

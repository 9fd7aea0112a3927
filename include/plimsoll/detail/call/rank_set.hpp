// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the ranks that options describe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks numbers and shapes; `argument` names the rank set.
inline void expect_rank_set(std::string_view function, rank_set const& on,
                            argument_name const& argument = "options.on") {
  expect_between(function, argument + ".ranks", 1, rank_limit, on.ranks, "ranks");
  expect_between(function, argument + ".nodes", 1, on.ranks, on.nodes,
                 "nodes (at most one per rank)");
  checked_call call(function, {{"ranks", on.ranks}});
  call.expect_given(argument + ".active", on.active, "[ranks]");
  call.expect_given(argument + ".speeds", on.speeds, "[ranks]");
}

/// Returns the rank set with the number of ranks of a placement, whose range the caller has
/// checked. Throws if it states another number.
inline rank_set with_ranks_of(std::string_view function, rank_set on, index_t ranks,
                              argument_name const& argument = "options.on") {
  if (on.ranks != 0) {
    expect_extent(function, argument + ".ranks", ranks, on.ranks, "ranks, as in the placement");
  }
  on.ranks = ranks;
  expect_rank_set(function, on, argument);
  return on;
}

/// Does the same for the ranks of an update, if they are given.
inline std::optional<rank_set> with_ranks_of(std::string_view function,
                                             std::optional<rank_set> const& on, index_t ranks) {
  return on ? std::optional(with_ranks_of(function, *on, ranks, "on")) : std::nullopt;
}

/// Throws if speeds are given to a call that would ignore them; `since` is the reason.
inline void expect_no_speeds(std::string_view function, rank_set const& on, std::string_view since,
                             argument_name const& argument = "options.on") {
  if (on.speeds.data != nullptr) {
    fail(function, argument + ".speeds", text("none, since ", since), "speeds");
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a replay, without the function that runs it.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Options of `replay`.
struct replay_options {
  /// Ranks of the placement: `on.ranks` is their number, or 0. Dead ranks do not count in the mean
  /// over ranks. Nodes are not read, speeds are refused.
  rank_set on = {};
  /// Split of an expert's tokens among its copies in every step: `even`, or `optimal`, as by
  /// `minmax_lp` with a tolerance of 0.
  split_rule split = split_rule::even;
};

}}  // namespace plimsoll

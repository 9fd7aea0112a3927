// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of several phases. A phase is a batch of problems, and sees all that earlier phases
/// wrote: phases are launches of their own, or parts of one cooperative launch with a barrier of
/// the grid between them. `launch_phases(context, body, memory, resident)` chooses; a body of
/// phases has
///
///     one_launch                             set by the launcher: all phases are one launch
///     fits_one_launch()                      whether the launcher may do that
///     phases()                               how many; may depend on `one_launch`
///     problems(phase) scratch_bytes(phase)   as those of a body
///     operator()(team, scratch, problem, phase)
///     is_over(phase)                         no later phase does anything
///
/// `is_over` is only asked in one launch, after the phase. All blocks must agree, so it reads what
/// was written before that phase.
#pragma once

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// One phase as a body.
template <class Body>
struct one_phase {
  using device_team = typename Body::device_team;

  Body const& body;
  int phase;

  [[nodiscard]] index_t problems() const { return body.problems(phase); }
  [[nodiscard]] std::size_t scratch_bytes() const { return body.scratch_bytes(phase); }

  template <class Team>
  void operator()(Team& team, scratch arrays, index_t problem) const {
    body(team, arrays, problem, phase);
  }
};

/// How many blocks of a body's kernel the device runs at once. Whoever launches the body again and
/// again keeps it, one per type of body; the first launch asks the device.
struct resident_blocks {
  static constexpr index_t unknown = -1;
  index_t most = unknown;
};

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of several phases. A phase is a batch of problems, and sees everything that earlier
/// phases wrote: each phase is a separate launch, or all phases are one cooperative launch with a
/// grid barrier between them. `launch_phases(context, body, memory, resident)` chooses. A body of
/// several phases has these members:
///
///     one_launch                             set by the launcher: all phases are one launch
///     keeps_scratch                          also set then: phases see scratch that earlier ones
///                                            of the same problem wrote
///     fits_one_launch()                      returns whether the launcher may set `one_launch`
///     phases()                               number of phases; may depend on `one_launch`
///     problems(phase) scratch_bytes(phase)   as `problems` and `scratch_bytes` of a body
///     operator()(team, scratch, problem, phase)
///     finish(team, scratch, problem, phase)  what no other problem of any phase reads
///     is_over(phase)                         returns whether no later phase does anything
///
/// `finish` is called after each problem, with the scratch that it left. In a cooperative launch
/// it takes the time in which blocks wait for others.
///
/// `is_over` is called in a cooperative launch only, after the phase. All blocks must get the same
/// result, so it reads only what was written before that phase.
#pragma once

#include <cstddef>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Adapts one phase to a body.
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
    body.finish(team, arrays, problem, phase);
  }
};

/// Number of blocks of a body's kernel that the device runs at once. A caller that launches the
/// body repeatedly keeps one of these per type of body; the first launch queries the device.
struct resident_blocks {
  static constexpr index_t unknown = -1;
  index_t most = unknown;
};

}}}  // namespace plimsoll::detail

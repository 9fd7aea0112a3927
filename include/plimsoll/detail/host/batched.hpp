// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host launcher: runs a body over a batch of problems, with one serial team per problem. The
/// context's executor distributes the problems.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/host/memory.hpp>
#include <plimsoll/detail/host/serial_team.hpp>
#include <plimsoll/detail/phases.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Keeps the first exception thrown on any thread, so that executors need not propagate exceptions.
class exception_slot {
 public:
  template <class F>
  void capture(F&& f) {
    try {
      f();
    } catch (...) {
      if (!taken_.test_and_set()) {
        exception_ = std::current_exception();
      }
    }
  }
  void rethrow() const {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
  }

 private:
  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;
  std::exception_ptr exception_;
};

/// Calls f(first, last) over blocks of [0, n) on the context's executor; f may throw.
template <class Executor, class F>
void for_blocks(host_context<Executor> const& context, index_t n, F const& f) {
  exception_slot failure;
  context.executor.for_blocks(
      n, [&](index_t first, index_t last) { failure.capture([&] { f(first, last); }); });
  failure.rethrow();
}

/// Returns the bytes of one problem's scratch, padded so that the next problem's is aligned.
template <class Body>
[[nodiscard]] index_t scratch_stride(Body const& body) {
  auto const bytes = static_cast<index_t>(body.scratch_bytes());
  return static_cast<index_t>(scratch_bytes_of<std::byte>(bytes));
}

/// Returns the bytes of scratch that a launch with caller-provided memory needs.
template <class Executor, class Body>
[[nodiscard]] index_t launch_bytes(host_context<Executor> const&, index_t problems,
                                   Body const& body) {
  return problems * scratch_stride(body);
}

/// Runs body(team, scratch, problem) for every problem in [0, problems).
/// Scratch is allocated once per block of problems.
template <class Executor, class Body>
void launch(host_context<Executor> const& context, index_t problems, Body const& body) {
  for_blocks(context, problems, [&](index_t first, index_t last) {
    buffer<std::byte, host_context<Executor>> const memory(
        context, static_cast<index_t>(body.scratch_bytes()));
    serial_team team;
    for (index_t problem = first; problem < last; ++problem) {
      body(team, scratch(memory.data()), problem);
    }
  });
}

/// Runs body(team, scratch, problem) for every problem in [0, problems) without allocating. Every
/// problem has its own scratch in `memory`, of `launch_bytes(context, problems, body)` bytes.
template <class Executor, class Body>
void launch(host_context<Executor> const& context, index_t problems, Body const& body,
            std::byte* memory) {
  index_t const stride = scratch_stride(body);
  for_blocks(context, problems, [&](index_t first, index_t last) {
    serial_team team;
    for (index_t problem = first; problem < last; ++problem) {
      body(team, scratch(memory + problem * stride), problem);
    }
  });
}

/// Runs the phases of a body in order, each as one launch without allocation. `memory` has
/// `phases_bytes(context, body)` bytes.
template <class Executor, class Body>
void launch_phases(host_context<Executor> const& context, Body const& body, std::byte* memory,
                   resident_blocks&) {
  for (int phase = 0; phase < body.phases(); ++phase) {
    launch(context, body.problems(phase), one_phase<Body>{body, phase}, memory);
  }
}
template <class Executor, class Body>
[[nodiscard]] index_t phases_bytes(host_context<Executor> const& context, Body const& body) {
  index_t most = 0;
  for (int phase = 0; phase < body.phases(); ++phase) {
    most =
        std::max(most, launch_bytes(context, body.problems(phase), one_phase<Body>{body, phase}));
  }
  return most;
}

}}}  // namespace plimsoll::detail

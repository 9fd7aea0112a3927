// SPDX-License-Identifier: Apache-2.0
// Runs bodies on the host: on `serial_team`, on `thread_team` in all its sizes, and on the body's
// device team with one fiber per lane. All must give the same bits.
#pragma once

#include <plimsoll/detail/host/serial_team.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "guarded_scratch.hpp"
#include "thread_team.hpp"
#if !defined(__CUDACC__)
#include "emulated_device.hpp"
#endif

namespace plimsoll_test {

/// Team sizes that select `serial_team` and the body's device team.
inline constexpr int serial = 0;
inline constexpr int device = -1;
#if defined(PLIMSOLL_TEST_FEW_TEAMS)
inline constexpr int team_sizes[] = {3};
inline constexpr std::uint64_t team_seeds[] = {1};
#else
inline constexpr int team_sizes[] = {1, 2, 3, 4, 7, 33};
inline constexpr std::uint64_t team_seeds[] = {1, 2};
#endif
inline constexpr double watchdog_seconds = 20;

/// Runs body(team, scratch, problem) for all problems, one after another, on a team of `team_size`
/// threads, on `serial_team` or on the device team.
template <class Body>
void run_body(Body const& body, index_t problems, int team_size, std::uint64_t seed,
              double limit = watchdog_seconds) {
  guarded_scratch memory(body.scratch_bytes(), seed);
  if (team_size == serial) {
    plimsoll::detail::serial_team team;
    for (index_t problem = 0; problem < problems; ++problem) {
      memory.fill();
      body(team, plimsoll::detail::scratch(memory.base()), problem);
      memory.verify();
    }
    return;
  }
#if !defined(__CUDACC__)
  if constexpr (requires { typename Body::device_team; }) {
    if (team_size == device) {
      memory.fill();
      emulated::run(typename Body::device_team{}, body, problems, memory.base(), seed);
      memory.verify();
      return;
    }
  }
#endif
  team_state state(team_size, seed);
  watchdog const guard(state, limit);
  auto const work = [&](int rank) {
    thread_team team(state, rank);
    for (index_t problem = 0; problem < problems; ++problem) {
      team.single([&] { memory.fill(); });
      body(team, plimsoll::detail::scratch(memory.base()), problem);
      team.end_of_body();
      team.single([&] { memory.verify(); });
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < team_size; ++rank) {
    threads.emplace_back(work, rank);
  }
  work(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

namespace run_body_detail {

// Output of a body given as a range: before each run, its elements are reset to their values before
// the first run, so that a team that does not write an element is detected. Bytes are compared.
template <class R>
class range_output {
  using element = std::ranges::range_value_t<R>;
  static_assert(std::has_unique_object_representations_v<element> ||
                    std::is_floating_point_v<element>,
                "bytes of such elements do not compare; pass a function that returns members");

 public:
  explicit range_output(R& range) : elements_(range), before_(bytes()) {}
  void prepare() {
    std::copy(before_.begin(), before_.end(), std::as_writable_bytes(elements_).begin());
  }
  void expect() { expected_ = bytes(); }
  [[nodiscard]] std::string difference() const {
    std::vector<std::byte> const now = bytes();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] != expected_[i]) {
        return "differs first in element " + std::to_string(i / sizeof(element)) + " of " +
               std::to_string(elements_.size());
      }
    }
    return "";
  }

 private:
  [[nodiscard]] std::vector<std::byte> bytes() const {
    auto const view = std::as_bytes(elements_);
    return {view.begin(), view.end()};
  }

  std::span<element> elements_;
  std::vector<std::byte> before_;
  std::vector<std::byte> expected_;
};

// Output of a body given as a function without arguments, whose values are compared by ==.
template <class F>
class function_output {
 public:
  explicit function_output(F& function) : function_(function) {}
  void prepare() {}
  void expect() { expected_.push_back(function_()); }
  [[nodiscard]] std::string difference() const {
    return function_() == expected_.front() ? "" : "differs";
  }

 private:
  F& function_;
  std::vector<std::remove_cvref_t<std::invoke_result_t<F&>>> expected_;
};

template <class Output>
auto watch(Output& output) {
  if constexpr (std::invocable<Output&>) {
    return function_output<Output>(output);
  } else {
    return range_output<Output>(output);
  }
}

template <class Body, class... Watched>
std::string compare(Body const& body, index_t problems, Watched... watched) {
  run_body(body, problems, serial, 0);
  (watched.expect(), ...);
  auto const run = [&](int size, std::uint64_t seed) -> std::string {
    (watched.prepare(), ...);
    run_body(body, problems, size, seed);
    std::string found;
    int position = 0;
    auto const look = [&](std::string const& difference) {
      if (found.empty() && !difference.empty()) {
        found = "output " + std::to_string(position) + " " + difference + ": serial_team against " +
                (size == serial   ? std::string("itself")
                 : size == device ? std::string("its device team")
                                  : std::to_string(size) + " threads") +
                ", seed " + std::to_string(seed);
      }
      ++position;
    };
    (look(watched.difference()), ...);
    return found;
  };
  // First the serial team again, with other garbage in scratch memory.
  std::string found = run(serial, 1);
  for (int const size : team_sizes) {
    for (std::uint64_t const seed : team_seeds) {
      if (found.empty()) {
        found = run(size, seed);
      }
    }
  }
#if !defined(__CUDACC__)
  if constexpr (requires { typename Body::device_team; }) {
    if (found.empty()) {
      found = run(device, 1);
    }
  }
#endif
  return found;
}

}  // namespace run_body_detail

/// Runs the body on `serial_team`, then on `thread_team` in all sizes and with several seeds, and
/// on its device team (emulated_device.hpp), and compares the outputs bit for bit with those of
/// `serial_team`. Returns "" or the first difference. If nothing differs, the outputs hold the
/// results.
///
/// Each output is a contiguous range that the body writes (its elements are reset before each run),
/// or a function without arguments that returns a copy of the written values.
template <class Body, class... Outputs>
std::string compare_all_teams(Body const& body, index_t problems, Outputs&&... outputs) {
  static_assert(sizeof...(Outputs) > 0);
  return run_body_detail::compare(body, problems, run_body_detail::watch(outputs)...);
}

}  // namespace plimsoll_test

#if defined(DOCTEST_LIBRARY_INCLUDED)
namespace plimsoll_test {

/// Checks that `compare_all_teams` finds no difference.
template <class Body, class... Outputs>
void check_all_teams(Body const& body, index_t problems, Outputs&&... outputs) {
  std::string const difference = compare_all_teams(body, problems, outputs...);
  CHECK_MESSAGE(difference.empty(), difference);
}

}  // namespace plimsoll_test
#endif

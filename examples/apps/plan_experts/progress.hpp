// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shows progress in one line on a terminal; prints nothing if stderr is not a terminal.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace examples {

/// Limits updates to five a second, with none in the first fifth of a second: a task that is done
/// by then needs no progress line.
class throttle {
 public:
  using clock = std::chrono::steady_clock;

  explicit throttle(clock::time_point start) : next_(start + interval) {}

  [[nodiscard]] bool passes(clock::time_point now) {
    if (now < next_) {
      return false;
    }
    next_ = now + interval;
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds interval{200};
  clock::time_point next_;
};

/// Shows one task on stderr while it runs, and clears the line at its end.
class progress {
 public:
  explicit progress(std::string task)
      : task_(std::move(task)), watched_(::isatty(STDERR_FILENO) == 1) {}

  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;

  ~progress() {
    if (shown_) {
      std::fputs("\r\x1b[K", stderr);
    }
  }

  /// Updates the line; `total` is 0 if it is unknown.
  void operator()(std::uint64_t done, std::uint64_t total) {
    if (!watched_ || !throttle_.passes(throttle::clock::now())) {
      return;
    }
    shown_ = true;
    if (total > 0) {
      auto const percent = 100.0 * static_cast<double>(done) / static_cast<double>(total);
      std::fprintf(stderr, "\r%s: %.0f %%\x1b[K", task_.c_str(), percent);
    } else {
      std::fprintf(stderr, "\r%s: %.1f MB\x1b[K", task_.c_str(), static_cast<double>(done) / 1e6);
    }
    std::fflush(stderr);
  }

 private:
  std::string task_;
  bool watched_;
  bool shown_ = false;
  throttle throttle_{throttle::clock::now()};
};

}  // namespace examples

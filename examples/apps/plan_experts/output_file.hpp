// SPDX-License-Identifier: Apache-2.0
/// @file
/// Output files that appear complete or not at all.
#pragma once

#include <unistd.h>
#include <algorithm>
#include <iterator>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace examples {

namespace detail {

/// Removes the temporary files of a program when a signal ends it (any but SIGKILL).
class files_to_remove {
 public:
  /// Registers a file, which need not exist yet, for removal by a signal. `name` must stay valid
  /// until `forget`.
  static void add(char const* name) {
    handle_signals();
    for (std::atomic<char const*>& place : names) {
      char const* none = nullptr;
      if (place.compare_exchange_strong(none, name)) {
        return;
      }
    }
    throw std::length_error("output_file: expected at most " + std::to_string(names.size()) +
                            " files at a time, got another");
  }

  static void forget(char const* name) {
    for (std::atomic<char const*>& place : names) {
      char const* expected = name;
      place.compare_exchange_strong(expected, nullptr);
    }
  }

 private:
  static void handle_signals() {
    constexpr int harmless[] = {SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    for (int signal = 1; signal <= SIGRTMAX;
         ++signal) {  // the C library keeps some, and KILL and STOP fail
      struct sigaction now {};
      bool const ends =
          std::find(std::begin(harmless), std::end(harmless), signal) == std::end(harmless);
      // Signals that the parent ignores stay ignored, and other handlers stay in place.
      if (ends && ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = remove_all;
        now.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(signal, &now, nullptr);
      }
    }
  }

  /// Signal handler; calls only async-signal-safe functions.
  static void remove_all(int signal) {
    for (std::atomic<char const*> const& place : names) {
      if (char const* const name = place.load()) {
        ::unlink(name);
      }
    }
    ::raise(signal);  // ends the program, once this handler has returned
  }

  static_assert(std::atomic<char const*>::is_always_lock_free);
  inline static std::array<std::atomic<char const*>, 8> names{};
};

}  // namespace detail

/// Follows symbolic links from `name` to the file that is written, even if it does not exist yet.
/// Returns an empty path if the links form a cycle.
[[nodiscard]] inline std::filesystem::path behind_links(std::filesystem::path name) {
  constexpr int most = 40;  // the limit of Linux
  std::error_code ignored;
  for (int links = 0; std::filesystem::is_symlink(name, ignored); ++links) {
    if (links == most) {
      return {};
    }
    // An absolute path on the right replaces the left one.
    name = name.parent_path() / std::filesystem::read_symlink(name, ignored);
  }
  return name;
}

/// Writes a temporary file next to the target and renames it in `commit`. Without `commit` it
/// leaves nothing behind, even if a signal ends the program. To write several files, close all
/// before committing the first: then all of them appear, or none. The constructor checks that the
/// target can be written, before any work is done.
class output_file {
 public:
  output_file(std::string argument, std::string const& name)
      : argument_(std::move(argument)), name_(name), target_(behind_links(name)) {
    if (target_.empty()) {
      fail(ELOOP);
    }
    refuse_what_a_rename_would_destroy();
    temporary_ = target_.string() + ".tmp" + std::to_string(::getpid());
    errno = 0;
    detail::files_to_remove::add(temporary_.c_str());
    stream_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!stream_) {
      int const code = errno;
      detail::files_to_remove::forget(temporary_.c_str());
      fail(code);
    }
    opened_ = true;
  }

  output_file(output_file const&) = delete;
  output_file& operator=(output_file const&) = delete;

  ~output_file() {
    if (!opened_) {
      return;
    }
    stream_.close();
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
    detail::files_to_remove::forget(temporary_.c_str());
  }

  [[nodiscard]] std::ostream& stream() { return stream_; }

  /// Closes the temporary file. Throws if a write has failed, for example on a full disk.
  void close() {
    errno = 0;
    stream_.close();
    if (!stream_) {
      fail(errno);
    }
  }

  /// Renames the closed temporary file to its final name.
  void commit() {
    std::error_code error;
    std::filesystem::rename(temporary_, target_, error);
    if (error) {
      fail(error.value());
    }
    detail::files_to_remove::forget(temporary_.c_str());
    opened_ = false;
  }

 private:
  void refuse_what_a_rename_would_destroy() const {
    std::error_code ignored;
    auto const status = std::filesystem::status(target_, ignored);
    if (!std::filesystem::exists(status)) {
      return;
    }
    if (std::filesystem::is_directory(status)) {
      fail(EISDIR);
    }
    if (!std::filesystem::is_regular_file(status)) {
      refuse("not a regular file");
    }
    errno = 0;
    if (!std::ofstream(target_, std::ios::binary | std::ios::app)) {
      fail(errno);
    }
  }

  [[noreturn]] void refuse(std::string const& got) const {
    throw std::runtime_error(argument_ + ": expected a file that can be written, got '" + name_ +
                             "': " + got);
  }

  [[noreturn]] void fail(int code) const {
    refuse(code != 0 ? std::generic_category().message(code) : "a write failed");
  }

  std::string argument_;
  std::string name_;
  std::filesystem::path target_;
  std::string temporary_;
  std::ofstream stream_;
  bool opened_ = false;
};

}  // namespace examples

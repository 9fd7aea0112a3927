// SPDX-License-Identifier: Apache-2.0
/// @file
/// A file that appears whole or not at all.
#pragma once

#include <unistd.h>

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

/// Removes the temporary files of a program that a signal ends. SIGKILL alone it cannot see.
class files_to_remove {
 public:
  /// From here on a signal removes the file, which need not be there yet. `name` must stay until
  /// `forget`.
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
    for (int const signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXCPU}) {
      struct sigaction now {};
      // What the parent wants to be ignored stays so, and so does another handler.
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = remove_all;
        now.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(signal, &now, nullptr);
      }
    }
  }

  /// Calls only what a signal handler may.
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

/// The file that is written where `name` is: behind symbolic links, also where it is not there yet.
/// Empty where links lead in a circle.
[[nodiscard]] inline std::filesystem::path behind_links(std::filesystem::path name) {
  constexpr int most = 40;  // as Linux follows
  std::error_code ignored;
  for (int links = 0; std::filesystem::is_symlink(name, ignored); ++links) {
    if (links == most) {
      return {};
    }
    // An absolute path replaces what is before it.
    name = name.parent_path() / std::filesystem::read_symlink(name, ignored);
  }
  return name;
}

/// Writes beside the file asked for and takes its name in `commit`; without `commit` nothing
/// stays, also where a signal ends the program. Who writes several files closes all before the
/// first is committed: none or all appear. The constructor finds out whether the place can be
/// written, before any work is done.
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

  /// Ends the writing. Throws where a write has failed, for example on a full disk.
  void close() {
    errno = 0;
    stream_.close();
    if (!stream_) {
      fail(errno);
    }
  }

  /// Gives the file, once closed, its name.
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

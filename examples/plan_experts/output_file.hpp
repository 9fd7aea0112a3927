// SPDX-License-Identifier: Apache-2.0
/// @file
/// A file that appears whole or not at all.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace examples {

/// Writes beside the file asked for and takes its name in `commit`; without `commit` nothing
/// stays. Who writes several files closes all before the first is committed: none or all appear.
/// The constructor finds out whether the place can be written, before any work is done.
class output_file {
 public:
  output_file(std::string argument, std::string const& name)
      : argument_(std::move(argument)), name_(name) {
    std::error_code ignored;
    target_ = std::filesystem::weakly_canonical(name, ignored);  // keeps a symbolic link a link
    if (target_.empty()) {
      target_ = name;
    }
    refuse_what_a_rename_would_destroy();
    temporary_ = target_;
    temporary_ += ".tmp" + std::to_string(::getpid());
    errno = 0;
    stream_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!stream_) {
      fail(errno);
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
  std::filesystem::path temporary_;
  std::ofstream stream_;
  bool opened_ = false;
};

}  // namespace examples

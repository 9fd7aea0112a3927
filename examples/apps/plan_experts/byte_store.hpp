// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random access to the bytes of a file, any number of times, without holding them in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "input_file.hpp"

namespace examples {

/// The bytes of a named file, or bytes that are appended. The first 8 MiB of appended bytes stay in
/// memory; more go to an unnamed temporary file, which disappears when the process ends, even by a
/// signal.
class byte_store {
 public:
  /// Makes an empty store; messages use `name`.
  explicit byte_store(std::string name) : name_(std::move(name)) {}

  /// Opens `file`: a regular file is read in place; any other file, and the standard input (`-`),
  /// is copied. Throws `file_error`.
  [[nodiscard]] static byte_store of(std::string const& file,
                                     reading_progress const& progress = {});

  byte_store(byte_store&& other) noexcept;
  byte_store& operator=(byte_store&& other) = delete;
  ~byte_store();

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::uint64_t size() const { return in_file_ + tail_.size(); }

  /// Appends bytes. Throws `file_error` if the temporary file cannot hold them.
  void append(std::string_view bytes);

  /// Reads `count` bytes from `at` on. Throws `file_error` if there are fewer.
  void read(std::uint64_t at, char* to, std::size_t count) const;

  /// Returns at most `count` bytes from `at` on.
  [[nodiscard]] std::string text(std::uint64_t at, std::size_t count) const;

 private:
  void flush();

  std::string name_;
  int file_ = -1;
  std::uint64_t in_file_ = 0;
  std::string tail_;  ///< the bytes after those in the file
};

/// Reads the bytes of a store in order.
class byte_reader {
 public:
  static constexpr int end = -1;

  byte_reader(byte_store const& store, std::uint64_t first, reading_progress progress)
      : store_(store), loaded_(first), progress_(std::move(progress)) {}

  /// Returns the next byte, or `end`, without consuming it.
  [[nodiscard]] int peek() {
    return at_ < block_.size() || load() ? static_cast<unsigned char>(block_[at_]) : end;
  }
  void next() { ++at_; }

  /// Reads the next line into `to`, without its line end; returns false if there is none. Throws
  /// `file_error` for a line of more than 4 MiB.
  [[nodiscard]] bool line(std::string& to);

 private:
  bool load();

  byte_store const& store_;
  std::uint64_t loaded_;
  std::string block_;
  std::size_t at_ = 0;
  reading_progress progress_;
};

}  // namespace examples

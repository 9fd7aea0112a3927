// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bytes that can be read at any place and as often as needed, without being held in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "input_file.hpp"

namespace examples {

/// The bytes of a named file, or bytes that are appended: the first 8 MiB of those stay in memory,
/// more go to a temporary file that has no name, which ends with the process however it ends.
class byte_store {
 public:
  /// Empty; `name` is for messages.
  explicit byte_store(std::string name) : name_(std::move(name)) {}

  /// The bytes of `file`: in place where it is a regular file; else, and for the standard input
  /// (`-`), a copy. Throws `file_error`.
  [[nodiscard]] static byte_store of(std::string const& file,
                                     reading_progress const& progress = {});

  byte_store(byte_store&& other) noexcept;
  byte_store& operator=(byte_store&& other) = delete;
  ~byte_store();

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::uint64_t size() const { return in_file_ + tail_.size(); }

  /// Throws `file_error` where the temporary file cannot take them.
  void append(std::string_view bytes);

  /// Reads `count` bytes from `at` on. Throws `file_error` where there are fewer.
  void read(std::uint64_t at, char* to, std::size_t count) const;

  /// The bytes from `at` on, at most `count`.
  [[nodiscard]] std::string text(std::uint64_t at, std::size_t count) const;

 private:
  void flush();

  std::string name_;
  int file_ = -1;
  std::uint64_t in_file_ = 0;
  std::string tail_;  ///< behind what is in the file
};

/// Reads a store from its begin to its end.
class byte_reader {
 public:
  static constexpr int end = -1;

  byte_reader(byte_store const& store, std::uint64_t first, reading_progress progress)
      : store_(store), loaded_(first), progress_(std::move(progress)) {}

  /// The next byte, or `end`.
  [[nodiscard]] int peek() {
    return at_ < block_.size() || load() ? static_cast<unsigned char>(block_[at_]) : end;
  }
  void next() { ++at_; }

  /// Moves `to` to the next line without its end; false where there is none. Throws `file_error`
  /// for a line longer than any loads need.
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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes int32 arrays as `.npy` files, which numpy.load reads.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>

namespace make_loads {

/// A file that appears complete or not at all: it is written beside its name and renamed by
/// `commit`.
class npy_file {
 public:
  /// Opens the file that `option` names and writes the header: version 1, C order, padded so that
  /// the values start at a multiple of 64 bytes.
  npy_file(std::string const& option, std::string const& name, std::span<std::int64_t const> shape)
      : option_(option), name_(name) {
    std::error_code error;
    target_ = std::filesystem::absolute(name);
    target_ = std::filesystem::weakly_canonical(target_, error);  // follows links
    if (error) {
      fail(error.value());
    }
    auto const status = std::filesystem::status(target_, error);
    if (std::filesystem::exists(status)) {  // a rename would replace even these
      if (!std::filesystem::is_regular_file(status)) {
        refuse("not a regular file");
      }
      if (::access(target_.c_str(), W_OK) != 0) {
        fail(errno);
      }
    }
    temporary_ = target_.string() + ".tmp" + std::to_string(::getpid());
    errno = 0;
    stream_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!stream_) {
      fail(errno);
    }
    write_header(shape);
  }

  npy_file(npy_file const&) = delete;
  npy_file& operator=(npy_file const&) = delete;

  ~npy_file() {
    stream_.close();
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);  // gone after `commit`
  }

  /// Appends values, little-endian on any machine. Throws if they cannot be written.
  void append(std::span<std::int32_t const> values) {
    errno = 0;
    for (std::int32_t const value : values) {
      auto const bits = static_cast<std::uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8) {
        stream_.put(static_cast<char>((bits >> shift) & 0xff));
      }
    }
    if (!stream_) {
      fail(errno);
    }
  }

  /// Returns the file behind links that `commit` replaces.
  [[nodiscard]] std::filesystem::path const& target() const { return target_; }

  /// Closes the file and gives it its name.
  void commit() {
    errno = 0;
    stream_.close();
    if (!stream_) {
      fail(errno);
    }
    std::error_code error;
    std::filesystem::rename(temporary_, target_, error);
    if (error) {
      fail(error.value());
    }
  }

 private:
  void write_header(std::span<std::int64_t const> shape) {
    std::string text = "{'descr': '<i4', 'fortran_order': False, 'shape': (";
    for (std::size_t i = 0; i < shape.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    }
    text += shape.size() == 1 ? ",), }" : "), }";
    constexpr std::size_t prefix = 10;
    constexpr std::size_t alignment = 64;
    std::size_t const used = prefix + text.size() + 1;
    text.append((alignment - used % alignment) % alignment, ' ');
    text += '\n';
    stream_.write("\x93NUMPY\x01\x00", 8);
    stream_.put(static_cast<char>(text.size() & 0xff));
    stream_.put(static_cast<char>(text.size() >> 8));
    stream_ << text;
  }

  [[noreturn]] void refuse(std::string const& got) const {
    throw std::runtime_error(option_ + ": expected a file that can be written, got '" + name_ +
                             "': " + got);
  }

  [[noreturn]] void fail(int code) const {
    refuse(code != 0 ? std::generic_category().message(code) : "a write failed");
  }

  std::string option_;
  std::string name_;
  std::filesystem::path target_;
  std::string temporary_;
  std::ofstream stream_;
};

}  // namespace make_loads

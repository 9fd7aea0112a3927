// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads loads from `.npy` files.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace make_loads {

/// Recorded loads `[steps, layers, experts]`.
struct recorded_loads {
  std::int64_t steps = 0;
  std::int64_t layers = 0;
  std::int64_t experts = 0;
  std::vector<std::int64_t> values;
};

/// Reads loads of a `.npy` file in memory. Every defect is an exception that begins with the
/// subject.
class npy_reader {
 public:
  npy_reader(std::string subject, std::string_view bytes) : subject_(std::move(subject)) {
    if (bytes.substr(0, 6) != "\x93NUMPY" || bytes.size() < 12) {
      refuse("a .npy file", bytes.empty() ? "an empty file" : "another one");
    }
    // Version 1 has two bytes for the length of the header, later versions have four.
    std::size_t const size = bytes[6] == 1 ? 2 : 4;
    std::uint64_t const length = little_endian(bytes.substr(8, size));
    bytes.remove_prefix(8 + size);
    if (length > bytes.size()) {
      refuse("a header of " + std::to_string(length) + " bytes",
             std::to_string(bytes.size()) + " bytes");
    }
    header_ = bytes.substr(0, static_cast<std::size_t>(length));
    elements_ = bytes.substr(header_.size());
  }

  [[nodiscard]] recorded_loads loads() const {
    std::string_view const type = value("'descr': ", ",");
    if (type != "'<i4'" && type != "'<i8'") {
      refuse("integers of 32 or 64 bits, '<i4' or '<i8'", std::string(type));
    }
    if (value("'fortran_order': ", ",") != "False") {
      refuse("an array in C order", "another order");
    }
    std::size_t const size = type == "'<i4'" ? 4 : 8;
    auto const [steps, layers, experts] = shape(value("'shape': (", ")"), size);
    recorded_loads result{steps, layers, experts, {}};
    result.values.reserve(elements_.size() / size);
    for (std::size_t at = 0; at < elements_.size(); at += size) {
      std::uint64_t const bits = little_endian(elements_.substr(at, size));
      std::int64_t const load =
          size == 4 ? static_cast<std::int32_t>(bits) : static_cast<std::int64_t>(bits);
      if (load < 0) {
        refuse("loads of at least 0", std::to_string(load));
      }
      result.values.push_back(load);
    }
    return result;
  }

 private:
  [[noreturn]] void refuse(std::string const& expected, std::string const& got) const {
    throw std::runtime_error(subject_ + ": expected " + expected + ", got " + got);
  }

  [[nodiscard]] static std::uint64_t little_endian(std::string_view bytes) {
    std::uint64_t result = 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
      result = (result << 8) | static_cast<unsigned char>(*byte);
    }
    return result;
  }

  /// Returns the text of the header between `begin` and the next `end`.
  [[nodiscard]] std::string_view value(std::string_view begin, std::string_view end) const {
    std::size_t const found = header_.find(begin);
    if (found == std::string_view::npos) {
      refuse("a header with " + std::string(begin), "none");
    }
    std::string_view const rest = header_.substr(found + begin.size());
    return rest.substr(0, rest.find(end));
  }

  /// Reads the extents and compares them with the number of elements of `size` bytes.
  [[nodiscard]] std::array<std::int64_t, 3> shape(std::string_view text, std::size_t size) const {
    std::array<std::int64_t, 3> extents{};
    auto const count = static_cast<std::int64_t>(elements_.size() / size);
    std::int64_t product = 1;
    std::string_view rest = text;
    for (std::int64_t& extent : extents) {
      auto const [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
      if (error != std::errc() || extent < 1) {
        refuse_shape(text);
      }
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      if (&extent != &extents.back()) {
        if (rest.substr(0, 2) != ", ") {
          refuse_shape(text);
        }
        rest.remove_prefix(2);
      }
      product = product <= count / extent ? product * extent : count + 1;  // no overflow
    }
    if (!rest.empty()) {
      refuse_shape(text);
    }
    if (product != count || elements_.size() % size != 0) {
      refuse("the elements of the shape (" + std::string(text) + ")",
             std::to_string(elements_.size()) + " bytes");
    }
    return extents;
  }

  [[noreturn]] void refuse_shape(std::string_view text) const {
    refuse("an array [steps, layers, experts]", "the shape (" + std::string(text) + ")");
  }

  std::string subject_;
  std::string_view header_;
  std::string_view elements_;
};

/// Reads the file that `option` names.
[[nodiscard]] inline recorded_loads read_loads(std::string const& option, std::string const& name) {
  std::string const subject = option + ": " + name;
  auto const refuse = [&](std::string const& got) {
    throw std::runtime_error(subject + ": expected a readable file, got " + got);
  };
  if (std::filesystem::is_directory(name)) {  // which can be opened, but not be read
    refuse("a folder");
  }
  errno = 0;
  std::ifstream stream(name, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (!stream || bytes.bad()) {
    refuse(errno != 0 ? std::generic_category().message(errno) : "an error");
  }
  std::string const content = std::move(bytes).str();
  return npy_reader(subject, content).loads();
}

}  // namespace make_loads

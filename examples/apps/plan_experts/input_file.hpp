// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared by all file readers: an error that names the file, and reading of its bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace examples {

/// Error for a file that cannot be used: its name, what was expected and what was found.
class file_error : public std::runtime_error {
 public:
  file_error(std::string file, std::string expected, std::string got)
      : std::runtime_error(file + ": expected " + expected + ", got " + got),
        file_(std::move(file)),
        expected_(std::move(expected)),
        got_(std::move(got)) {}

  [[nodiscard]] std::string const& file() const noexcept { return file_; }
  [[nodiscard]] std::string const& expected() const noexcept { return expected_; }
  [[nodiscard]] std::string const& got() const noexcept { return got_; }

 private:
  std::string file_;
  std::string expected_;
  std::string got_;
};

/// Quotes a text from a file for messages: unprintable bytes become '?', a long text is cut.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string result = "'";
  for (char const c : text.substr(0, longest)) {
    result += (c >= ' ' && c <= '~') ? c : '?';
  }
  return result + (text.size() > longest ? "...'" : "'");
}

/// Returns the position of the byte at index `at` as "line 3, column 7".
[[nodiscard]] inline std::string position_in(std::string_view text, std::size_t at) {
  auto const before = text.substr(0, at);
  auto const line = std::count(before.begin(), before.end(), '\n') + 1;
  std::size_t const line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return "line " + std::to_string(line) + ", column " +
         std::to_string(before.size() - line_start + 1);
}

/// Callback with the number of bytes read and their total; the total is 0 if it is unknown.
using reading_progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Calls `consume(piece)` for each piece of a file in order; `file` may be `-`, the standard input.
template <class Consume>
void read_pieces(std::string const& file, reading_progress const& progress, Consume&& consume) {
  errno = 0;
  bool const standard_input = file == "-";
  std::ifstream named;
  if (!standard_input) {
    named.open(file, std::ios::binary);
  }
  std::istream& stream = standard_input ? std::cin : named;
  if (stream) {
    std::error_code ignored;
    auto const size = standard_input ? 0 : std::filesystem::file_size(file, ignored);
    std::uint64_t const total = ignored ? 0 : size;
    std::uint64_t done = 0;
    std::array<char, 1 << 16> chunk{};
    while (stream.read(chunk.data(), chunk.size()) || stream.gcount() > 0) {
      std::string_view const piece(chunk.data(), static_cast<std::size_t>(stream.gcount()));
      consume(piece);
      done += piece.size();
      if (progress) {
        progress(done, total);
      }
    }
    if (stream.eof() && !stream.bad()) {
      return;
    }
  }
  int const code = errno;  // a directory, for example, opens and then fails to read
  throw file_error(file, "a readable file",
                   code != 0 ? std::generic_category().message(code) : "an error while reading");
}

/// Returns all bytes of a file; `file` may be `-`, the standard input.
[[nodiscard]] inline std::string read_bytes(std::string const& file,
                                            reading_progress const& progress = {}) {
  std::string bytes;
  read_pieces(file, progress, [&](std::string_view piece) { bytes.append(piece); });
  return bytes;
}

}  // namespace examples

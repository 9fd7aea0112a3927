// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two forms of loads that are text: what `loads.hpp` describes as JSON and CSV, before loads
/// are checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "byte_store.hpp"

namespace examples {

/// Numbers of 8 bytes in the machine's order: whole ones, or where there is a float, whole ones
/// before `floats_from` and floats from there on.
struct text_numbers {
  byte_store bytes;
  std::vector<std::int64_t> shape;
  bool floats = false;
  std::uint64_t floats_from = 0;
};

/// Both read the text behind the first `skipped` bytes; `key` names the loads where it is not
/// empty.
[[nodiscard]] text_numbers parse_json_loads(byte_store const& text, std::size_t skipped,
                                            std::string const& key,
                                            reading_progress const& progress);
[[nodiscard]] text_numbers parse_csv_loads(byte_store const& text, std::size_t skipped,
                                           std::string const& key,
                                           reading_progress const& progress);

namespace detail {

inline constexpr char const* whole_numbers = "whole numbers below 2^63";
inline constexpr char const* float_numbers = "numbers in the range of a double";

template <class T>
void append(byte_store& to, T const& value) {
  to.append({reinterpret_cast<char const*>(&value), sizeof value});
}

/// Numbers in the order of the file: one with a fraction or an exponent makes all floats.
class number_list {
 public:
  explicit number_list(std::string name) : bytes_(std::move(name)) {}

  void add(std::int64_t value) {
    if (floats_) {
      append(bytes_, static_cast<double>(value));
    } else {
      append(bytes_, value);
    }
  }

  void add(double value) {
    if (!floats_) {
      floats_ = true;
      floats_from_ = bytes_.size() / sizeof value;
    }
    append(bytes_, value);
  }

  [[nodiscard]] text_numbers take(std::vector<std::int64_t> shape) {
    return {std::move(bytes_), std::move(shape), floats_, floats_from_};
  }

 private:
  byte_store bytes_;
  bool floats_ = false;
  std::uint64_t floats_from_ = 0;
};

}  // namespace detail
}  // namespace examples

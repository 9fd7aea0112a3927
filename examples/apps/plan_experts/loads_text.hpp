// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the two text forms of loads, JSON and CSV as `loads.hpp` describes them. The loads are
/// not checked here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "byte_store.hpp"

namespace examples {

/// Parsed numbers of 8 bytes each in the machine's byte order: all are integers, or, if there is a
/// float, integers before `floats_from` and doubles from there on.
struct text_numbers {
  byte_store bytes;
  std::vector<std::int64_t> shape;
  bool floats = false;
  std::uint64_t floats_from = 0;
};

/// Both parse the text after the first `skipped` bytes. `key` names the loads; empty means the
/// usual name.
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

/// Collects numbers in the order of the file; from the first float on, all are stored as doubles.
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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads values from the tree of a file, with checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <plimsoll/types.hpp>

#include "file_tree.hpp"
#include "input_file.hpp"

namespace examples {

using plimsoll::index_t;

/// Every function throws `file_error` for a value that is not as required. `path` is the position
/// of the value for messages, such as "layer_list[3].device_list".
class tree_reader {
 public:
  using json = nlohmann::json;
  using row = std::vector<std::int64_t>;

  explicit tree_reader(std::string const& file) : file_(file) {}

  [[noreturn]] void fail(std::string const& expected, std::string const& got) const {
    throw file_error(file_, expected, got);
  }

  [[nodiscard]] static std::string in(std::string const& path) {
    return path.empty() ? "" : " in " + path;
  }

  void expect_object(json const& value, std::string const& path) const {
    if (!value.is_object()) {
      fail("keys and values" + in(path), shown(value));
    }
  }

  /// Refuses unknown keys, for files whose engine refuses them.
  void expect_known_keys(json const& root, std::initializer_list<char const*> known) const {
    for (auto const& item : root.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        std::string list;
        for (char const* const key : known) {
          list += (list.empty() ? "" : ", ") + std::string(key);
        }
        fail("no other keys than " + list, in_quotes(item.key()));
      }
    }
  }

  [[nodiscard]] json const& member(json const& object, std::string const& path,
                                   std::string const& key) const {
    expect_object(object, path);
    auto const found = object.find(key);
    if (found == object.end()) {
      fail("the key " + key + in(path), "none");
    }
    return *found;
  }

  std::int64_t whole(json const& value, std::string const& path, std::int64_t low,
                     std::int64_t high) const {
    if (!is_whole(value) || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
      std::string const range = low == high ? std::to_string(low)
                                            : "a whole number from " + std::to_string(low) +
                                                  " to " + std::to_string(high);
      fail(range + in(path), shown(value));
    }
    return value.get<std::int64_t>();
  }

  [[nodiscard]] json const& list(json const& value, std::string const& path,
                                 std::optional<index_t> length = {}) const {
    if (!value.is_array()) {
      fail("a list" + in(path), shown(value));
    }
    if (length && static_cast<index_t>(value.size()) != *length) {
      fail(std::to_string(*length) + " values" + in(path), std::to_string(value.size()));
    }
    return value;
  }

  [[nodiscard]] row values(json const& value, std::string const& path,
                           std::optional<index_t> length = {}) const {
    row result;
    for (json const& element : list(value, path, length)) {
      if (!is_whole(element)) {
        fail("whole numbers below 2^63" + in(path),
             shown(element) + " at place " + std::to_string(result.size()));
      }
      result.push_back(element.get<std::int64_t>());
    }
    return result;
  }

  [[nodiscard]] std::vector<double> numbers(json const& value, std::string const& path,
                                            std::optional<index_t> length = {}) const {
    std::vector<double> result;
    for (json const& element : list(value, path, length)) {
      if (!element.is_number()) {
        fail("numbers" + in(path), shown(element) + " at place " + std::to_string(result.size()));
      }
      result.push_back(element.get<double>());
    }
    return result;
  }

  [[nodiscard]] std::vector<row> matrix(json const& root, std::string const& key, index_t rows,
                                        index_t columns) const {
    std::vector<row> result;
    for (json const& line : list(member(root, "", key), key, rows)) {
      result.push_back(values(line, key + "[" + std::to_string(result.size()) + "]", columns));
    }
    return result;
  }

  [[nodiscard]] static bool is_whole(json const& value) {
    constexpr auto largest = std::numeric_limits<std::int64_t>::max();
    return value.is_number_integer() &&
           (!value.is_number_unsigned() ||
            value.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest));
  }

  [[nodiscard]] std::string const& file() const { return file_; }

 private:
  std::string const& file_;
};

}  // namespace examples

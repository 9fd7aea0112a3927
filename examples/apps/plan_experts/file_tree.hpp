// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses JSON and YAML files into trees of the same form.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace examples {

/// Parses JSON. Throws `file_error` if the bytes are not JSON, and for a duplicate key in an
/// object, since programs differ in which of the values they use.
[[nodiscard]] nlohmann::json tree_of_json(std::string_view bytes, std::string const& file);

/// Parses YAML. Keys are strings. Unquoted plain decimal numbers are integers and all other values
/// strings, so that numbers that YAML 1.1 and 1.2 read differently (010, 1_0, 0x10) stay strings.
/// Throws `file_error` as `tree_of_json`, and for anchors, deep nesting and a second document.
[[nodiscard]] nlohmann::json tree_of_yaml(std::string_view bytes, std::string const& file);

/// Parses an integer in its canonical form: no plus sign, no leading zeros.
[[nodiscard]] std::optional<std::int64_t> decimal(std::string const& text);

/// Describes a value for messages; of an object or a list it gives only the type.
[[nodiscard]] std::string shown(nlohmann::json const& value);

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON and YAML files as trees, both in the same form.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace examples {

/// Both throw `file_error` for what is no such file, and for a key that an object has twice, since
/// programs differ in which of the values they take.
[[nodiscard]] nlohmann::json tree_of_json(std::string_view bytes, std::string const& file);

/// Keys are texts. Values are integers where they are unquoted decimal numbers without ornament,
/// and texts otherwise, so that what YAML 1.1 and 1.2 read differently (010, 1_0, 0x10) is no
/// number. Anchors, deep nesting and a second document are refused.
[[nodiscard]] nlohmann::json tree_of_yaml(std::string_view bytes, std::string const& file);

/// The number that this is the only way to write: no plus, no zeros before it.
[[nodiscard]] std::optional<std::int64_t> decimal(std::string const& text);

/// A value in words, for messages; what has parts is only named.
[[nodiscard]] std::string shown(nlohmann::json const& value);

}  // namespace examples

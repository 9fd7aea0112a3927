// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two forms of loads that are text: what `loads.hpp` describes as JSON and CSV, before loads
/// are checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "npy.hpp"

namespace examples {

[[nodiscard]] npy::any_array parse_json_loads(std::string_view text, std::string const& file);
[[nodiscard]] npy::any_array parse_csv_loads(std::string_view text, std::string const& file);

namespace detail {

inline constexpr char const* whole_numbers = "whole numbers below 2^63";
inline constexpr char const* float_numbers = "numbers in the range of a double";

/// Numbers in the order of the file: whole ones until one has a fraction or an exponent, which
/// turns them all into floats.
class number_list {
 public:
  void add(std::int64_t value) {
    if (auto* const floats = std::get_if<doubles>(&values_)) {
      floats->push_back(static_cast<double>(value));
    } else {
      std::get<integers>(values_).push_back(value);
    }
  }

  void add(double value) {
    if (auto const* const whole = std::get_if<integers>(&values_)) {
      values_ = doubles(whole->begin(), whole->end());
    }
    std::get<doubles>(values_).push_back(value);
  }

  /// The numbers as an array; `arrange` takes their vector and gives that of the array.
  template <class Arrange>
  [[nodiscard]] npy::any_array take(std::vector<std::int64_t> shape, Arrange&& arrange) {
    return std::visit(
        [&](auto& values) -> npy::any_array {
          using value = typename std::remove_reference_t<decltype(values)>::value_type;
          return npy::array<value>{std::move(shape), arrange(std::move(values))};
        },
        values_);
  }
  [[nodiscard]] npy::any_array take(std::vector<std::int64_t> shape) {
    return take(std::move(shape), [](auto&& values) { return std::move(values); });
  }

 private:
  using integers = std::vector<std::int64_t>;
  using doubles = std::vector<double>;

  std::variant<integers, doubles> values_;
};

}  // namespace detail
}  // namespace examples

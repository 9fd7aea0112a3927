// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exceptions. Every message names the function, the argument, the expected value and the value
/// that was passed.
#pragma once

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Thrown for a shape, an option or a value that the function does not accept.
struct invalid_input : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Thrown if a CUDA call or launch fails; `code()` is its `cudaError_t`.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(int code, std::string const& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// Concatenates the parts of a message. Floating-point numbers are printed with the fewest digits
/// that identify them, and whole numbers below 10^15 without an exponent.
template <class... Parts>
[[nodiscard]] std::string text(Parts const&... parts) {
  std::string result;
  auto const append = [&result]<class Part>(Part const& part) {
    if constexpr (std::is_convertible_v<Part const&, std::string_view>) {
      result.append(part);
    } else if constexpr (std::is_floating_point_v<Part>) {
      if (part != part) {
        result.append("NaN");  // to_chars would print its sign, which differs between machines
      } else if (part > -1e15 && part < 1e15 &&
                 static_cast<Part>(static_cast<long long>(part)) == part) {
        result.append(std::to_string(static_cast<long long>(part)));
      } else {
        char digits[64];  // the shortest form of a double has at most 24 characters
        auto const end = std::to_chars(digits, digits + sizeof(digits), part).ptr;
        result.append(digits, end);
      }
    } else {
      result.append(std::to_string(part));
    }
  };
  (append(parts), ...);
  return result;
}

[[noreturn]] inline void fail(std::string_view function, std::string_view argument,
                              std::string_view expected, std::string_view got) {
  throw invalid_input(text(function, ": ", argument, ": expected ", expected, ", got ", got));
}

/// Throws unless `got` is in [low, high]; `what` names the quantity, such as "ranks".
inline void expect_between(std::string_view function, std::string_view argument, long long low,
                           long long high, long long got, std::string_view what) {
  if (got < low || got > high) {
    fail(function, argument, text(low, " to ", high, " ", what), text(got));
  }
}

/// Throws unless `got` equals `expected`; `what` names the quantity, such as "layers".
inline void expect_extent(std::string_view function, std::string_view argument, long long expected,
                          long long got, std::string_view what) {
  if (got != expected) {
    fail(function, argument, text(expected, " ", what), text(got));
  }
}

}  // namespace detail
}}  // namespace plimsoll

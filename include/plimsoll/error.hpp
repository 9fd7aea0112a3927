// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors. Every message names the function, the argument, what was expected and what came.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// A shape, an option or a value that the function cannot take.
struct invalid_input : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// A CUDA call or launch that failed; `code()` is its `cudaError_t`.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(int code, std::string const& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

[[noreturn]] inline void fail(std::string_view function, std::string_view argument,
                              std::string_view expected, std::string_view got) {
  std::string message;
  message.append(function).append(": ").append(argument).append(": expected ").append(expected);
  message.append(", got ").append(got);
  throw invalid_input(message);
}

/// Throws unless `got` lies in [low, high]; `what` names the quantity, as "ranks".
inline void expect_between(std::string_view function, std::string_view argument, long long low,
                           long long high, long long got, std::string_view what) {
  if (got < low || got > high) {
    fail(function, argument,
         std::to_string(low) + " to " + std::to_string(high) + " " + std::string(what),
         std::to_string(got));
  }
}

/// Throws unless `got` equals `expected`; `what` names the quantity, as "layers".
inline void expect_extent(std::string_view function, std::string_view argument, long long expected,
                          long long got, std::string_view what) {
  if (got != expected) {
    fail(function, argument, std::to_string(expected) + " " + std::string(what),
         std::to_string(got));
  }
}

}  // namespace detail
}  // namespace plimsoll

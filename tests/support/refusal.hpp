// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/error.hpp>

#include <string>

namespace plimsoll_test {

/// Returns the message of the `invalid_input` that the call throws.
template <class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

// Not in the typed cases, which would compile every CHECK for each type.
inline void check_message(std::string const& got, std::string const& expected) {
  CHECK(got == expected);
}

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace plimsoll_test {

/// Returns whether a value is an enumerator: compilers then print its name, else a cast.
template <auto value>
consteval bool is_enumerator() {
  std::string_view const name = __PRETTY_FUNCTION__;
  return name.substr(name.rfind('=')).find('(') == name.npos;
}
/// Returns the number of enumerators of a type whose enumerators count from 0.
template <class Enumeration, int count = 0>
consteval int enumerators() {
  if constexpr (is_enumerator<static_cast<Enumeration>(count)>()) {
    return enumerators<Enumeration, count + 1>();
  } else {
    return count;
  }
}

}  // namespace plimsoll_test

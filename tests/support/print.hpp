// SPDX-License-Identifier: Apache-2.0
// Lets doctest print vectors in failed comparisons.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace doctest {

template <class T>
struct StringMaker<std::vector<T>> {
  static String convert(std::vector<T> const& values) {
    constexpr std::size_t shown = 40;
    String result = "{";
    for (std::size_t i = 0; i < values.size() && i < shown; ++i) {
      result += (i == 0 ? "" : ", ") + toString(values[i]);
    }
    if (values.size() > shown) {
      result += ", ... " + toString(static_cast<unsigned long>(values.size())) + " in all";
    }
    return result + "}";
  }
};

}  // namespace doctest

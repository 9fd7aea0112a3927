// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "generators.hpp"

namespace plimsoll_test {

/// Random numbers of the kinds that random cases need.
class draws {
 public:
  explicit draws(std::uint64_t seed) : random_(seed) {}
  std::int32_t among(std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random_.between(low, high));
  }
  bool one_in(std::int64_t n) { return among(1, n) == 1; }
  template <class T>
  T any(std::initializer_list<T> values) {
    return values.begin()[among(0, static_cast<std::int64_t>(values.size()) - 1)];
  }
  double unit() { return random_.unit(); }
  std::uint64_t bits() { return random_.bits(); }

 private:
  generator random_;
};

}  // namespace plimsoll_test

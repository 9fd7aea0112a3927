// SPDX-License-Identifier: Apache-2.0
// Test inputs that depend on a seed only, so that a failing case can be run again. They do not use
// the library's generator, which is itself under test.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace plimsoll_test {

using plimsoll::index_t;

/// Returns how many of `n` random cases to run: an eighth under sanitizers, which make them ten
/// times as slow. The other cases test results, and every build without a sanitizer runs them.
constexpr std::uint64_t cases_of(std::uint64_t n) {
#if defined(PLIMSOLL_TEST_FEW_CASES)
  return (n + 7) / 8;
#else
  return n;
#endif
}

/// The finalizer of splitmix64: a bijection whose values look random.
PLIMSOLL_HD constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t bits() { return mix(state_++); }
  /// Returns a number in [low, high], uniform enough for tests.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Returns a number in [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

inline std::vector<std::int64_t> random_integers(std::uint64_t seed, index_t count,
                                                 std::int64_t low, std::int64_t high) {
  generator random(seed);
  std::vector<std::int64_t> result(static_cast<std::size_t>(count));
  for (std::int64_t& value : result) {
    value = random.between(low, high);
  }
  return result;
}

/// Numbers of both signs over 40 orders of magnitude, so that sums depend on their order.
inline std::vector<double> random_reals(std::uint64_t seed, index_t count) {
  generator random(seed);
  std::vector<double> result(static_cast<std::size_t>(count));
  for (double& value : result) {
    value = random.unit() - 0.5;
    for (std::int64_t k = random.between(0, 40); k > 0; --k) {
      value *= 10.0;
    }
  }
  return result;
}

/// Keys that differ in their low 20 bits, in random order; none is 2^64 - 1.
inline std::vector<std::uint64_t> unique_keys(std::uint64_t seed, index_t count) {
  generator random(seed);
  std::vector<std::uint64_t> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    // Few different high parts, so that the low parts often decide.
    result[i] = ((random.bits() % 97) << 40) | i;
  }
  for (std::size_t i = result.size(); i > 1; --i) {
    std::size_t const j = static_cast<std::size_t>(random.bits() % i);
    std::uint64_t const other = result[j];
    result[j] = result[i - 1];
    result[i - 1] = other;
  }
  return result;
}

/// Skewed loads like those of routed experts, some of them zero; integers up to 100000, which every
/// load type represents exactly.
template <class T>
std::vector<T> random_loads(std::uint64_t seed, index_t count) {
  generator random(seed);
  std::vector<T> result(static_cast<std::size_t>(count));
  for (T& value : result) {
    value = random.between(0, 9) == 0
                ? T{0}
                : static_cast<T>(100000 / static_cast<std::int64_t>(1 + random.between(0, 300)));
  }
  return result;
}

}  // namespace plimsoll_test

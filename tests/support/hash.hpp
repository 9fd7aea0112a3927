// SPDX-License-Identifier: Apache-2.0
// FNV-1a 64 hashes of results. Every case that computes something prints one line
//
//     hash <suite>.<case> <16 hex digits>
//
// which must be the same on every backend, compiler and machine (tests/golden/hashes.txt).
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <ranges>
#include <string>
#include <type_traits>

namespace plimsoll_test {

class fnv1a {
 public:
  void bytes(void const* data, std::size_t size) {
    auto const* const byte = static_cast<unsigned char const*>(data);
    for (std::size_t i = 0; i < size; ++i) {
      state_ = (state_ ^ byte[i]) * 0x100000001b3u;
    }
  }

  /// Adds a number or enumerator of a type without padding, so that equal values have equal bytes.
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void add(T value) {
    static_assert(!std::is_same_v<T, long double>);
    bytes(&value, sizeof(value));
  }
  void add(std::string const& text) { bytes(text.data(), text.size()); }

  /// Adds a range: its length, then its elements, so that {1}{2} and {1, 2}{} differ.
  template <std::ranges::input_range R>
  void add(R const& range) {
    add(static_cast<std::uint64_t>(std::ranges::size(range)));
    for (auto const& element : range) {
      add(element);
    }
  }

  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

template <class... Results>
std::uint64_t hash_of(Results const&... results) {
  fnv1a hash;
  (hash.add(results), ...);
  return hash.value();
}

/// Part of `report_hash` that keeps state, and therefore is not a template.
inline void report_hash_value(std::string const& name, std::uint64_t hash) {
  static std::map<std::string, std::uint64_t> reported;
  static std::mutex mutex;
  std::lock_guard const lock(mutex);
  auto const [entry, first] = reported.emplace(name, hash);
  if (first) {
    std::printf("hash %s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
    std::fflush(stdout);
  }
  CAPTURE(name);
  CHECK(entry->second == hash);
}

/// Prints the hash of `results` (numbers, or ranges of numbers) at the first call with `name`, and
/// checks that the hash is the same at every later call. `name` is "<suite>.<case>". Call it once
/// per policy, with the same name.
template <class... Results>
void report_hash(std::string const& name, Results const&... results) {
  static_assert(sizeof...(Results) > 0);
  report_hash_value(name, hash_of(results...));
}

}  // namespace plimsoll_test

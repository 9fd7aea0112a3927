// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch memory of one problem: a bump allocator that starts at one base pointer.
#pragma once

#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the bytes that `scratch.take<T>(n)` takes. A body adds them up in `scratch_bytes()`.
template <class T>
PLIMSOLL_HD constexpr std::size_t scratch_bytes_of(index_t n) {
  constexpr std::size_t unit = 16;  // keeps every array aligned for 128-bit keys
  static_assert(alignof(T) <= unit);
  return (static_cast<std::size_t>(n) * sizeof(T) + unit - 1) / unit * unit;
}

/// Allocates arrays from one problem's scratch memory. Allocation is uniform: every thread of a
/// team takes the same arrays in the same order and gets the same pointers. Elements are not
/// initialized.
class scratch {
 public:
  PLIMSOLL_HD explicit scratch(std::byte* base) : next_(base) {}

  template <class T>
  PLIMSOLL_HD T* take(index_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* const result = reinterpret_cast<T*>(next_);
    next_ += scratch_bytes_of<T>(n);
    return result;
  }
  template <class T>
  PLIMSOLL_HD void take(T*& array, index_t n) {
    array = take<T>(n);
  }

 private:
  std::byte* next_;
};

/// Replaces `scratch` to count the bytes of a list of arrays, so that the list exists only once.
class scratch_count {
 public:
  template <class T>
  PLIMSOLL_HD void take(T*&, index_t n) {
    bytes_ += scratch_bytes_of<T>(n);
  }
  [[nodiscard]] PLIMSOLL_HD std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Returns the bytes that `Arrays::in(memory, sizes...)` takes.
template <class Arrays, class... Sizes>
[[nodiscard]] PLIMSOLL_HD std::size_t bytes_taken_by(Sizes const&... sizes) {
  scratch_count count;
  static_cast<void>(Arrays::in(count, sizes...));
  return count.bytes();
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch memory of one problem: a bump allocator that starts at one base pointer.
#pragma once

#include <cstddef>
#include <cstdint>
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

  /// Returns the bytes taken since this was a copy of `start`.
  [[nodiscard]] PLIMSOLL_HD std::size_t bytes_since(scratch const& start) const {
    return static_cast<std::size_t>(next_ - start.next_);
  }

 private:
  std::byte* next_;
};

/// Refers to the scratch from which the members that follow it in a struct take their arrays:
/// `double* load = memory.take(ranks);`. It keeps the size itself, since an object for each array
/// would cost device teams registers.
class scratch_ref {
  struct request {
    scratch& from;
    index_t n;
    bool is_needed;

    template <class T>
    PLIMSOLL_HD operator T*() const {
      return is_needed ? from.take<T>(n) : nullptr;
    }
  };

 public:
  PLIMSOLL_HD scratch_ref(scratch& from) : next_{from, 0, true} {}

  /// Takes an array of the type that the pointer has.
  [[nodiscard]] PLIMSOLL_HD request const& take(index_t n) { return take_if(true, n); }
  /// Takes an array if it is needed, else the pointer is null.
  [[nodiscard]] PLIMSOLL_HD request const& take_if(bool is_needed, index_t n) {
    next_.n = n;
    next_.is_needed = is_needed;
    return next_;
  }
  PLIMSOLL_HD operator scratch&() const { return next_.from; }

 private:
  request next_;
};

/// Returns the bytes that a list of arrays takes, which exists only once: `Arrays{memory,
/// sizes...}`, or `Arrays::in(memory, sizes...)` if it outlives `memory`.
template <class Arrays, class... Sizes>
[[nodiscard]] PLIMSOLL_HD std::size_t bytes_taken_by(Sizes const&... sizes) {
  // No array is accessed, so any base will do except null, to which nothing may be added.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  scratch const start(reinterpret_cast<std::byte*>(std::uintptr_t{4096}));
  scratch memory = start;
  if constexpr (requires(scratch& from, Sizes const&... n) { Arrays::in(from, n...); }) {
    static_cast<void>(Arrays::in(memory, sizes...));
  } else {
    static_cast<void>(Arrays{memory, sizes...});
  }
  return memory.bytes_since(start);
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory operations of host contexts (`memory_of`).
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Executor>
struct memory_of<host_context<Executor>> {
  using context = host_context<Executor>;

  static void* allocate(context const& where, std::size_t bytes, std::size_t alignment) {
    return where.memory.empty() ? ::operator new(bytes, std::align_val_t{alignment})
                                : where.memory.allocate(nullptr, bytes, alignment);
  }
  static void deallocate(context const& where, void* pointer, std::size_t bytes,
                         std::size_t alignment) {
    if (where.memory.empty()) {
      ::operator delete(pointer, std::align_val_t{alignment});
    } else {
      where.memory.deallocate(nullptr, pointer, bytes, alignment);
    }
  }
  static void from_host(context const&, void const* source, void* destination, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(destination, source, bytes);
    }
  }
  static void to_host(context const&, void const* source, void* destination, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(destination, source, bytes);
    }
  }
  /// Copies rows of `bytes` bytes that begin `pitch` >= `bytes` bytes apart to a packed array.
  static void rows_to_host(context const&, void const* source, std::size_t pitch, void* destination,
                           std::size_t bytes, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<std::byte*>(destination) + row * bytes,
                  static_cast<std::byte const*>(source) + row * pitch, bytes);
    }
  }
  static void zero(context const&, void* destination, std::size_t bytes) {
    if (bytes > 0) {
      std::memset(destination, 0, bytes);
    }
  }
  static void synchronize(context const&) {}
};

}}}  // namespace plimsoll::detail

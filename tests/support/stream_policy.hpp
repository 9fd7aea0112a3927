// SPDX-License-Identifier: Apache-2.0
// Host policy that behaves like a stream: it counts the operations that a device would still have
// to do, and the waits for them. Its memory counts allocations, is filled with garbage, and can
// throw.
#pragma once

#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace plimsoll_test {

struct stream_counts {
  long enqueued = 0;     ///< operations since the last wait
  long waits = 0;        ///< since the last reset
  long allocations = 0;  ///< since the last reset
  long live = 0;         ///< blocks of memory now
  long allowed = -1;     ///< allocations that succeed before one throws; -1: all

  void reset() { enqueued = waits = allocations = 0; }
};
inline stream_counts on_the_stream;

struct stream_executor {
  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    ++on_the_stream.enqueued;
    f(plimsoll::index_t{0}, n);
  }
};
using stream_context = plimsoll::host_context<stream_executor>;
struct stream_policy {};

}  // namespace plimsoll_test

template <>
struct plimsoll::policy_traits<plimsoll_test::stream_policy> {
  static plimsoll_test::stream_context resolve(plimsoll_test::stream_policy const&) { return {}; }
};

template <>
struct plimsoll::detail::memory_of<plimsoll_test::stream_context> {
  using context = plimsoll_test::stream_context;

  // Not by operator new, so that a program can count its calls apart from these.
  static void* allocate(context const&, std::size_t bytes, std::size_t alignment) {
    auto& counts = plimsoll_test::on_the_stream;
    if (counts.allowed == 0) {
      throw std::bad_alloc();
    }
    counts.allowed -= counts.allowed > 0 ? 1 : 0;
    void* const memory =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    ++counts.enqueued;
    ++counts.allocations;
    ++counts.live;
    std::memset(memory, 0xA5, bytes);  // memory of a device is not zero either
    return memory;
  }
  static void deallocate(context const&, void* pointer, std::size_t, std::size_t) {
    ++plimsoll_test::on_the_stream.enqueued;
    --plimsoll_test::on_the_stream.live;
    std::free(pointer);
  }
  static void from_host(context const& where, void const* source, void* destination,
                        std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(destination, source, bytes);
    }
    synchronize(where);
  }
  static void to_host(context const& where, void const* source, void* destination,
                      std::size_t bytes) {
    from_host(where, source, destination, bytes);
  }
  static void rows_to_host(context const& where, void const* source, std::size_t pitch,
                           void* destination, std::size_t bytes, std::size_t rows) {
    memory_of<host_context<inline_executor>>::rows_to_host({}, source, pitch, destination, bytes,
                                                           rows);
    synchronize(where);
  }
  static void zero(context const&, void* destination, std::size_t bytes) {
    ++plimsoll_test::on_the_stream.enqueued;
    if (bytes > 0) {
      std::memset(destination, 0, bytes);
    }
  }
  static void synchronize(context const&) {
    ++plimsoll_test::on_the_stream.waits;
    plimsoll_test::on_the_stream.enqueued = 0;
  }
};

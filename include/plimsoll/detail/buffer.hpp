// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrays in the memory of a context. `memory_of<Context>` is specialized for host and device.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Allocator of lists on the host. An empty resource means operator new.
template <class T>
struct list_allocator {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  resource_ref memory = {};

  list_allocator() = default;
  list_allocator(resource_ref from) : memory(from) {}
  template <class U>
  list_allocator(list_allocator<U> const& other) : memory(other.memory) {}

  [[nodiscard]] T* allocate(std::size_t n) const {
    void* const taken = memory.empty() ? ::operator new(n * sizeof(T))
                                       : memory.allocate(nullptr, n * sizeof(T), alignof(T));
    return static_cast<T*>(taken);
  }
  void deallocate(T* from, std::size_t n) const {
    if (memory.empty()) {
      ::operator delete(from);
    } else {
      memory.deallocate(nullptr, from, n * sizeof(T), alignof(T));
    }
  }
  friend bool operator==(list_allocator const& a, list_allocator const& b) {
    return a.memory == b.memory;
  }
};

/// List on the host, in memory of its own or of a resource.
template <class T>
using host_list = std::vector<T, list_allocator<T>>;

/// Memory operations of a context: allocate, deallocate, from_host, to_host, zero, synchronize.
/// `from_host` returns when the source may be freed. Specialized in host/memory.hpp and
/// device/memory.cuh.
template <class Context>
struct memory_of;

/// Owning array in the memory of a context. Elements are not initialized.
template <class T, class Context>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  buffer() = default;
  buffer(Context const& context, index_t size) : context_(context), size_(size) {
    if (size > 0) {
      data_ = static_cast<T*>(memory_of<Context>::allocate(context_, bytes(), alignment));
    }
  }
  /// Allocates an array and copies `elements` from the host.
  template <class Allocator>
  buffer(Context const& context, std::vector<T, Allocator> const& elements)
      : buffer(context, static_cast<index_t>(elements.size())) {
    assign(elements.data());
  }
  buffer(buffer&& other) noexcept
      : context_(other.context_),
        size_(std::exchange(other.size_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~buffer() {
    if (data_ != nullptr) {
      memory_of<Context>::deallocate(context_, data_, bytes(), alignment);
    }
  }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] index_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }

  /// Copies as many elements from the host; returns when `elements` may be freed.
  void assign(T const* elements) const {
    memory_of<Context>::from_host(context_, elements, data_, bytes());
  }

  /// Sets every byte to zero, in stream order.
  void zero() const { memory_of<Context>::zero(context_, data_, bytes()); }

  /// Waits for the context's work so far and returns the elements.
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> result(static_cast<std::size_t>(size_));
    read_to(result.data());
    return result;
  }
  [[nodiscard]] host_list<T> read(resource_ref memory) const {
    host_list<T> result(static_cast<std::size_t>(size_), memory);
    read_to(result.data());
    return result;
  }

 private:
  static constexpr std::size_t alignment = 64;

  void read_to(T* elements) const {
    memory_of<Context>::to_host(context_, data_, elements, bytes());
  }

  Context context_{};
  index_t size_ = 0;
  T* data_ = nullptr;
};

/// Waits for the context's work so far. Constructors of prepared objects end with this call, so
/// that work on any stream, such as a graph replay, can use their memory.
template <class Context>
void synchronize(Context const& context) {
  memory_of<Context>::synchronize(context);
}

}}}  // namespace plimsoll::detail

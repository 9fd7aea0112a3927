// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrays in the memory of a context. `memory_of<Context>` is specialized for host and device.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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
  buffer(Context const& context, std::vector<T> const& elements)
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
    memory_of<Context>::to_host(context_, data_, result.data(), bytes());
    return result;
  }

 private:
  static constexpr std::size_t alignment = 64;

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

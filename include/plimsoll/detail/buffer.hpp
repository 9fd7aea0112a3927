// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrays in the memory of a context. `memory_of<Context>` is specialised per side.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// allocate, deallocate, from_host, to_host, zero, synchronize. `from_host` returns once the source
/// may go. Specialised in host/memory.hpp and
/// device/memory.cuh.
template <class Context>
struct memory_of;

/// An array in the memory of a context, freed with it. Elements start undefined.
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
  /// A copy of elements on the host.
  buffer(Context const& context, std::vector<T> const& elements)
      : buffer(context, static_cast<index_t>(elements.size())) {
    memory_of<Context>::from_host(context_, elements.data(), data_, bytes());
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

  /// Sets every byte to zero, in the order of the context's work.
  void zero() const { memory_of<Context>::zero(context_, data_, bytes()); }

  /// The elements, once the context's work so far is done.
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

/// Waits for the context's work so far. Constructors of prepared objects end with it, so that their
/// memory is there for work on any stream, such as the replay of a graph.
template <class Context>
void synchronize(Context const& context) {
  memory_of<Context>::synchronize(context);
}

}}}  // namespace plimsoll::detail

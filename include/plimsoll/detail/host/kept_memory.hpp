// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that a host object keeps for its temporaries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Resource for one thread whose blocks form a stack in memory that it keeps. What exceeds this
/// memory comes from another resource until the stack is empty; then there is room for as much. So
/// work whose blocks are none larger than those of earlier work, in the same order, allocates
/// nothing.
class kept_memory {
 public:
  explicit kept_memory(resource_ref from) : from_(from) {}
  /// The stack of `other` is empty.
  kept_memory(kept_memory&& other) noexcept
      : from_(other.from_),
        kept_(std::exchange(other.kept_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        most_(other.most_) {}
  kept_memory& operator=(kept_memory&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(kept_, other.kept_);
    std::swap(size_, other.size_);
    std::swap(most_, other.most_);
    return *this;
  }
  ~kept_memory() { give_back(kept_, size_); }

  void* allocate(std::size_t bytes, std::size_t) {
    if (top_ == nullptr) {
      make_room();
    }
    std::size_t const begin = top_ == nullptr ? 0 : top_->end;
    std::size_t const size = (bytes + 2 * alignment - 1) / alignment * alignment;  // with a header
    bool const fits = begin + size <= size_;
    std::byte* const place = fits ? kept_ + begin : take(size);
    top_ = ::new (static_cast<void*>(place)) block{top_, begin + size, fits ? 0 : size, false};
    most_ = std::max(most_, top_->end);
    return place + alignment;
  }
  void deallocate(void* pointer, std::size_t, std::size_t) {
    reinterpret_cast<block*>(static_cast<std::byte*>(pointer) - alignment)->is_free = true;
    while (top_ != nullptr && top_->is_free) {
      block* const last = top_;
      top_ = last->previous;
      if (last->taken > 0) {
        give_back(reinterpret_cast<std::byte*>(last), last->taken);
      }
    }
  }

  /// Makes room for the largest stack so far. The stack is empty.
  void make_room() {
    if (most_ > size_) {
      std::byte* const larger = take(most_);
      give_back(kept_, size_);
      kept_ = larger;
      size_ = most_;
    }
  }

 private:
  static constexpr std::size_t alignment = 64;

  /// Before the memory of every block. A block that is free stays until those above it are.
  struct block {
    block* previous;
    std::size_t end;    ///< of the stack
    std::size_t taken;  ///< bytes from the other resource; 0: in the memory that is kept
    bool is_free;
  };

  [[nodiscard]] std::byte* take(std::size_t bytes) const {
    void* const taken = from_.empty() ? ::operator new(bytes, std::align_val_t{alignment})
                                      : from_.allocate(nullptr, bytes, alignment);
    return static_cast<std::byte*>(taken);
  }
  void give_back(std::byte* taken, std::size_t bytes) const {
    if (taken == nullptr) {
      return;
    }
    if (from_.empty()) {
      ::operator delete(taken, std::align_val_t{alignment});
    } else {
      from_.deallocate(nullptr, taken, bytes, alignment);
    }
  }

  resource_ref from_;
  std::byte* kept_ = nullptr;
  std::size_t size_ = 0;  ///< of `kept_`
  std::size_t most_ = 0;  ///< largest end of the stack
  block* top_ = nullptr;
};

}}}  // namespace plimsoll::detail

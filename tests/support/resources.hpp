// SPDX-License-Identifier: Apache-2.0
// Host memory resources that check their callers: they count allocations, track live blocks, can
// throw, and fill new memory with garbage, so that no test passes because new memory is zero.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>

namespace plimsoll_test {

/// Thread-safe resource that counts. A deallocation of unknown memory, or with another size or
/// alignment than that of the allocation, counts as a mismatch.
class counting_resource : public std::pmr::memory_resource {
 public:
  counting_resource() = default;
  counting_resource(counting_resource const&) = delete;
  counting_resource& operator=(counting_resource const&) = delete;
  ~counting_resource() override {
    for (auto const& [pointer, what] : live_) {
      ::operator delete(pointer, std::align_val_t{what.alignment});
    }
  }

  [[nodiscard]] std::size_t allocations() const { return allocations_; }
  /// Returns the number of blocks that are allocated and not yet deallocated.
  [[nodiscard]] std::size_t live() const {
    std::lock_guard const lock(mutex_);
    return live_.size();
  }
  [[nodiscard]] std::size_t mismatches() const { return mismatches_; }
  /// Return the largest number of bytes and the smallest alignment requested.
  [[nodiscard]] std::size_t largest() const {
    std::lock_guard const lock(mutex_);
    return largest_;
  }
  [[nodiscard]] std::size_t smallest_alignment() const {
    std::lock_guard const lock(mutex_);
    return smallest_alignment_;
  }

 protected:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const pointer = ::operator new(bytes, std::align_val_t{alignment});
    std::memset(pointer, 0xA5, bytes);
    std::lock_guard const lock(mutex_);
    live_[pointer] = {bytes, alignment};
    largest_ = bytes > largest_ ? bytes : largest_;
    smallest_alignment_ = alignment < smallest_alignment_ ? alignment : smallest_alignment_;
    ++allocations_;
    return pointer;
  }

  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override {
    std::lock_guard const lock(mutex_);
    auto const found = live_.find(pointer);
    if (found == live_.end()) {
      ++mismatches_;
      return;
    }
    if (found->second.bytes != bytes || found->second.alignment != alignment) {
      ++mismatches_;
    }
    ::operator delete(pointer, std::align_val_t{found->second.alignment});
    live_.erase(found);
  }

  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }

 private:
  struct block {
    std::size_t bytes;
    std::size_t alignment;
  };
  mutable std::mutex mutex_;
  std::map<void*, block> live_;
  std::size_t largest_ = 0;
  std::size_t smallest_alignment_ = ~std::size_t{0};
  std::atomic<std::size_t> allocations_ = 0;
  std::atomic<std::size_t> mismatches_ = 0;
};

/// Resource that throws std::bad_alloc from every allocation after the first `allowed`.
class throwing_resource : public counting_resource {
 public:
  explicit throwing_resource(std::size_t allowed) : left_(static_cast<std::ptrdiff_t>(allowed)) {}

 protected:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (left_.fetch_sub(1) <= 0) {
      throw std::bad_alloc();
    }
    return counting_resource::do_allocate(bytes, alignment);
  }

 private:
  std::atomic<std::ptrdiff_t> left_;
};

}  // namespace plimsoll_test

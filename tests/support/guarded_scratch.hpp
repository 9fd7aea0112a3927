// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "thread_team.hpp"

namespace plimsoll_test {

/// Scratch memory of a body, between guards. `fill` writes garbage that depends on the seed and is
/// the same for every problem, so that a result that depends on it is detected.
class guarded_scratch {
 public:
  guarded_scratch(std::size_t bytes, std::uint64_t seed)
      : bytes_(bytes),
        junk_(seed % 2 == 0 ? std::byte{0xA5} : std::byte{0x5A}),
        memory_(bytes + 2 * guard + alignment) {
    auto const at = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard;
    base_ = memory_.data() + guard + (alignment - at % alignment) % alignment;
  }
  guarded_scratch(guarded_scratch const&) = delete;
  guarded_scratch& operator=(guarded_scratch const&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }

  void fill() {
    std::memset(base_, std::to_integer<int>(junk_), bytes_);
    std::memset(base_ - guard, guard_value, guard);
    std::memset(base_ + bytes_, guard_value, guard);
  }
  void verify() const {
    for (std::size_t i = 0; i < guard; ++i) {
      if (base_[bytes_ + i] != std::byte{guard_value} ||
          (base_ - guard)[i] != std::byte{guard_value}) {
        caught("scratch overrun: the body wrote outside its scratch_bytes() = " +
               std::to_string(bytes_));
      }
    }
  }

 private:
  static constexpr std::size_t guard = 256;
  static constexpr std::size_t alignment = 64;
  static constexpr int guard_value = 0xC3;

  std::size_t bytes_;
  std::byte junk_;
  std::vector<std::byte> memory_;
  std::byte* base_ = nullptr;
};

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Functions that take turns on one thread, each on a stack of its own. A switch costs a few
// nanoseconds, where threads that wait for each other cost system calls. Sanitizers know of the
// switches, and for ThreadSanitizer each fiber is a thread: resume() and suspend() order no memory,
// but what comes before start() happens before the function, and the function happens before what
// follows the resume() that returns true.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if !defined(__x86_64__) && !defined(PLIMSOLL_TEST_UCONTEXT)
#define PLIMSOLL_TEST_UCONTEXT
#endif
#if defined(PLIMSOLL_TEST_UCONTEXT)
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLIMSOLL_TEST_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define PLIMSOLL_TEST_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_TEST_ASAN
#endif
#if defined(__SANITIZE_THREAD__)
#define PLIMSOLL_TEST_TSAN
#endif
#if defined(PLIMSOLL_TEST_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(PLIMSOLL_TEST_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace plimsoll_test {

#if defined(PLIMSOLL_TEST_UCONTEXT)
using stack_context = ucontext_t;
inline void switch_stack(stack_context& from, stack_context& to) { swapcontext(&from, &to); }
#else
/// The top of a stack that has the registers which a function must preserve. swapcontext would also
/// save the signal mask, in two system calls.
using stack_context = void*;
[[gnu::naked, gnu::noinline]] inline void switch_stack(stack_context& /*from*/,
                                                       stack_context& /*to*/) {
  asm("pushq %rbp\n\t"
      "pushq %rbx\n\t"
      "pushq %r12\n\t"
      "pushq %r13\n\t"
      "pushq %r14\n\t"
      "pushq %r15\n\t"
      "movq %rsp, (%rdi)\n\t"
      "movq (%rsi), %rsp\n\t"
      "popq %r15\n\t"
      "popq %r14\n\t"
      "popq %r13\n\t"
      "popq %r12\n\t"
      "popq %rbx\n\t"
      "popq %rbp\n\t"
      "ret");
}
#endif

/// A fiber of the thread that constructs it. Its function has returned before it is destroyed.
class fiber {
 public:
  fiber() {
    void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
    stack_ = static_cast<std::byte*>(memory);
#if defined(PLIMSOLL_TEST_UCONTEXT)
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_ + guard_bytes;
    own_.uc_stack.ss_size = stack_bytes - guard_bytes;
    makecontext(&own_, run, 0);
#else
    // switch_stack pops six registers and returns to `run`, which finds the stack as after a call.
    auto* const top = reinterpret_cast<std::uintptr_t*>(stack_ + stack_bytes);
    top[-2] = reinterpret_cast<std::uintptr_t>(&run);
    own_ = top - 8;
#endif
#if defined(PLIMSOLL_TEST_TSAN)
    own_thread_ = __tsan_create_fiber(0);
    owner_thread_ = __tsan_get_current_fiber();
#endif
  }
  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;
  ~fiber() {
#if defined(PLIMSOLL_TEST_TSAN)
    __tsan_destroy_fiber(own_thread_);
#endif
    munmap(stack_, stack_bytes);
  }

  /// Makes the next resume() begin f(argument). An exception that leaves f ends the process.
  template <class F>
  void start(F const& f, int argument) {
    call_ = [](void const* function, int value) { (*static_cast<F const*>(function))(value); };
    function_ = &f;
    argument_ = argument;
    is_running_.store(true, std::memory_order_release);
  }

  /// Runs the fiber until it suspends itself. True if its function has returned.
  bool resume() {
    current().store(this, std::memory_order_relaxed);
#if defined(PLIMSOLL_TEST_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, stack_ + guard_bytes, stack_bytes - guard_bytes);
#endif
#if defined(PLIMSOLL_TEST_TSAN)
    __tsan_switch_to_fiber(own_thread_, __tsan_switch_to_fiber_no_sync);
#endif
    switch_stack(owner_, own_);
#if defined(PLIMSOLL_TEST_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
    return !is_running_.load(std::memory_order_acquire);
  }

  /// Returns from resume(). Only the fiber itself may call this.
  void suspend() { leave(false); }

 private:
  static constexpr std::size_t guard_bytes = 16384;
  static constexpr std::size_t stack_bytes = 512 * 1024;

  /// The fiber that was resumed last. Atomic since all fibers of a thread share it.
  static std::atomic<fiber*>& current() {
    static thread_local std::atomic<fiber*> value = nullptr;
    return value;
  }

  void leave(bool has_returned) {
#if defined(PLIMSOLL_TEST_TSAN)
    void* const owner_thread = owner_thread_;
#endif
    if (has_returned) {
      is_running_.store(false, std::memory_order_release);  // the last access before destruction
    }
#if defined(PLIMSOLL_TEST_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, owner_stack_, owner_stack_bytes_);
#endif
#if defined(PLIMSOLL_TEST_TSAN)
    __tsan_switch_to_fiber(owner_thread, __tsan_switch_to_fiber_no_sync);
#endif
    switch_stack(own_, owner_);
#if defined(PLIMSOLL_TEST_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, &owner_stack_, &owner_stack_bytes_);
#endif
  }

  /// What runs on the stack of a fiber: one function after another.
  static void run() noexcept {
    fiber& self = *current().load(std::memory_order_relaxed);
#if defined(PLIMSOLL_TEST_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &self.owner_stack_, &self.owner_stack_bytes_);
#endif
    while (self.is_running_.load(std::memory_order_acquire)) {
      self.call_(self.function_, self.argument_);
      self.leave(true);
    }
    std::abort();  // resumed without a function
  }

  std::byte* stack_ = nullptr;
  stack_context own_{};
  stack_context owner_{};
  void (*call_)(void const*, int) = nullptr;
  void const* function_ = nullptr;
  int argument_ = 0;
  std::atomic<bool> is_running_ = false;
#if defined(PLIMSOLL_TEST_ASAN)
  void const* owner_stack_ = nullptr;
  std::size_t owner_stack_bytes_ = 0;
#endif
#if defined(PLIMSOLL_TEST_TSAN)
  void* own_thread_ = nullptr;
  void* owner_thread_ = nullptr;
#endif
};

}  // namespace plimsoll_test

// SPDX-License-Identifier: Apache-2.0
// Runs the source of the device teams on one host thread, with one fiber per lane (fiber.hpp).
// Memory is ordered as in CUDA: a shuffle passes values and orders nothing (it uses relaxed
// atomics, which do not synchronize for ThreadSanitizer); only __syncwarp and __syncthreads order
// memory. Lanes run independently, as on GPUs since Volta, each from one wait to the next, in an
// order that changes all the time. CUB's collectives are replaced (emulated_cub.hpp), but
// collectives.cuh, which calls them, is the header of the device.
//
// The emulation tests what a team computes and whether its barriers suffice. It does not test
// launches, hardware instructions behind __CUDA_ARCH__, or speed.
#pragma once

#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <type_traits>

#include "fiber.hpp"
#include "generators.hpp"
#include "thread_team.hpp"

#if defined(__CUDACC__)
#error "for host compilers: nvcc has the real thing"
#endif

namespace plimsoll_test::emulated {

/// Where lanes wait for each other again and again, as at a std::barrier.
class meeting {
 public:
  explicit meeting(int lanes) : lanes_(static_cast<std::uint64_t>(lanes)) {}
  void arrive(std::memory_order order) {
    std::uint64_t const arrivals = arrivals_.fetch_add(1, order) + 1;
    if (arrivals % lanes_ == 0) {
      // Not `arrivals_`: a lane that has not left yet must not synchronize with one that arrives
      // for the next time.
      complete_.store(arrivals / lanes_, order == std::memory_order_relaxed
                                             ? std::memory_order_relaxed
                                             : std::memory_order_release);
    }
  }
  /// How often all lanes have arrived.
  [[nodiscard]] std::uint64_t complete(std::memory_order order) const {
    return complete_.load(order);
  }

 private:
  std::uint64_t lanes_;
  std::atomic<std::uint64_t> arrivals_ = 0;
  std::atomic<std::uint64_t> complete_ = 0;
};

/// The value that one lane passes to others.
using lane_slot = std::atomic<std::uint64_t>[4];

struct warp_state {
  lane_slot slots[2][32] = {};
  meeting shuffle{32};
  meeting barrier{32};
};

struct lane_state {
  warp_state* warp = nullptr;
  meeting* block = nullptr;
  fiber* self = nullptr;
  int thread = 0;
  int lane = 0;
  bool has_ended = false;  ///< for the scheduler
  std::uint64_t shuffles = 0;
  std::uint64_t warp_barriers = 0;
  std::uint64_t block_barriers = 0;
  // The lane waits for the n-th meeting at `place`. Atomic since the scheduler reads them.
  std::atomic<meeting const*> place = nullptr;
  std::atomic<std::uint64_t> n = 0;

  [[nodiscard]] bool is_ready() const {
    meeting const* const at = place.load(std::memory_order_relaxed);
    return at == nullptr ||
           at->complete(std::memory_order_relaxed) >= n.load(std::memory_order_relaxed);
  }
};

/// The lane that runs. Atomic since all fibers of a thread share it.
inline thread_local std::atomic<lane_state*> running = nullptr;
inline lane_state& here() { return *running.load(std::memory_order_relaxed); }

/// Waits until all lanes have arrived for the n-th time.
inline void wait(meeting& at, std::uint64_t n, std::memory_order order) {
  lane_state& lane = here();
  if (at.complete(order) < n) {
    lane.n.store(n, std::memory_order_relaxed);
    lane.place.store(&at, std::memory_order_relaxed);
    lane.self->suspend();
    static_cast<void>(at.complete(order));  // orders memory
  }
}

/// The values that the lanes of a warp pass to each other: every lane publishes its own and waits
/// for all others. A lane can be at most one shuffle ahead, so two sets of slots are enough; values
/// must be read before the next shuffle.
template <class T>
class lane_values {
 public:
  explicit lane_values(T value) : slots_(here().warp->slots[++here().shuffles % 2]) {
    lane_state const& lane = here();
    std::uint64_t words[count] = {};
    std::memcpy(words, &value, sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      slots_[lane.lane][i].store(words[i], std::memory_order_relaxed);
    }
    lane.warp->shuffle.arrive(std::memory_order_relaxed);
    wait(lane.warp->shuffle, lane.shuffles, std::memory_order_relaxed);
  }
  [[nodiscard]] T of(int lane) const {
    std::uint64_t words[count];
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = slots_[lane][i].load(std::memory_order_relaxed);
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words, sizeof(T));
    return value;
  }

 private:
  static constexpr std::size_t count = (sizeof(T) + 7) / 8;
  static_assert(count <= std::extent_v<lane_slot>);
  lane_slot (&slots_)[32];
};

inline void barrier(meeting& at, std::uint64_t n) {
  at.arrive(std::memory_order_acq_rel);
  wait(at, n, std::memory_order_acquire);
}
inline void warp_barrier() { barrier(here().warp->barrier, ++here().warp_barriers); }
inline void block_barrier() { barrier(*here().block, ++here().block_barriers); }
inline int lane_in_warp() { return here().lane; }
inline int thread_in_block() { return here().thread; }

}  // namespace plimsoll_test::emulated

#include "emulated_cub.hpp"

// NOLINTBEGIN: CUDA's own names
#define __device__
inline void __syncwarp() { plimsoll_test::emulated::warp_barrier(); }
inline void __syncthreads() { plimsoll_test::emulated::block_barrier(); }
inline unsigned __shfl_sync(unsigned, unsigned word, int lane) {
  return plimsoll_test::emulated::lane_values(word).of(lane);
}
inline unsigned __shfl_xor_sync(unsigned, unsigned word, int mask) {
  return plimsoll_test::emulated::lane_values(word).of(plimsoll_test::emulated::lane_in_warp() ^
                                                       mask);
}
// NOLINTEND

#include "device_teams_source.hpp"
#undef __device__

namespace plimsoll_test::emulated {

/// Runs the threads of a block as fibers of the calling thread.
class scheduler {
 public:
  scheduler(int threads, std::uint64_t seed)
      : threads_(threads),
        random_(seed),
        block_(threads),
        warps_(static_cast<std::size_t>(threads / 32)),
        lanes_(static_cast<std::size_t>(threads)) {}

  template <class F>
  void run(F const& f) {
    std::deque<fiber>& fibers = pool();
    while (fibers.size() < lanes_.size()) {
      fibers.emplace_back();
    }
    for (int thread = 0; thread < threads_; ++thread) {
      auto const i = static_cast<std::size_t>(thread);
      lanes_[i].warp = &warps_[i / 32];
      lanes_[i].block = &block_;
      lanes_[i].self = &fibers[i];
      lanes_[i].thread = thread;
      lanes_[i].lane = thread % 32;
      fibers[i].start(f, thread);
    }
    int const warps = threads_ / 32;
    running_ = threads_;
    while (running_ > 0) {
      bool has_moved = false;
      // Half of the time, a warp runs as far ahead of the others as it can.
      bool const runs_ahead = random_.between(0, 1) == 1;
      in_some_order(0, warps, [&](int warp) {
        while (run_warp(warp)) {
          has_moved = true;
          if (!runs_ahead) {
            break;
          }
        }
      });
      if (!has_moved) {
        caught(waits());
      }
    }
  }

 private:
  /// Fibers of earlier blocks, which are used again.
  static std::deque<fiber>& pool() {
    static thread_local std::deque<fiber> fibers;
    return fibers;
  }

  /// Calls f(i) for all i in [first, first + n), forwards or backwards from a random start: code
  /// with a missing barrier must not happen to be right in the order that is always tried.
  template <class F>
  void in_some_order(int first, int n, F const& f) {
    auto const start = static_cast<int>(random_.between(0, n - 1));
    int const step = random_.between(0, 1) == 0 ? 1 : n - 1;
    for (int k = 0, i = start; k < n; ++k, i = (i + step) % n) {
      f(first + i);
    }
  }

  /// Lets every lane of a warp run until it waits. False if none can.
  bool run_warp(int warp) {
    bool has_moved = false;
    in_some_order(warp * 32, 32, [&](int thread) {
      lane_state& lane = lanes_[static_cast<std::size_t>(thread)];
      if (!lane.has_ended && lane.is_ready()) {
        has_moved = true;
        running.store(&lane, std::memory_order_relaxed);
        lane.has_ended = lane.self->resume();
        running_ -= lane.has_ended ? 1 : 0;
      }
    });
    return has_moved;
  }

  [[nodiscard]] std::string waits() const {
    int shuffles = 0;
    int block_barriers = 0;
    for (lane_state const& lane : lanes_) {
      meeting const* const at = lane.place.load(std::memory_order_relaxed);
      shuffles += !lane.has_ended && at == &lane.warp->shuffle ? 1 : 0;
      block_barriers += !lane.has_ended && at == lane.block ? 1 : 0;
    }
    return "no lane can go on: " + std::to_string(shuffles) + " wait in a shuffle, " +
           std::to_string(running_ - shuffles - block_barriers) + " in __syncwarp, " +
           std::to_string(block_barriers) + " in __syncthreads, and " +
           std::to_string(threads_ - running_) + " have ended";
  }

  int threads_;
  generator random_;
  int running_ = 0;
  meeting block_;
  std::deque<warp_state> warps_;
  std::deque<lane_state> lanes_;
};

/// Calls f(thread) on `threads` threads, which form warps and one block.
template <class F>
void run_block(int threads, std::uint64_t seed, F const& f) {
  scheduler(threads, seed).run(f);
}

/// Runs body(team, scratch, problem) for all problems on one warp or block, as the kernels of
/// device/batched.cuh do, with scratch memory at `base`.
template <class Body>
void run(plimsoll::detail::warp, Body const& body, index_t problems, std::byte* base,
         std::uint64_t seed) {
  run_block(32, seed, [&](int lane) {
    plimsoll::detail::warp_team<plimsoll::detail::is_streaming<Body>> team(lane);
    for (index_t problem = 0; problem < problems; ++problem) {
      body(team, plimsoll::detail::scratch(base), problem);
      __syncwarp();
    }
  });
}

template <int Threads, class Body>
void run(plimsoll::detail::block<Threads>, Body const& body, index_t problems, std::byte* base,
         std::uint64_t seed) {
  plimsoll::detail::block_exchange<Threads> exchange;
  run_block(Threads, seed, [&](int thread) {
    plimsoll::detail::block_team<Threads, plimsoll::detail::is_streaming<Body>> team(thread,
                                                                                     exchange);
    for (index_t problem = 0; problem < problems; ++problem) {
      body(team, plimsoll::detail::scratch(base), problem);
      __syncthreads();
    }
  });
}

}  // namespace plimsoll_test::emulated

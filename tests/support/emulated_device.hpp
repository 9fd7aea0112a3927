// SPDX-License-Identifier: Apache-2.0
// Runs the source of the device teams on host threads, one thread per lane. Memory is ordered as in
// CUDA: a shuffle passes one word and orders nothing (it uses relaxed atomics, which do not
// synchronize for ThreadSanitizer); only __syncwarp and __syncthreads order memory. Lanes run
// independently, as on GPUs since Volta. CUB's collectives are replaced (emulated_cub.hpp), but
// collectives.cuh, which calls them, is the header of the device.
//
// The emulation tests what a team computes and whether its barriers suffice. It does not test
// launches, hardware instructions behind __CUDA_ARCH__, or speed.
#pragma once

#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "thread_team.hpp"

#if defined(__CUDACC__)
#error "for host compilers: nvcc has the real thing"
#endif

namespace plimsoll_test::emulated {

struct warp_state {
  std::atomic<std::uint64_t> slots[2][32] = {};
  std::barrier<> barrier{32};
};

struct lane_state {
  warp_state* warp = nullptr;
  std::barrier<>* block = nullptr;
  int thread = 0;
  int lane = 0;
  std::uint64_t shuffles = 0;
};
inline thread_local lane_state here;

/// Passes a word between lanes: every lane publishes its word, waits for the words of all others,
/// and reads that of `source`. A lane can be at most one shuffle ahead, so two sets of slots are
/// enough.
inline unsigned shuffle(unsigned word, int source) {
  std::uint64_t const sequence = ++here.shuffles;
  auto& slots = here.warp->slots[sequence % 2];
  slots[here.lane].store(sequence << 32 | word, std::memory_order_relaxed);
  auto const start = std::chrono::steady_clock::now();
  for (auto const& slot : slots) {
    while (slot.load(std::memory_order_relaxed) >> 32 != sequence) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
        caught("a lane waits for a shuffle that other lanes never make");
      }
    }
  }
  return static_cast<unsigned>(slots[source].load(std::memory_order_relaxed));
}

template <class T>
T shuffle_value(T value, int source) {
  constexpr std::size_t words = (sizeof(T) + 3) / 4;
  unsigned buffer[words] = {};
  std::memcpy(buffer, &value, sizeof(T));
  for (unsigned& word : buffer) {
    word = shuffle(word, source);
  }
  std::memcpy(static_cast<void*>(&value), buffer, sizeof(T));
  return value;
}

inline void warp_barrier() { here.warp->barrier.arrive_and_wait(); }
inline void block_barrier() { here.block->arrive_and_wait(); }
inline int lane_in_warp() { return here.lane; }
inline int thread_in_block() { return here.thread; }

}  // namespace plimsoll_test::emulated

#include "emulated_cub.hpp"

// NOLINTBEGIN: CUDA's own names
#define __device__
inline void __syncwarp() { plimsoll_test::emulated::warp_barrier(); }
inline void __syncthreads() { plimsoll_test::emulated::block_barrier(); }
inline unsigned __shfl_sync(unsigned, unsigned word, int lane) {
  return plimsoll_test::emulated::shuffle(word, lane);
}
inline unsigned __shfl_xor_sync(unsigned, unsigned word, int mask) {
  return plimsoll_test::emulated::shuffle(word, plimsoll_test::emulated::here.lane ^ mask);
}
// NOLINTEND

#include "device_teams_source.hpp"
#undef __device__

namespace plimsoll_test::emulated {

/// Calls f(thread) on `threads` threads, which form warps and one block.
template <class F>
void run_block(int threads, F const& f) {
  std::barrier<> block(threads);
  std::vector<std::unique_ptr<warp_state>> warps;
  for (int i = 0; i < threads / 32; ++i) {
    warps.push_back(std::make_unique<warp_state>());
  }
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      here = {warps[static_cast<std::size_t>(thread / 32)].get(), &block, thread, thread % 32, 0};
      f(thread);
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
}

/// Runs body(team, scratch, problem) for all problems on one warp or block, as the kernels of
/// device/batched.cuh do, with scratch memory at `base`.
template <class Body>
void run(plimsoll::detail::warp, Body const& body, index_t problems, std::byte* base) {
  run_block(32, [&](int lane) {
    plimsoll::detail::warp_team<plimsoll::detail::is_streaming<Body>> team(lane);
    for (index_t problem = 0; problem < problems; ++problem) {
      body(team, plimsoll::detail::scratch(base), problem);
      __syncwarp();
    }
  });
}

template <int Threads, class Body>
void run(plimsoll::detail::block<Threads>, Body const& body, index_t problems, std::byte* base) {
  plimsoll::detail::block_exchange<Threads> exchange;
  run_block(Threads, [&](int thread) {
    plimsoll::detail::block_team<Threads, plimsoll::detail::is_streaming<Body>> team(thread,
                                                                                     exchange);
    for (index_t problem = 0; problem < problems; ++problem) {
      body(team, plimsoll::detail::scratch(base), problem);
      __syncthreads();
    }
  });
}

}  // namespace plimsoll_test::emulated

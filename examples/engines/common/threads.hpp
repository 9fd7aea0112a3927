// SPDX-License-Identifier: Apache-2.0
// The policy of calls for host memory: one thread, or as many as set_threads asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll_engines {

/// Threads start in a call and end in it. Those of OpenMP would outlive it: they spin, which slows
/// other work and is slowed by it, and a child process has none of them after fork() and waits.
struct host_executor {
  int threads = 1;

  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    // Several blocks per thread, so that one slow block does not delay the whole loop.
    plimsoll::index_t const wanted = threads > 1 ? plimsoll::index_t{4} * threads : 1;
    plimsoll::index_t const blocks = n < wanted ? n : wanted;
    std::atomic<plimsoll::index_t> next = 0;
    auto const work = [&] {
      for (plimsoll::index_t block = next++; block < blocks; block = next++) {
        f(n * block / blocks, n * (block + 1) / blocks);
      }
    };
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads && i < blocks; ++i) {
      helpers.emplace_back(work);
    }
    work();
  }
};

struct host_policy {
  int threads = 1;
};

inline std::atomic<int> threads_of_calls = 1;

/// Sets the number of threads of later calls and of objects made later; 1 at the start.
inline void set_threads(std::int64_t threads) {
  if (threads < 1 || threads > 1024) {
    throw plimsoll::invalid_input(
        "set_threads: threads: expected a whole number from 1 to 1024, got " +
        std::to_string(threads));
  }
  threads_of_calls = static_cast<int>(threads);
}

}  // namespace plimsoll_engines

template <>
struct plimsoll::policy_traits<plimsoll_engines::host_policy> {
  static plimsoll::host_context<plimsoll_engines::host_executor> resolve(
      plimsoll_engines::host_policy const& policy) {
    return {plimsoll_engines::host_executor{policy.threads}, {}};
  }
};

// SPDX-License-Identifier: Apache-2.0
// Tests of execution under the host's policies, and others.
#include "execution.cases.hpp"

#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/host/batched.hpp>

#include <algorithm>
#include <atomic>
#include <memory_resource>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

using plimsoll::index_t;
using namespace plimsoll_test;

// Policies are small values with one layout, as documented.
static_assert(std::is_trivially_copyable_v<plimsoll::resource_ref>);
static_assert(sizeof(plimsoll::resource_ref) == 3 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<plimsoll::seq_policy>);
static_assert(sizeof(plimsoll::seq_policy) == 3 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<plimsoll::gpu_policy>);
static_assert(sizeof(plimsoll::gpu_policy) == 4 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<custom_policy>);
#if PLIMSOLL_TEST_OMP
static_assert(std::is_trivially_copyable_v<plimsoll::omp_policy>);
static_assert(sizeof(plimsoll::omp_policy) == 4 * sizeof(void*));
#endif

static_assert(plimsoll::execution_policy<plimsoll::seq_policy>);
static_assert(plimsoll::execution_policy<plimsoll::seq_policy const&>);
static_assert(plimsoll::execution_policy<plimsoll::gpu_policy>);
static_assert(plimsoll::execution_policy<custom_policy>);
static_assert(!plimsoll::execution_policy<int>);
static_assert(!plimsoll::execution_policy<reversed_pool>);

struct device_memory_archetype {
  void* allocate(plimsoll::stream_t, std::size_t, std::size_t) { return nullptr; }
  void deallocate(plimsoll::stream_t, void*, std::size_t, std::size_t) {}
};
static_assert(plimsoll::host_resource<std::pmr::memory_resource>);
static_assert(plimsoll::host_resource<counting_resource>);
static_assert(!plimsoll::host_resource<device_memory_archetype>);
static_assert(plimsoll::device_resource<device_memory_archetype>);
static_assert(!plimsoll::device_resource<std::pmr::memory_resource>);
static_assert(!plimsoll::host_resource<std::allocator<char>>);

// A host policy refuses a device resource, and vice versa.
static_assert(std::invocable<plimsoll::seq_policy const&, counting_resource&>);
static_assert(!std::invocable<plimsoll::seq_policy const&, device_memory_archetype&>);
static_assert(!std::invocable<plimsoll::seq_policy const&, counting_resource>);

namespace {

template <class P>
auto context_for(P const& policy) {
  return plimsoll::detail::resolve(policy);
}

}  // namespace

TEST_CASE_TEMPLATE("execution: executors cover a range once", P, PLIMSOLL_HOST_POLICIES) {
  auto const context = context_for(make_policy<P>());
  for (index_t n = 0; n <= 70; ++n) {
    std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
    std::atomic<int> empty = 0;
    context.executor.for_blocks(n, [&](index_t first, index_t last) {
      empty += first >= last ? 1 : 0;
      for (index_t i = first; i < last; ++i) {
        ++visits[static_cast<std::size_t>(i)];
      }
    });
    CAPTURE(n);
    CHECK(empty == 0);
    CHECK(std::all_of(visits.begin(), visits.end(), [](auto const& v) { return v == 1; }));
  }
}

TEST_CASE("execution: a user's policy runs the work") {
  std::vector<std::int32_t> visits(10);
  std::vector<std::int32_t> sums(10);
  long const calls = pool_counts.calls;
  long const blocks = pool_counts.blocks;
  plimsoll::detail::launch(plimsoll::detail::resolve(custom_policy{}), 10,
                           execution_cases::visit{visits.data(), sums.data(), 4});
  CHECK(pool_counts.calls.load() == calls + 1);
  CHECK(pool_counts.blocks.load() == blocks + 6);  // 1 + 2 + 3 + 1 + 2 + 1
  plimsoll::detail::launch(plimsoll::detail::resolve(plimsoll::seq), 10,
                           execution_cases::visit{visits.data(), sums.data(), 4});
  CHECK(pool_counts.calls.load() == calls + 1);
}

TEST_CASE("execution: seq runs one block on the calling thread") {
  std::vector<std::thread::id> threads;
  plimsoll::detail::for_blocks(plimsoll::detail::resolve(plimsoll::seq), 9,
                               [&](index_t first, index_t last) {
                                 threads.push_back(std::this_thread::get_id());
                                 CHECK(first == 0);
                                 CHECK(last == 9);
                               });
  CHECK(threads == std::vector{std::this_thread::get_id()});
}

#if PLIMSOLL_TEST_OMP
TEST_CASE("execution: omp(threads) uses at most that many threads and changes no global state") {
  int const before = omp_get_max_threads();
  for (int const threads : {1, 2, 3, 5}) {
    CAPTURE(threads);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    int team = 0;
    plimsoll::detail::for_blocks(plimsoll::detail::resolve(plimsoll::omp(threads)), 100,
                                 [&](index_t, index_t) {
                                   std::lock_guard const lock(mutex);
                                   seen.insert(std::this_thread::get_id());
                                   team = omp_get_num_threads();
                                 });
    CHECK(team == threads);
    CHECK(static_cast<int>(seen.size()) <= threads);
    CHECK(omp_get_max_threads() == before);
  }
  counting_resource memory;
  plimsoll::omp_policy const both = plimsoll::omp(2)(memory);
  CHECK(both.threads == 2);
  CHECK(!both.memory.empty());
  CHECK(plimsoll::omp(memory)(3).threads == 3);
  CHECK(!plimsoll::omp(memory)(3).memory.empty());
}
#endif

TEST_CASE("execution: seq(resource) takes scratch from it once") {
  counting_resource memory;
  std::vector<std::int32_t> visits(7);
  std::vector<std::int32_t> sums(7);
  plimsoll::detail::launch(plimsoll::detail::resolve(plimsoll::seq(memory)), 7,
                           execution_cases::visit{visits.data(), sums.data(), 50});
  CHECK(memory.allocations() == 1);
  CHECK(memory.largest() == 208);  // 50 words in units of 16 bytes
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);

  // Neither a body without scratch nor an empty batch allocates.
  plimsoll::detail::launch(plimsoll::detail::resolve(plimsoll::seq(memory)), 7,
                           execution_cases::visit{visits.data(), sums.data(), 0});
  plimsoll::detail::launch(plimsoll::detail::resolve(plimsoll::seq(memory)), 0,
                           execution_cases::visit{visits.data(), sums.data(), 50});
  CHECK(memory.allocations() == 1);
}

TEST_CASE_TEMPLATE("execution: scratch comes from the policy's resource", P,
                   PLIMSOLL_HOST_POLICIES) {
  counting_resource memory;
  std::vector<std::int32_t> visits(40);
  std::vector<std::int32_t> sums(40);
  plimsoll::detail::launch(context_for(make_policy<P>()(memory)), 40,
                           execution_cases::visit{visits.data(), sums.data(), 8});
  CHECK(memory.allocations() >= 1);
  CHECK(memory.allocations() <= 40);
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);
  CHECK(visits == std::vector<std::int32_t>(40, 1));
}

TEST_CASE_TEMPLATE("execution: the exception of a resource is rethrown and leaks nothing", P,
                   PLIMSOLL_HOST_POLICIES) {
  // With 40 problems every executor but seq allocates more than once, so that some blocks run.
  for (std::size_t const allowed : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    if (std::is_same_v<P, plimsoll::seq_policy> && allowed > 0) {
      continue;
    }
    CAPTURE(allowed);
    throwing_resource memory(allowed);
    std::vector<std::int32_t> visits(40);
    std::vector<std::int32_t> sums(40);
    CHECK_THROWS_AS(plimsoll::detail::launch(context_for(make_policy<P>()(memory)), 40,
                                             execution_cases::visit{visits.data(), sums.data(), 8}),
                    std::bad_alloc);
    CHECK(memory.allocations() == allowed);
    CHECK(memory.live() == 0);
    CHECK(memory.mismatches() == 0);
  }
}

TEST_CASE_TEMPLATE("execution: one of several exceptions is rethrown", P, PLIMSOLL_HOST_POLICIES) {
  std::atomic<int> blocks = 0;
  CHECK_THROWS_WITH_AS(plimsoll::detail::for_blocks(context_for(make_policy<P>()), 30,
                                                    [&](index_t, index_t) {
                                                      ++blocks;
                                                      throw std::runtime_error("from a block");
                                                    }),
                       "from a block", std::runtime_error);
  CHECK(blocks >= 1);
}

TEST_CASE("execution: resource_ref forwards its arguments") {
  struct call {
    std::size_t bytes = 0;
    std::size_t alignment = 0;
    plimsoll::stream_t stream = nullptr;
    int released = 0;
  };
  call seen;
  auto const stream = reinterpret_cast<plimsoll::stream_t>(&seen);
  plimsoll::resource_ref const made(
      &seen,
      [](void* object, plimsoll::stream_t s, std::size_t bytes, std::size_t alignment) -> void* {
        *static_cast<call*>(object) = {bytes, alignment, s, 0};
        return object;
      },
      [](void* object, plimsoll::stream_t s, void* pointer, std::size_t bytes,
         std::size_t alignment) {
        call& c = *static_cast<call*>(object);
        bool const same = c.bytes == bytes && c.alignment == alignment && c.stream == s;
        c.released += same && pointer == object ? 1 : 100;
      });
  CHECK(plimsoll::resource_ref().empty());
  CHECK(!made.empty());
  void* const got = made.allocate(stream, 48, 32);
  CHECK(got == &seen);
  made.deallocate(stream, got, 48, 32);
  CHECK(seen.bytes == 48);
  CHECK(seen.alignment == 32);
  CHECK(seen.stream == stream);
  CHECK(seen.released == 1);

  struct device_memory {
    plimsoll::stream_t stream = nullptr;
    std::size_t bytes = 0;
    void* allocate(plimsoll::stream_t s, std::size_t n, std::size_t) {
      stream = s;
      bytes = n;
      return this;
    }
    void deallocate(plimsoll::stream_t, void*, std::size_t, std::size_t) { bytes = 0; }
  } device;
  plimsoll::resource_ref const of_device(device);
  CHECK(of_device.allocate(stream, 7, 1) == &device);
  CHECK(device.stream == stream);
  CHECK(device.bytes == 7);
  of_device.deallocate(stream, &device, 7, 1);
  CHECK(device.bytes == 0);
}

TEST_CASE("execution: a gpu policy can be constructed and read in a host file") {
  int object = 0;
  device_memory_archetype memory;
  auto const stream = reinterpret_cast<plimsoll::stream_t>(&object);
  CHECK(plimsoll::gpu(stream).stream() == stream);
  CHECK(plimsoll::gpu(stream).memory().empty());
  CHECK(plimsoll::gpu(stream, memory).stream() == stream);
  CHECK(!plimsoll::gpu(stream, memory).memory().empty());
  auto const context =
      plimsoll::policy_traits<plimsoll::gpu_policy>::resolve(plimsoll::gpu(stream, memory));
  static_assert(std::is_same_v<decltype(context), plimsoll::device_context const>);
  CHECK(context.stream == stream);
  CHECK(!context.memory.empty());
}

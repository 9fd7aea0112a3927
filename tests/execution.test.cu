// SPDX-License-Identifier: Apache-2.0
// Tests of execution under the policies of a CUDA compiler and in CUDA graphs.
#include "execution.cases.hpp"

#include <plimsoll/execution/cuda.cuh>
#include <plimsoll/execution/thrust.cuh>

#include <thrust/execution_policy.h>
#include <cuda/stream_ref>

#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "samples/array.hpp"
#include "samples/minmax_lp.hpp"
#include "samples/top_k.hpp"
#include "support/captured.cuh"
#include "support/sample_run.hpp"

namespace {

using plimsoll::index_t;

template <class P>
using context =
    decltype(plimsoll::policy_traits<std::remove_cvref_t<P>>::resolve(std::declval<P const&>()));

using inline_context = plimsoll::host_context<plimsoll::inline_executor>;
static_assert(std::is_same_v<context<decltype(thrust::host)>, inline_context>);
static_assert(std::is_same_v<context<decltype(thrust::seq)>, inline_context>);
static_assert(std::is_same_v<context<decltype(thrust::cpp::par)>, inline_context>);
#if defined(_OPENMP)
static_assert(std::is_same_v<context<decltype(thrust::omp::par)>,
                             plimsoll::host_context<plimsoll::omp_executor>>);
#endif
static_assert(std::is_same_v<context<decltype(thrust::device)>, plimsoll::device_context>);
static_assert(std::is_same_v<context<decltype(thrust::cuda::par)>, plimsoll::device_context>);
static_assert(
    std::is_same_v<context<decltype(thrust::cuda::par_nosync)>, plimsoll::device_context>);
static_assert(std::is_same_v<context<cuda::stream_ref>, plimsoll::device_context>);
static_assert(plimsoll::unqualified_policy<cuda::stream_ref>);
static_assert(std::is_same_v<plimsoll::kept_context<cuda::stream_ref>, plimsoll::device_context>);

// Policies have the same layout as in host files.
static_assert(sizeof(plimsoll::gpu_policy) == 4 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<plimsoll::gpu_policy>);

__global__ void nothing() {}

/// Counts allocations of host memory, so that the adapter can be tested without a GPU.
struct fake_allocator {
  using value_type = char;
  long allocated = 0;
  long released = 0;
  bool refuse = false;
  alignas(16) char bytes[256] = {};

  char* allocate(std::ptrdiff_t count) {
    if (refuse) {
      throw std::bad_alloc();
    }
    allocated += static_cast<long>(count);
    return bytes;
  }
  void deallocate(char* pointer, std::size_t count) {
    released += pointer == bytes ? static_cast<long>(count) : 1000000;
  }
};

}  // namespace

// Thrust documents no way to get the stream of a policy; this test pins the function that is used.
TEST_CASE("execution: the stream of a Thrust policy") {
  int object = 0;
  auto const stream = reinterpret_cast<cudaStream_t>(&object);
  fake_allocator allocator;
  auto const stream_of = [](auto const& policy) {
    return plimsoll::policy_traits<std::remove_cvref_t<decltype(policy)>>::resolve(policy).stream;
  };
  CHECK(stream_of(thrust::cuda::par.on(stream)) == stream);
  CHECK(stream_of(thrust::cuda::par_nosync.on(stream)) == stream);
  CHECK(stream_of(thrust::cuda::par(allocator).on(stream)) == stream);
  CHECK(stream_of(thrust::cuda::par_nosync(allocator).on(stream)) == stream);
  CHECK(stream_of(thrust::cuda::par) == cudaStreamLegacy);
  CHECK(stream_of(thrust::device) == cudaStreamLegacy);
}

TEST_CASE("execution: temporaries of a Thrust policy come from its allocator") {
  int object = 0;
  auto const stream = reinterpret_cast<cudaStream_t>(&object);
  fake_allocator allocator;
  auto const policy = thrust::cuda::par_nosync(allocator).on(stream);
  using traits = plimsoll::policy_traits<std::remove_cvref_t<decltype(policy)>>;
  static_assert(traits::transient);
  auto const memory = traits::resolve(policy).memory;
  void* const pointer = memory.allocate(stream, 100, 64);
  CHECK(pointer == allocator.bytes);
  CHECK(allocator.allocated == 112);  // in units of 16 bytes
  memory.deallocate(stream, pointer, 100, 64);
  CHECK(allocator.released == 112);
  allocator.refuse = true;
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(stream, 100, 64)), std::bad_alloc);
}

TEST_CASE("execution: the stream of a cuda::stream_ref") {
  int object = 0;
  auto const stream = reinterpret_cast<cudaStream_t>(&object);
  cuda::stream_ref const where(stream);
  auto const context = plimsoll::policy_traits<cuda::stream_ref>::resolve(where);
  CHECK(context.stream == stream);
  CHECK(context.memory.empty());
  CHECK(plimsoll::gpu(where).stream() == stream);
  CHECK(plimsoll::gpu(where).memory().empty());
  auto const with_memory = plimsoll::gpu(where, plimsoll_test::device_memory());
  CHECK(with_memory.stream() == stream);
  CHECK(with_memory.memory() == plimsoll::resource_ref(plimsoll_test::device_memory()));
}

namespace plimsoll_test { namespace {

/// Checks of a sample's results.
struct same_results : plain_calls {
  template <class Got, class Expected>
  void compare(Got const& got, Expected const& expected) {
    CHECK(got == expected);
  }
  void require(bool holds, char const* what) {
    CAPTURE(what);
    CHECK(holds);
  }
};

}}  // namespace plimsoll_test

PLIMSOLL_TEST_CASE("execution: a cuda::stream_ref gives the results of its stream", P,
                   plimsoll_test::gpu_kind) {
  using namespace plimsoll_test;
  same_results results;
  sample_run run(cuda::stream_ref(device_stream()), results);
  sample_array(run);
  sample_top_k(run);
  sample_minmax_lp(run);
}

PLIMSOLL_TEST_CASE("execution: calls on a cuda::stream_ref, captured in a CUDA graph", P,
                   plimsoll_test::gpu_kind) {
  using namespace plimsoll_test;
  cuda::stream_ref const policy(device_stream());
  array_in<float, P> const scores(std::vector<float>{1, 3});
  array_in<std::int32_t, P> ids(1, 9);
  array_in<float, P> weights(1, 9.0F);
  captured const graph([&] {
    plimsoll::top_k(policy, scores.view2(1, 2), {.k = 1}, ids.view2(1, 1), weights.view2(1, 1));
  });
  CHECK(ids.values() == std::vector<std::int32_t>{9});
  graph.replay();
  CHECK(ids.values() == std::vector<std::int32_t>{1});
}

PLIMSOLL_TEST_CASE(
    "execution: scratch that does not fit shared memory comes from the resource, once", P,
    plimsoll_test::gpu_resource_kind) {
  using namespace plimsoll_test;
  auto const run = [](auto const& policy, index_t size) {
    array_in<std::int32_t, gpu_kind> visits(5);
    array_in<std::int32_t, gpu_kind> sums(5);
    plimsoll::detail::launch(plimsoll::detail::resolve(policy), 5,
                             execution_cases::visit{visits.data(), sums.data(), size});
    CHECK(visits.values() == std::vector<std::int32_t>(5, 1));
  };
  long const before = device_memory().allocations();
  run(make_policy<gpu_resource_kind>(), 100);
  run(make_policy<gpu_resource_kind>(), 20000);  // 80 kB: by opt-in
  CHECK(device_memory().allocations() == before);
  run(make_policy<gpu_resource_kind>(), 100000);
  CHECK(device_memory().allocations() == before + 1);
  run(make_policy<thrust_cuda_kind>(), 100000);
  CHECK(device_memory().allocations() == before + 2);
  run(make_policy<gpu_kind>(), 100000);
  CHECK(device_memory().allocations() == before + 2);
  CHECK(device_memory().live() == 0);
}

// Not in the unnamed namespace, whose types kernels cannot use.
struct visit_by_block : execution_cases::visit {
  using device_team = plimsoll::detail::block<512>;
};

PLIMSOLL_TEST_CASE("execution: scratch may take all shared memory that a kernel leaves", P,
                   plimsoll_test::gpu_resource_kind) {
  using namespace plimsoll_test;
  auto const context = plimsoll::detail::resolve(make_policy<gpu_resource_kind>());
  auto const largest = static_cast<plimsoll::index_t>(
      plimsoll::detail::most_shared_memory(context) / sizeof(std::int32_t));
  CHECK(largest * 4 >= 47 * 1024);
  auto const taken = [&](auto body, plimsoll::index_t size) {
    array_in<std::int32_t, gpu_kind> visits(5);
    array_in<std::int32_t, gpu_kind> sums(5);
    body.visits = visits.data();
    body.sums = sums.data();
    body.size = size;
    long const before = device_memory().allocations();
    plimsoll::detail::launch(context, 5, body);
    CHECK(visits.values() == std::vector<std::int32_t>(5, 1));
    return device_memory().allocations() - before;
  };
  CHECK(taken(execution_cases::visit{}, largest) == 0);
  CHECK(taken(execution_cases::visit{}, largest + 4) == 1);
  CHECK(taken(visit_by_block{}, largest) == 0);
  CHECK(taken(visit_by_block{}, largest + 4) == 1);
}

PLIMSOLL_TEST_CASE("execution: a launch neither reports nor clears an error of other code", P,
                   plimsoll_test::gpu_kind) {
  using namespace plimsoll_test;
  array_in<std::int32_t, gpu_kind> visits(5);
  array_in<std::int32_t, gpu_kind> sums(5);
  auto const context = plimsoll::detail::resolve(make_policy<gpu_kind>());
  cudaError_t const left = cudaSetDevice(-1);
  REQUIRE(left != cudaSuccess);
  plimsoll::detail::launch(context, 5, execution_cases::visit{visits.data(), sums.data(), 100});
  CHECK(cudaGetLastError() == left);
  CHECK(visits.values() == std::vector<std::int32_t>(5, 1));

  // A failed launch of the library leaves no error behind.
  auto const too_large = [&] { plimsoll::detail::launch_kernel(context, {1, 1 << 20}, nothing); };
  CHECK_THROWS_AS(too_large(), plimsoll::cuda_error);
  CHECK(cudaGetLastError() == cudaSuccess);
}

PLIMSOLL_TEST_CASE(
    "execution: work runs on the stream's device, whichever is current, also captured", P,
    plimsoll_test::gpu_kind) {
  using namespace plimsoll_test;
  int devices = 0;
  plimsoll::detail::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  auto const policy = make_policy<gpu_kind>();
  auto const context = plimsoll::detail::resolve(policy);
  int const device = context.device;
  plimsoll::detail::check_cuda(cudaSetDevice(device), "cudaSetDevice");
  CHECK(plimsoll::detail::resolve(thrust::device).device == device);
  array_in<std::int32_t, gpu_kind> visits(5);
  array_in<std::int32_t, gpu_kind> sums(5);
  int const other = (device + 1) % devices;  // the same device if there is only one
  {
    // As prepared objects do: their device is known before the capture.
    captured const graph([&] {
      plimsoll::detail::check_cuda(cudaSetDevice(other), "cudaSetDevice");
      plimsoll::detail::launch(context, 5, execution_cases::visit{visits.data(), sums.data(), 100});
      int now = -1;
      CHECK(cudaGetDevice(&now) == cudaSuccess);
      CHECK(now == other);
    });
    graph.replay();
  }
  plimsoll::detail::check_cuda(cudaSetDevice(device), "cudaSetDevice");
  CHECK(visits.values() == std::vector<std::int32_t>(5, 1));
  int during_capture = -1;
  captured const graph([&] { during_capture = plimsoll::detail::resolve(policy).device; });
  CHECK(during_capture == device);
}

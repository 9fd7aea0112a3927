// SPDX-License-Identifier: Apache-2.0
// The policies over which typed test cases run, and arrays in their memory, so that one source of a
// case tests every backend:
//
//     PLIMSOLL_TEST_CASE("sum: rows", P, PLIMSOLL_POLICIES) {
//       auto const policy = plimsoll_test::make_policy<P>();
//       plimsoll_test::array_in<float, P> const loads(values);
//       plimsoll_test::array_in<float, P> sums(rows);
//       plimsoll::sum(policy, loads.view2(rows, columns), sums.view1());
//       CHECK(sums.values() == expected);
//     }
//
// Cases are in tests/<header>.cases.hpp, which <header>.test.cpp and <header>.test.cu include.
// Where there is no GPU, cases of device policies do nothing, after one line that says so.
//
//     PLIMSOLL_HOST_POLICIES         seq, omp if OpenMP is enabled, a user's pool
//     PLIMSOLL_THRUST_HOST_POLICIES  thrust::host, thrust::omp::par (nvcc only)
//     PLIMSOLL_DEVICE_POLICIES       gpu(stream), gpu(stream, resource), Thrust's (nvcc only)
//     PLIMSOLL_POLICIES              the policies for the compiler of the file: the first list in
//                                    host files, the other two under nvcc; in host files only the
//                                    policy that PLIMSOLL_TEST_POLICY names, if it is defined
//     PLIMSOLL_PREPARED_POLICIES     those of them that an object can keep, for prepared objects:
//                                    all but Thrust's device policy
//     PLIMSOLL_LOAD_TYPES            element types of loads: five in host files, two under nvcc;
//                                    with PLIMSOLL_TEST_FEW_TYPES two and one
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(_OPENMP) && !defined(PLIMSOLL_TEST_NO_OMP)
#define PLIMSOLL_TEST_OMP 1
#include <plimsoll/execution/omp.hpp>
#else
#define PLIMSOLL_TEST_OMP 0
#endif

#if defined(__CUDACC__)
#include <cuda_runtime_api.h>
#include <plimsoll/detail/device/memory.cuh>
#include <plimsoll/execution/thrust.cuh>
#endif

#include "print.hpp"
#include "resources.hpp"

// ----- a user's policy ---------------------------------------------------------------------------

namespace plimsoll_test {

/// Counts the work of the pool below, so that a test can check that the pool ran it.
struct pool_statistics {
  std::atomic<long> calls = 0;   ///< calls of for_blocks
  std::atomic<long> blocks = 0;  ///< ranges of all calls
};
inline pool_statistics pool_counts;

/// A minimal thread pool of a user: `host_context` requires only `for_blocks` of an executor. The
/// ranges start at the end and have lengths 1, 2, 3, 1, ..., since a primitive must not rely on any
/// order or length.
struct reversed_pool {
  int threads = 3;

  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    ++pool_counts.calls;
    std::vector<std::pair<plimsoll::index_t, plimsoll::index_t>> ranges;
    for (plimsoll::index_t first = 0; first < n;) {
      plimsoll::index_t const length = 1 + static_cast<plimsoll::index_t>(ranges.size() % 3);
      plimsoll::index_t const last = first + length < n ? first + length : n;
      ranges.emplace_back(first, last);
      first = last;
    }
    pool_counts.blocks += static_cast<long>(ranges.size());
    std::atomic<std::ptrdiff_t> left = static_cast<std::ptrdiff_t>(ranges.size());
    auto const work = [&] {
      for (std::ptrdiff_t i = --left; i >= 0; i = --left) {
        f(ranges[static_cast<std::size_t>(i)].first, ranges[static_cast<std::size_t>(i)].second);
      }
    };
    std::vector<std::thread> workers;
    for (int i = 1; i < threads && static_cast<std::size_t>(i) < ranges.size(); ++i) {
      workers.emplace_back(work);
    }
    work();
    for (std::thread& worker : workers) {
      worker.join();
    }
  }
};

/// Policy that uses the pool.
struct custom_policy {
  int threads = 3;
  plimsoll::resource_ref memory = {};

  template <plimsoll::host_resource R>
  [[nodiscard]] custom_policy operator()(R& resource) const {
    return {threads, plimsoll::resource_ref(resource)};
  }
};

}  // namespace plimsoll_test

/// With this specialization, every function of the library accepts `custom_policy`.
template <>
struct plimsoll::policy_traits<plimsoll_test::custom_policy> {
  static plimsoll::host_context<plimsoll_test::reversed_pool> resolve(
      plimsoll_test::custom_policy const& policy) {
    return {plimsoll_test::reversed_pool{policy.threads}, policy.memory};
  }
};

// ----- the lists ---------------------------------------------------------------------------------

TYPE_TO_STRING_AS("seq", plimsoll::seq_policy);
TYPE_TO_STRING_AS("custom", plimsoll_test::custom_policy);

#if PLIMSOLL_TEST_OMP
TYPE_TO_STRING_AS("omp", plimsoll::omp_policy);
#define PLIMSOLL_HOST_POLICIES \
  ::plimsoll::seq_policy, ::plimsoll::omp_policy, ::plimsoll_test::custom_policy
#else
#define PLIMSOLL_HOST_POLICIES ::plimsoll::seq_policy, ::plimsoll_test::custom_policy
#endif

#if defined(__CUDACC__)
namespace plimsoll_test {

using thrust_host = std::remove_cvref_t<decltype(thrust::host)>;
#if PLIMSOLL_TEST_OMP
using thrust_omp = std::remove_cvref_t<decltype(thrust::omp::par)>;
#endif

// Two device policies share one type, so the lists contain kinds; `make_policy` makes the policy.
struct gpu_kind {};           // gpu(stream)
struct gpu_resource_kind {};  // gpu(stream, resource)
struct thrust_cuda_kind {};   // thrust::cuda::par_nosync(alloc).on(stream)

}  // namespace plimsoll_test

TYPE_TO_STRING_AS("thrust::host", plimsoll_test::thrust_host);
TYPE_TO_STRING_AS("gpu(stream)", plimsoll_test::gpu_kind);
TYPE_TO_STRING_AS("gpu(stream, resource)", plimsoll_test::gpu_resource_kind);
TYPE_TO_STRING_AS("thrust::cuda::par_nosync(alloc).on(stream)", plimsoll_test::thrust_cuda_kind);
#if PLIMSOLL_TEST_OMP
TYPE_TO_STRING_AS("thrust::omp::par", plimsoll_test::thrust_omp);
#define PLIMSOLL_THRUST_HOST_POLICIES ::plimsoll_test::thrust_host, ::plimsoll_test::thrust_omp
#else
#define PLIMSOLL_THRUST_HOST_POLICIES ::plimsoll_test::thrust_host
#endif
#define PLIMSOLL_PREPARED_POLICIES \
  PLIMSOLL_THRUST_HOST_POLICIES, ::plimsoll_test::gpu_kind, ::plimsoll_test::gpu_resource_kind
#define PLIMSOLL_DEVICE_POLICIES \
  ::plimsoll_test::gpu_kind, ::plimsoll_test::gpu_resource_kind, ::plimsoll_test::thrust_cuda_kind
#define PLIMSOLL_POLICIES PLIMSOLL_THRUST_HOST_POLICIES, PLIMSOLL_DEVICE_POLICIES
#if defined(PLIMSOLL_TEST_FEW_TYPES)
#define PLIMSOLL_LOAD_TYPES float
#else
#define PLIMSOLL_LOAD_TYPES std::int32_t, float
#endif
#else
#if defined(PLIMSOLL_TEST_POLICY)
#define PLIMSOLL_POLICIES PLIMSOLL_TEST_POLICY
#else
#define PLIMSOLL_POLICIES PLIMSOLL_HOST_POLICIES
#endif
#define PLIMSOLL_PREPARED_POLICIES PLIMSOLL_POLICIES
#if defined(PLIMSOLL_TEST_FEW_TYPES)
#define PLIMSOLL_LOAD_TYPES std::int32_t, double
#else
#define PLIMSOLL_LOAD_TYPES std::int32_t, std::uint32_t, std::int64_t, float, double
#endif
#endif

// ----- policies and their memory -----------------------------------------------------------------

namespace plimsoll_test {

using plimsoll::index_t;

#if defined(__CUDACC__)
/// Stream-ordered device memory that counts allocations: a user's resource for `gpu(stream,
/// resource)`, and, with the members that Thrust needs, an allocator for `par_nosync(allocator)`.
class counting_device_resource {
 public:
  using value_type = char;

  void* allocate(plimsoll::stream_t stream, std::size_t bytes, std::size_t) {
    void* pointer = nullptr;
    plimsoll::detail::check_cuda(cudaMallocAsync(&pointer, bytes, stream), "cudaMallocAsync");
    ++allocations_;
    ++live_;
    return pointer;
  }
  void deallocate(plimsoll::stream_t stream, void* pointer, std::size_t, std::size_t) {
    static_cast<void>(cudaFreeAsync(pointer, stream));
    --live_;
  }

  [[nodiscard]] long allocations() const { return allocations_; }
  [[nodiscard]] long live() const { return live_; }

 private:
  std::atomic<long> allocations_ = 0;
  std::atomic<long> live_ = 0;
};

inline counting_device_resource& device_memory() {
  static counting_device_resource resource;
  return resource;
}

/// Returns the one stream of the process. It is non-blocking, so that work on the wrong stream is
/// not ordered by accident.
inline plimsoll::stream_t device_stream() {
  static plimsoll::stream_t const stream = [] {
    plimsoll::stream_t made = nullptr;
    plimsoll::detail::check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags");
    return made;
  }();
  return stream;
}

/// Allocator for `thrust::cuda::par_nosync(allocator)`.
struct thrust_allocator {
  using value_type = char;
  char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(
        device_memory().allocate(device_stream(), static_cast<std::size_t>(bytes), 16));
  }
  void deallocate(char* pointer, std::size_t bytes) {
    device_memory().deallocate(device_stream(), pointer, bytes, 16);
  }
};

template <class P>
inline constexpr bool is_device_kind =
    std::same_as<P, gpu_kind> || std::same_as<P, gpu_resource_kind> ||
    std::same_as<P, thrust_cuda_kind>;
#else
template <class P>
inline constexpr bool is_device_kind = false;
#endif

template <class... Types, class F>
void call_with_each(F check) {
  (check(Types{}), ...);
}
/// Calls check(T{}) for every element type of loads.
template <class F>
void for_each_load_type(F check) {
  call_with_each<PLIMSOLL_LOAD_TYPES>(check);
}

/// Makes the policy of an element of the lists. Device policies need a GPU.
template <class P>
auto make_policy() {
#if defined(__CUDACC__)
  if constexpr (std::same_as<P, gpu_kind>) {
    return plimsoll::gpu(device_stream());
  } else if constexpr (std::same_as<P, gpu_resource_kind>) {
    return plimsoll::gpu(device_stream(), device_memory());
  } else if constexpr (std::same_as<P, thrust_cuda_kind>) {
    static thrust_allocator allocator;
    return thrust::cuda::par_nosync(allocator).on(device_stream());
  } else {
    return P{};
  }
#else
  return P{};
#endif
}

template <class P>
using policy_of = decltype(make_policy<P>());

/// Whether an object can keep the policy: every policy of PLIMSOLL_PREPARED_POLICIES.
template <class P>
inline constexpr bool can_be_kept =
    !requires { requires plimsoll::policy_traits<policy_of<P>>::transient; };
#if defined(__CUDACC__)
static_assert(can_be_kept<gpu_kind> && can_be_kept<gpu_resource_kind> && can_be_kept<thrust_host>);
static_assert(!can_be_kept<thrust_cuda_kind>, "its context refers to the policy");
#endif

/// Returns false for device policies if there is no GPU, the first time after one line that says
/// so.
template <class P>
bool backend_available() {
#if defined(__CUDACC__)
  if constexpr (is_device_kind<P>) {
    static bool const available = [] {
      int count = 0;
      cudaError_t const code = cudaGetDeviceCount(&count);
      if (code != cudaSuccess || count == 0) {
        static_cast<void>(cudaGetLastError());
        std::string const reason = code != cudaSuccess ? cudaGetErrorString(code) : "no device";
        MESSAGE("no GPU: " << reason << "; cases skip for " << doctest::toString<P>());
        return false;
      }
      return true;
    }();
    return available;
  }
#endif
  return true;
}

/// Defines a typed test case for each policy of a list, which runs if the policy's backend is
/// there:
///
///     PLIMSOLL_TEST_CASE("name", P, PLIMSOLL_POLICIES) { ... make_policy<P>() ... }
#define PLIMSOLL_TEST_CASE(name, P, ...) \
  PLIMSOLL_TEST_CASE_OF(DOCTEST_ANONYMOUS(plimsoll_case_), name, P, __VA_ARGS__)
#define PLIMSOLL_TEST_CASE_OF(body, name, P, ...)  \
  template <class P>                               \
  static void body();                              \
  TEST_CASE_TEMPLATE(name, P, __VA_ARGS__) {       \
    if (::plimsoll_test::backend_available<P>()) { \
      body<P>();                                   \
    }                                              \
  }                                                \
  template <class P>                               \
  static void body()

/// Elements in the memory of a policy: a vector on the host, cudaMalloc on the device.
template <class T, class P>
class array_in {
 public:
  static constexpr bool on_device = is_device_kind<P>;

  explicit array_in(std::vector<T> const& values) : size_(static_cast<index_t>(values.size())) {
    if constexpr (on_device) {
#if defined(__CUDACC__)
      if (size_ > 0) {
        plimsoll::detail::check_cuda(cudaMalloc(&device_, bytes()), "cudaMalloc");
      }
#endif
      assign(values);
    } else {
      host_ = values;
    }
  }
  /// Makes an array of `size` elements equal to `value`.
  template <std::integral N>
  explicit array_in(N size, T value = T{})
      : array_in(std::vector<T>(static_cast<std::size_t>(size), value)) {}

  array_in(array_in const&) = delete;
  array_in& operator=(array_in const&) = delete;
  ~array_in() {
#if defined(__CUDACC__)
    if constexpr (on_device) {
      static_cast<void>(cudaDeviceSynchronize());
      static_cast<void>(cudaFree(device_));
    }
#endif
  }

  [[nodiscard]] index_t size() const { return size_; }
  [[nodiscard]] T* data() { return pointer(); }
  [[nodiscard]] T const* data() const { return pointer(); }

  /// Return row-major views of the first elements.
  [[nodiscard]] plimsoll::vector_ref<T> view1() { return {data(), size_}; }
  [[nodiscard]] plimsoll::vector_ref<T const> view1() const { return {data(), size_}; }
  [[nodiscard]] plimsoll::matrix_ref<T> view2(index_t rows, index_t columns) {
    return {data(), rows, columns};
  }
  [[nodiscard]] plimsoll::matrix_ref<T const> view2(index_t rows, index_t columns) const {
    return {data(), rows, columns};
  }
  [[nodiscard]] plimsoll::tensor_ref<T> view3(index_t a, index_t b, index_t c) {
    return {data(), a, b, c};
  }
  [[nodiscard]] plimsoll::tensor_ref<T const> view3(index_t a, index_t b, index_t c) const {
    return {data(), a, b, c};
  }

  /// Replaces all elements; `values` must have the same size.
  void assign(std::vector<T> const& values) {
    REQUIRE(static_cast<index_t>(values.size()) == size_);
    if constexpr (on_device) {
#if defined(__CUDACC__)
      if (size_ > 0) {
        plimsoll::detail::check_cuda(
            cudaMemcpy(device_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        // A copy from pageable memory may return before the device has the bytes, and the policy's
        // stream does not wait for the default stream.
        plimsoll::detail::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
#endif
    } else {
      host_ = values;
    }
  }

  /// Waits for all work of the device so far and returns the elements.
  [[nodiscard]] std::vector<T> values() const {
    if constexpr (on_device) {
      std::vector<T> result(static_cast<std::size_t>(size_));
#if defined(__CUDACC__)
      plimsoll::detail::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      if (size_ > 0) {
        plimsoll::detail::check_cuda(
            cudaMemcpy(result.data(), device_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      }
#endif
      return result;
    } else {
      return host_;
    }
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }
  [[nodiscard]] T* pointer() const {
    if constexpr (on_device) {
      return device_;
    } else {
      return const_cast<T*>(host_.data());
    }
  }

  index_t size_ = 0;
  std::vector<T> host_;
  T* device_ = nullptr;
};

}  // namespace plimsoll_test

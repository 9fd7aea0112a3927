// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adapter that lets Thrust's policies be passed to Plimsoll (opt-in header). It needs CCCL >= 3.0,
/// which CUDA Toolkits contain; a host compiler needs CCCL's headers on its include path.
///
/// `thrust::host`, `thrust::seq` and `thrust::cpp::par` run on the calling thread,
/// `thrust::omp::par` on OpenMP threads if OpenMP is enabled, and `thrust::cuda::par...on(stream)`
/// on that stream (without `.on`: the default stream). `thrust::device` is the policy of Thrust's
/// device system: CUDA, unless THRUST_DEVICE_SYSTEM selects another. Policies for CUDA need a CUDA
/// compiler. Calls that only fill device memory stay asynchronous even for `par`.
#pragma once

#if !__has_include(<thrust/execution_policy.h>)
#error \
    "Plimsoll: <plimsoll/execution/thrust.cuh> needs Thrust; include it from a .cu file, or add CCCL's headers (include/cccl of the CUDA Toolkit) to the include path"
#endif

#include <thrust/execution_policy.h>
#include <thrust/system/cpp/execution_policy.h>
#include <thrust/system/omp/execution_policy.h>
#if defined(__CUDACC__)
#include <thrust/memory.h>
#include <thrust/system/cuda/execution_policy.h>
#endif

#include <concepts>
#include <cstddef>
#include <new>
#include <type_traits>

#include <plimsoll/execution.hpp>
#if defined(_OPENMP)
#include <plimsoll/execution/omp.hpp>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI {

namespace detail {

template <class P>
concept thrust_omp_policy = std::derived_from<P, thrust::omp::execution_policy<P>>;
template <class P>
concept thrust_host_policy =
    !thrust_omp_policy<P> && (std::derived_from<P, thrust::cpp::execution_policy<P>> ||
                              std::same_as<P, std::remove_cvref_t<decltype(thrust::seq)>>);

}  // namespace detail

template <detail::thrust_host_policy P>
struct policy_traits<P> {
  static host_context<inline_executor> resolve(P const&) { return {}; }
};

#if defined(_OPENMP)
template <detail::thrust_omp_policy P>
struct policy_traits<P> {
  static host_context<omp_executor> resolve(P const&) { return {}; }
};
#endif

#if defined(__CUDACC__)

namespace detail {

template <class P>
concept thrust_cuda_policy = std::derived_from<P, thrust::cuda::execution_policy<P>>;

}  // namespace detail

/// Resolves a Thrust policy for CUDA to its stream. With `par(alloc)` or `par_nosync(alloc)`,
/// temporaries come from `alloc`, through `thrust::get_temporary_buffer`.
template <detail::thrust_cuda_policy P>
struct policy_traits<P> {
  /// True because the context points to the policy object. Prepared objects outlive the call, and
  /// so refuse such a policy.
  static constexpr bool transient = true;

  static device_context resolve(P const& policy) {
    P copy = policy;  // Thrust's accessor takes a mutable policy
    return {get_stream(copy), resource_ref(const_cast<P*>(&policy), &allocate, &deallocate)};
  }

 private:
  // Thrust's temporaries are typed; units of 16 bytes are aligned for any element type.
  struct alignas(16) unit {
    std::byte bytes[16];
  };
  static constexpr std::ptrdiff_t units(std::size_t bytes) {
    return static_cast<std::ptrdiff_t>((bytes + sizeof(unit) - 1) / sizeof(unit));
  }
  static void* allocate(void* policy, stream_t, std::size_t bytes, std::size_t) {
    auto const got = thrust::get_temporary_buffer<unit>(*static_cast<P*>(policy), units(bytes));
    if (got.second < units(bytes)) {
      throw std::bad_alloc();
    }
    return thrust::raw_pointer_cast(got.first);
  }
  static void deallocate(void* policy, stream_t, void* pointer, std::size_t bytes, std::size_t) {
    using tag = thrust::cuda::tag;
    thrust::return_temporary_buffer(*static_cast<P*>(policy),
                                    thrust::pointer<unit, tag>(static_cast<unit*>(pointer)),
                                    units(bytes));
  }
};

#endif

}}  // namespace plimsoll

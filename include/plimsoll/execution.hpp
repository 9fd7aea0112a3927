// SPDX-License-Identifier: Apache-2.0
/// @file
/// Execution policies, which choose where a primitive runs and which memory its temporaries use.
/// The policy is always the first argument.
///
/// | policy | header | runs on |
/// |---|---|---|
/// | `plimsoll::seq` | this one | the calling thread |
/// | `plimsoll::omp` | `<plimsoll/execution/omp.hpp>` | OpenMP threads |
/// | `plimsoll::gpu(stream)` | this one; calls need a CUDA compiler | a CUDA stream |
/// | `cuda::stream_ref` | `<plimsoll/execution/cuda.cuh>`; calls likewise | a CUDA stream |
/// | Thrust's policies | `<plimsoll/execution/thrust.cuh>` | the backend of the policy |
/// | your thread pool | specialize `policy_traits` | your threads |
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

struct CUstream_st;

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// CUDA stream (`cudaStream_t`), declared without CUDA's headers.
using stream_t = CUstream_st*;

/// Memory resource for host policies, such as `std::pmr::memory_resource`. `allocate` may throw,
/// `deallocate` must not.
template <class R>
concept host_resource = requires(R& r, void* p, std::size_t n) {
  { r.allocate(n, n) } -> std::same_as<void*>;
  r.deallocate(p, n, n);
};

/// Stream-ordered device memory resource for `gpu` policies.
template <class R>
concept device_resource = requires(R& r, stream_t s, void* p, std::size_t n) {
  { r.allocate(s, n, n) } -> std::same_as<void*>;
  r.deallocate(s, p, n, n);
};

/// Non-owning reference to a host or device resource. An empty reference means the default resource
/// (operator new on the host, cudaMallocAsync on the device). The resource must outlive its use.
class resource_ref {
 public:
  using allocate_function = void* (*)(void* object, stream_t, std::size_t bytes,
                                      std::size_t alignment);
  using deallocate_function = void (*)(void* object, stream_t, void*, std::size_t bytes,
                                       std::size_t alignment);

  constexpr resource_ref() = default;

  /// Makes a reference from an object pointer and two functions, for memory that is not an object
  /// with members `allocate` and `deallocate`.
  constexpr resource_ref(void* object, allocate_function acquire, deallocate_function release)
      : object_(object), allocate_(acquire), deallocate_(release) {}

  template <class R>
    requires(!std::same_as<R, resource_ref> && (host_resource<R> || device_resource<R>))
  explicit resource_ref(R& resource)
      : object_(&resource),
        allocate_([](void* object, [[maybe_unused]] stream_t stream, std::size_t bytes,
                     std::size_t alignment) -> void* {
          if constexpr (device_resource<R>) {
            return static_cast<R*>(object)->allocate(stream, bytes, alignment);
          } else {
            return static_cast<R*>(object)->allocate(bytes, alignment);
          }
        }),
        deallocate_([](void* object, [[maybe_unused]] stream_t stream, void* pointer,
                       std::size_t bytes, std::size_t alignment) {
          if constexpr (device_resource<R>) {
            static_cast<R*>(object)->deallocate(stream, pointer, bytes, alignment);
          } else {
            static_cast<R*>(object)->deallocate(pointer, bytes, alignment);
          }
        }) {}

  [[nodiscard]] constexpr bool empty() const { return object_ == nullptr; }
  friend constexpr bool operator==(resource_ref const& a, resource_ref const& b) {
    return a.object_ == b.object_;
  }
  [[nodiscard]] void* allocate(stream_t stream, std::size_t bytes, std::size_t alignment) const {
    return allocate_(object_, stream, bytes, alignment);
  }
  void deallocate(stream_t stream, void* pointer, std::size_t bytes, std::size_t alignment) const {
    deallocate_(object_, stream, pointer, bytes, alignment);
  }

 private:
  void* object_ = nullptr;
  allocate_function allocate_ = nullptr;
  deallocate_function deallocate_ = nullptr;
};

/// Context of a host policy: the executor that runs the work, and the memory of temporaries.
/// `executor.for_blocks(n, f)` must call f(first, last) for ranges that cover [0, n) once, in any
/// order and on any threads, and return after all of these calls have returned; f does not throw.
template <class Executor>
struct host_context {
  Executor executor;
  resource_ref memory = {};
};

inline namespace PLIMSOLL_DEVICE_ABI {

/// Context of a device policy.
struct device_context {
  stream_t stream = nullptr;
  resource_ref memory = {};
  /// Device of the stream, set by the library; for a default stream, the device that is current
  /// at that time.
  int device = -1;
  /// Bytes of shared memory that a block can have on that device, set by the library; 0: unknown,
  /// in which case 48 KiB are assumed.
  int shared_memory = 0;
};

/// Maps a policy to its context. Specialize it for your own policy type:
/// `static host_context<my_executor> resolve(my_policy const&)`.
template <class Policy>
struct policy_traits;

}  // namespace PLIMSOLL_DEVICE_ABI

/// Policy that `policy_traits` can resolve to a context.
template <class P>
concept execution_policy = requires(std::remove_cvref_t<P> const& policy) {
  policy_traits<std::remove_cvref_t<P>>::resolve(policy);
};

/// Policy as the parameter of a class. `decltype(plimsoll::seq)` is const and would make another
/// type: write `seq_policy`.
template <class P>
concept unqualified_policy = execution_policy<P> && std::same_as<P, std::remove_cvref_t<P>>;

namespace detail {

template <class P>
struct context_to_keep;

}  // namespace detail

/// Context that arrays, placements and prepared objects of a policy keep. It is a template argument
/// of theirs that callers leave out: a device context carries the architectures of
/// PLIMSOLL_DEVICE_ABI into their types.
template <unqualified_policy P>
using kept_context = typename detail::context_to_keep<P>::type;

/// Executor that runs all work on the calling thread.
struct inline_executor {
  template <class F>
  void for_blocks(index_t n, F&& f) const {
    if (n > 0) {
      f(index_t{0}, n);
    }
  }
};

/// Type of `plimsoll::seq`.
struct seq_policy {
  resource_ref memory = {};
  /// Returns the policy with temporaries from `resource`.
  template <host_resource R>
  [[nodiscard]] seq_policy operator()(R& resource) const {
    return seq_policy{resource_ref(resource)};
  }
};
/// Policy that runs on the calling thread; `seq(resource)` takes temporaries from `resource`.
inline constexpr seq_policy seq{};

template <>
struct policy_traits<seq_policy> {
  static host_context<inline_executor> resolve(seq_policy const& policy) {
    return {inline_executor{}, policy.memory};
  }
};

/// Type of `plimsoll::gpu(...)`. Any translation unit can hold and pass it, but a primitive called
/// with it must be compiled by a CUDA compiler.
class gpu_policy {
 public:
  explicit gpu_policy(stream_t stream, resource_ref memory = {})
      : stream_(stream), memory_(memory) {}
  [[nodiscard]] stream_t stream() const { return stream_; }
  [[nodiscard]] resource_ref memory() const { return memory_; }

 private:
  stream_t stream_;
  resource_ref memory_;
};

/// Returns a policy that enqueues work on `stream` and takes temporaries from cudaMallocAsync.
inline gpu_policy gpu(stream_t stream) { return gpu_policy(stream); }
/// Returns a policy that enqueues work on `stream` and takes temporaries from `resource`.
template <device_resource R>
gpu_policy gpu(stream_t stream, R& resource) {
  return gpu_policy(stream, resource_ref(resource));
}

template <>
struct policy_traits<gpu_policy> {
  static device_context resolve(gpu_policy const& policy) {
    return {policy.stream(), policy.memory()};
  }
};

}}  // namespace plimsoll

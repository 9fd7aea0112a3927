// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a body over a batch of problems on the device in one launch: a warp or a block per
/// problem, scratch in shared memory where it fits, else in global memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/device/block_team.cuh>
#include <plimsoll/detail/device/launch.cuh>
#include <plimsoll/detail/device/memory.cuh>
#include <plimsoll/detail/device/warp_team.cuh>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

// Two shared objects built for different architectures must not share a launcher or a kernel.
#define PLIMSOLL_DETAIL_HIDDEN __attribute__((visibility("hidden")))

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// `stride` bytes of scratch for each of `slots` problems in flight; problem p uses slot p % slots.
struct scratch_plan {
  std::byte* global = nullptr;  ///< null: in dynamic shared memory
  std::size_t stride = 0;

  /// Scratch of the problem in `slot`, which is number `in_block` of its block.
  [[nodiscard]] __device__ scratch of(index_t slot, int in_block, uint4* shared) const {
    std::byte* const memory = global != nullptr ? global : reinterpret_cast<std::byte*>(shared);
    index_t const place = global != nullptr ? slot : in_block;
    return scratch(memory + static_cast<std::size_t>(place) * stride);
  }
};

/// Blocks that share a multiprocessor at least: one lets a planner have as many registers as it
/// wants, those of a streaming body may have 128 registers a thread.
template <int Threads, class Body>
inline constexpr int least_blocks = is_streaming<Body> ? 512 / Threads : 1;

/// Warps of a block where they share one.
inline constexpr int warps_in_block = 4;

template <class Body>
PLIMSOLL_DETAIL_HIDDEN __global__ void __launch_bounds__(
    warps_in_block* warp_size, least_blocks<warps_in_block * warp_size, Body>)
    batched_warp_kernel(Body const body, index_t problems, scratch_plan plan) {
  extern __shared__ uint4 plimsoll_shared[];
  int const warps = static_cast<int>(blockDim.x) / warp_size;
  int const warp_in_block = static_cast<int>(threadIdx.x) / warp_size;
  index_t const slots = index_t{gridDim.x} * warps;
  index_t const slot = index_t{blockIdx.x} * warps + warp_in_block;
  scratch const memory = plan.of(slot, warp_in_block, plimsoll_shared);
  warp_team<is_streaming<Body>> team(static_cast<int>(threadIdx.x) % warp_size);
#pragma unroll 1
  for (index_t problem = slot; problem < problems; problem += slots) {
    body(team, memory, problem);
    __syncwarp();
  }
}

template <int Threads, class Body>
PLIMSOLL_DETAIL_HIDDEN __global__ void __launch_bounds__(Threads, least_blocks<Threads, Body>)
    batched_block_kernel(Body const body, index_t problems, scratch_plan plan) {
  extern __shared__ uint4 plimsoll_shared[];
  __shared__ block_exchange<Threads> exchange;
  scratch const memory = plan.of(blockIdx.x, 0, plimsoll_shared);
  block_team<Threads, is_streaming<Body>> team(static_cast<int>(threadIdx.x), exchange);
#pragma unroll 1
  for (index_t problem = blockIdx.x; problem < problems; problem += gridDim.x) {
    body(team, memory, problem);
    __syncthreads();
  }
}

#if defined(__CUDACC__)  // what stands in for CUB on the host is larger
static_assert(sizeof(block_exchange<512>) <= static_shared_memory);
#endif

/// Problems in flight when scratch lies in global memory: enough to fill any device.
inline constexpr index_t problems_in_flight = 4096;

/// Warps share a block only while every one of them finds room for its scratch, in what every
/// device has: more for a block would leave fewer blocks to a multiprocessor.
template <class Body>
PLIMSOLL_DETAIL_HIDDEN void launch_team(warp, device_context const& context, index_t problems,
                                        Body const& body, scratch_plan plan, index_t limit) {
  std::size_t const shared = plan.global == nullptr ? plan.stride : 0;
  int const warps = warps_in_block * shared <= shared_memory_for_scratch ? warps_in_block : 1;
  index_t const blocks = (std::min(problems, limit) + warps - 1) / warps;
  launch_kernel(context,
                {static_cast<unsigned>(blocks), static_cast<unsigned>(warps * warp_size),
                 static_cast<std::size_t>(warps) * shared},
                batched_warp_kernel<Body>, body, problems, plan);
}

template <int Threads, class Body>
PLIMSOLL_DETAIL_HIDDEN void launch_team(block<Threads>, device_context const& context,
                                        index_t problems, Body const& body, scratch_plan plan,
                                        index_t limit) {
  std::size_t const shared = plan.global == nullptr ? plan.stride : 0;
  launch_kernel(context, {static_cast<unsigned>(std::min(problems, limit)), Threads, shared},
                batched_block_kernel<Threads, Body>, body, problems, plan);
}

/// Runs body(team, scratch, problem) for every problem in [0, problems), by teams of the kind that
/// the body names. Enqueues one kernel and does not synchronise.
template <class Body>
PLIMSOLL_DETAIL_HIDDEN void launch(device_context const& context, index_t problems,
                                   Body const& body) {
  static_assert(std::is_trivially_copyable_v<Body>);
  if (problems <= 0) {
    return;
  }
  constexpr index_t largest_grid = 0x7fffffff;
  scratch_plan plan{nullptr,
                    scratch_bytes_of<std::byte>(static_cast<index_t>(body.scratch_bytes()))};
  bool const in_shared = plan.stride <= most_shared_memory(context);
  index_t const limit = in_shared ? largest_grid : std::min(problems, problems_in_flight);
  // A block of four warps may run past `limit` by three.
  buffer<std::byte, device_context> const global(
      context, in_shared ? 0 : (limit + 3) * static_cast<index_t>(plan.stride));
  plan.global = global.data();
  launch_team(typename Body::device_team{}, context, problems, body, plan, limit);
}

/// What a launch that does not allocate needs: nothing where scratch fits shared memory.
template <class Body>
[[nodiscard]] index_t launch_bytes(device_context const& context, index_t problems,
                                   Body const& body) {
  auto const bytes = static_cast<index_t>(body.scratch_bytes());
  std::size_t const stride = scratch_bytes_of<std::byte>(bytes);
  return stride <= most_shared_memory(context) ? 0 : problems * static_cast<index_t>(stride);
}

/// The same as `launch` without allocating: where scratch does not fit shared memory, every problem
/// has its own in `memory`, which holds `launch_bytes(context, problems, body)`.
template <class Body>
PLIMSOLL_DETAIL_HIDDEN void launch(device_context const& context, index_t problems,
                                   Body const& body, std::byte* memory) {
  static_assert(std::is_trivially_copyable_v<Body>);
  if (problems <= 0) {
    return;
  }
  scratch_plan plan{memory,
                    scratch_bytes_of<std::byte>(static_cast<index_t>(body.scratch_bytes()))};
  if (plan.stride <= most_shared_memory(context)) {
    plan.global = nullptr;
  }
  launch_team(typename Body::device_team{}, context, problems, body, plan, problems);
}

}}}  // namespace plimsoll::detail

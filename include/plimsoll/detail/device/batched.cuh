// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device launcher: runs a body over a batch of problems in one launch, with one warp or block per
/// problem. Scratch is in shared memory if it fits, else in global memory.
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

/// Scratch of the problems in flight, `stride` bytes each: problem p uses slot p % slots, where
/// slots is the number of problems in flight.
struct scratch_plan {
  std::byte* global = nullptr;  ///< global memory; null: scratch is in dynamic shared memory
  std::size_t stride = 0;

  /// Returns the scratch of the problem in `slot`, which has index `in_block` in its block.
  [[nodiscard]] __device__ scratch in_slot(index_t slot, int in_block, uint4* shared) const {
    std::byte* const memory = global != nullptr ? global : reinterpret_cast<std::byte*>(shared);
    index_t const position = global != nullptr ? slot : in_block;
    return scratch(memory + static_cast<std::size_t>(position) * stride);
  }
};

/// Least number of blocks that must fit on a multiprocessor. One block leaves the registers of a
/// planner unbounded; 512 threads bound those of a streaming body to 128 per thread.
template <int Threads, class Body>
inline constexpr int least_blocks = is_streaming<Body> ? 512 / Threads : 1;

/// Number of warps that share a block, if their scratch fits.
inline constexpr int warps_in_block = 4;
/// Up to this number of problems, each warp has a block of its own, and mostly a multiprocessor:
/// four warps on one take a tenth longer (`minmax_lp` on an H200).
inline constexpr index_t few_problems = 512;

template <class Body>
PLIMSOLL_DETAIL_HIDDEN __global__ void __launch_bounds__(
    warps_in_block* warp_size, least_blocks<warps_in_block * warp_size, Body>)
    batched_warp_kernel(Body const body, index_t problems, scratch_plan plan) {
  extern __shared__ uint4 plimsoll_shared[];
  int const warps = static_cast<int>(blockDim.x) / warp_size;
  int const warp_in_block = static_cast<int>(threadIdx.x) / warp_size;
  index_t const slots = index_t{gridDim.x} * warps;
  index_t const slot = index_t{blockIdx.x} * warps + warp_in_block;
  scratch const memory = plan.in_slot(slot, warp_in_block, plimsoll_shared);
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
  scratch const memory = plan.in_slot(blockIdx.x, 0, plimsoll_shared);
  block_team<Threads, is_streaming<Body>> team(static_cast<int>(threadIdx.x), exchange);
#pragma unroll 1
  for (index_t problem = blockIdx.x; problem < problems; problem += gridDim.x) {
    body(team, memory, problem);
    __syncthreads();
  }
}

#if defined(__CUDACC__)  // the replacement of CUB on the host is larger
static_assert(sizeof(block_exchange<512>) <= static_shared_memory);
#endif

/// Number of problems in flight if scratch is in global memory: enough to fill any device.
inline constexpr index_t problems_in_flight = 4096;

/// Launches one warp per problem. Warps share a block only if they are many, and if the scratch of
/// all fits in the shared memory of every device: with more shared memory per block, fewer blocks
/// would fit on a multiprocessor.
template <class Body>
PLIMSOLL_DETAIL_HIDDEN void launch_team(warp, device_context const& context, index_t problems,
                                        Body const& body, scratch_plan plan, index_t limit) {
  std::size_t const shared = plan.global == nullptr ? plan.stride : 0;
  bool const share_blocks =
      problems > few_problems && warps_in_block * shared <= shared_memory_for_scratch;
  int const warps = share_blocks ? warps_in_block : 1;
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

/// Runs body(team, scratch, problem) for every problem in [0, problems), on teams of the kind that
/// the body names. Enqueues one kernel and does not synchronize.
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
  // The last block of four warps may exceed `limit` by three problems in flight.
  buffer<std::byte, device_context> const global(
      context, in_shared ? 0 : (limit + 3) * static_cast<index_t>(plan.stride));
  plan.global = global.data();
  launch_team(typename Body::device_team{}, context, problems, body, plan, limit);
}

/// Returns the bytes that a launch with caller-provided memory needs: 0 if scratch fits in shared
/// memory.
template <class Body>
[[nodiscard]] index_t launch_bytes(device_context const& context, index_t problems,
                                   Body const& body) {
  auto const bytes = static_cast<index_t>(body.scratch_bytes());
  std::size_t const stride = scratch_bytes_of<std::byte>(bytes);
  return stride <= most_shared_memory(context) ? 0 : problems * static_cast<index_t>(stride);
}

/// Runs body(team, scratch, problem) for every problem in [0, problems) without allocating. If
/// scratch does not fit in shared memory, every problem has its own in `memory`, of
/// `launch_bytes(context, problems, body)` bytes.
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

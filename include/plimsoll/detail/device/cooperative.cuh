// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device launcher for a body of several phases (detail/phases.hpp): one cooperative launch if all
/// blocks can be resident at once, else one launch per phase.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/batched.cuh>
#include <plimsoll/detail/device/block_team.cuh>
#include <plimsoll/detail/device/launch.cuh>
#include <plimsoll/detail/device/runtime.cuh>
#include <plimsoll/detail/phases.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Runs phases [first, last), with one block per problem. More than one phase needs a cooperative
/// launch: nothing else guarantees that blocks that wait for each other run at the same time. The
/// bound of 1 block per multiprocessor keeps ptxas from spilling registers to fit more blocks.
template <int Threads, class Body>
PLIMSOLL_DETAIL_HIDDEN __global__ void __launch_bounds__(Threads, 1)
    phased_kernel(Body const body, int first, int last, scratch_plan plan) {
  extern __shared__ uint4 plimsoll_shared[];
  __shared__ block_exchange<Threads> exchange;
  scratch const memory = plan.in_slot(blockIdx.x, 0, plimsoll_shared);
  block_team<Threads, is_streaming<Body>> team(static_cast<int>(threadIdx.x), exchange);
  auto const grid = cooperative_groups::this_grid();
#pragma unroll 1
  for (int phase = first;; ++phase) {
    bool const has_problem = blockIdx.x < body.problems(phase);
    if (has_problem) {
      body(team, memory, blockIdx.x, phase);
    }
    bool const is_last = phase + 1 == last || body.is_over(phase);
    cooperative_groups::grid_group::arrival_token arrival{};
    if (!is_last) {
      arrival = grid.barrier_arrive();
    }
    if (has_problem) {
      body.finish(team, memory, blockIdx.x, phase);
    }
    if (is_last) {
      return;
    }
    grid.barrier_wait(std::move(arrival));
  }
}

template <class Body>
[[nodiscard]] index_t most_problems(Body const& body, int first, int last) {
  index_t most = 0;
  for (int phase = first; phase < last; ++phase) {
    most = std::max(most, body.problems(phase));
  }
  return most;
}

/// Returns the bytes of scratch per problem during phases [first, last).
template <class Body>
[[nodiscard]] std::size_t scratch_stride(Body const& body, int first, int last) {
  std::size_t most = 0;
  for (int phase = first; phase < last; ++phase) {
    most = std::max(most, body.scratch_bytes(phase));
  }
  return scratch_bytes_of<std::byte>(static_cast<index_t>(most));
}

/// Enqueues phases [first, last) as one kernel, which is cooperative if there is more than one
/// phase.
template <int Threads, class Body>
PLIMSOLL_DETAIL_HIDDEN cudaError_t enqueue_phases(block<Threads>, device_context const& context,
                                                  Body body, int first, int last,
                                                  std::byte* memory) {
  std::size_t const stride = scratch_stride(body, first, last);
  bool const in_shared = stride <= most_shared_memory(context);
  scratch_plan plan{in_shared ? nullptr : memory, stride};
  return try_launch_kernel(context,
                           {.blocks = static_cast<unsigned>(most_problems(body, first, last)),
                            .threads = Threads,
                            .shared_bytes = in_shared ? stride : 0,
                            .cooperative = last - first > 1},
                           phased_kernel<Threads, Body>, body, first, last, plan);
}

/// Returns the number of blocks of the body's kernel that the device runs at once; 0 if it does not
/// support cooperative launches.
template <int Threads, class Body>
PLIMSOLL_DETAIL_HIDDEN index_t count_resident(block<Threads>, device_context const& context,
                                              Body const& body) {
  current_device const current(context);
  current.check();
  std::size_t const stride = scratch_stride(body, 0, body.phases());
  std::size_t const shared = stride <= most_shared_memory(context) ? stride : 0;
  int device = 0;
  int is_cooperative = 0;
  int multiprocessors = 0;
  int blocks = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&is_cooperative, cudaDevAttrCooperativeLaunch, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  auto const* const kernel = reinterpret_cast<void const*>(&phased_kernel<Threads, Body>);
  allow_shared_memory(context, kernel, shared);
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, Threads, shared),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return is_cooperative != 0 ? index_t{multiprocessors} * blocks : 0;
}

/// Runs all phases in order. Scratch that does not fit in shared memory is in `memory`, which has
/// `phases_bytes(context, body)` bytes. Neither allocates nor synchronizes.
///
/// A partition of the device (a green context, MPS) may have fewer multiprocessors than it reports.
/// CUDA then refuses the cooperative launch, and phases are launched one by one from then on.
template <class Body>
PLIMSOLL_DETAIL_HIDDEN void launch_phases(device_context const& context, Body body,
                                          std::byte* memory, resident_blocks& resident) {
  static_assert(std::is_trivially_copyable_v<Body>);
  typename Body::device_team const team{};
  if (body.phases() > 1 && body.fits_one_launch()) {
    body.one_launch = body.keeps_scratch = true;
    if (resident.most == resident_blocks::unknown) {
      resident.most = count_resident(team, context, body);
    }
    if (most_problems(body, 0, body.phases()) <= resident.most) {
      cudaError_t const code = enqueue_phases(team, context, body, 0, body.phases(), memory);
      if (code != cudaErrorCooperativeLaunchTooLarge) {
        check_launch(code);
        return;
      }
      static_cast<void>(cudaGetLastError());
      resident.most = 0;
    }
    body.one_launch = body.keeps_scratch = false;
  }
  for (int phase = 0; phase < body.phases(); ++phase) {
    if (body.problems(phase) > 0) {
      check_launch(enqueue_phases(team, context, body, phase, phase + 1, memory));
    }
  }
}

/// Returns the bytes of `memory` that `launch_phases` needs.
template <class Body>
[[nodiscard]] index_t phases_bytes(device_context const& context, Body body) {
  index_t most = 0;
  auto const add = [&](int first, int last) {
    auto const stride = scratch_stride(body, first, last);
    if (stride > most_shared_memory(context)) {
      most = std::max(most, most_problems(body, first, last) * static_cast<index_t>(stride));
    }
  };
  for (int phase = 0; phase < body.phases(); ++phase) {
    add(phase, phase + 1);
  }
  body.one_launch = true;
  if (body.fits_one_launch()) {
    add(0, body.phases());
  }
  return most;
}

}}}  // namespace plimsoll::detail

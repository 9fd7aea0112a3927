// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts token ids on the device in one launch, with a histogram per block in shared memory if the
/// experts fit. All additions are integer atomics, so the order of threads changes nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/device/batched.cuh>
#include <plimsoll/detail/device/launch.cuh>
#include <plimsoll/detail/device/warp_team.cuh>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline constexpr int count_threads = 256;
/// Ids that a thread reads before it counts them, so that the reads overlap.
inline constexpr int ids_in_flight = 4;

/// Atomic additions: CUDA has them for int and unsigned long long, but not for int64.
__device__ inline void atomic_add(std::int32_t* target, std::int64_t value) {
  atomicAdd(target, static_cast<std::int32_t>(value));
}
__device__ inline void atomic_add(std::int64_t* target, std::int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
}

/// Values that the threads of a block share, in addition to the histogram.
struct count_exchange {
  std::int64_t routed;
  std::int64_t unrouted;
  std::int64_t out_of_range;
  long long begin;  ///< tokens of the block's source
  long long end;
  long long covered;  ///< end of the last source
};

/// Finds the tokens of a source. A source ends at the highest end of itself and all sources before
/// it, so that falling or invalid offsets neither count a token twice nor lead out of bounds.
template <class Offset>
__device__ void find_tokens(vector_ref<Offset const> const& offsets, index_t source, index_t tokens,
                            count_exchange& shared) {
  if (offsets.data == nullptr) {
    if (threadIdx.x == 0) {
      shared.end = shared.covered = tokens;
    }
    return;
  }
  long long begin = 0;
  long long end = 0;
  long long covered = 0;
  for (index_t i = threadIdx.x; i < offsets.extent(0); i += count_threads) {
    auto const offset =
        static_cast<long long>(minimum{}(maximum{}(index_t{offsets[i]}, index_t{0}), tokens));
    begin = i <= source ? maximum{}(begin, offset) : begin;
    end = i <= source + 1 ? maximum{}(end, offset) : end;
    covered = maximum{}(covered, offset);
  }
  begin = warp_reduce(begin, maximum{});
  end = warp_reduce(end, maximum{});
  covered = warp_reduce(covered, maximum{});
  if (threadIdx.x % warp_size == 0) {
    atomicMax(&shared.begin, begin);
    atomicMax(&shared.end, end);
    atomicMax(&shared.covered, covered);
  }
}

/// Ids that a block counts: one of `chunks` parts of the ids of a layer and source.
struct count_part {
  index_t chunk;
  index_t source;
  index_t layer;

  __device__ count_part(index_t chunks, index_t sources)
      : chunk(blockIdx.x % chunks),
        source(blockIdx.x / chunks % sources),
        layer(blockIdx.x / chunks / sources) {}
};

/// Counts the thread's ids of a part: those of experts in `bins`, or directly in the output if
/// these do not fit in shared memory. Returns how many there are of each kind.
template <bool InShared, class Id, class Count, class Offset>
__device__ __forceinline__ routing_counters
count_ids(token_counting<Id, Count, Offset> const& counting, count_part const& part, index_t chunks,
          index_t begin, index_t end, unsigned* bins) {
  index_t const k = counting.ids.extent(2);
  index_t const experts = counting.counts.extent(2);
  index_t const n = (end - begin) * k;
  bool const flat = counting.ids.stride(2) == 1 && counting.ids.stride(1) == k;
  Id const* const first_id = &counting.ids(part.layer, begin, 0);
  routing_counters result;
  index_t const step = chunks * count_threads;
  for (index_t base = part.chunk * count_threads + threadIdx.x; base < n;
       base += ids_in_flight * step) {
    Id ids[ids_in_flight];
#pragma unroll
    for (int j = 0; j < ids_in_flight; ++j) {
      index_t const i = base + j * step;
      if (i < n) {
        ids[j] = flat ? first_id[i] : counting.ids(part.layer, begin + i / k, i % k);
      }
    }
#pragma unroll
    for (int j = 0; j < ids_in_flight; ++j) {
      if (base + j * step >= n) {
        continue;
      }
      if (ids[j] >= 0 && ids[j] < experts) {
        if constexpr (InShared) {
          atomicAdd(bins + ids[j], 1u);
        } else {
          atomic_add(&counting.counts(part.layer, part.source, ids[j]), 1);
        }
        ++result.routed;
      } else if (ids[j] == -1) {
        ++result.unrouted;
      } else {
        ++result.out_of_range;
      }
    }
  }
  return result;
}

/// Block = layer, source and one of `chunks` parts of that source's ids.
template <bool InShared, class Id, class Count, class Offset>
PLIMSOLL_DETAIL_HIDDEN __global__ void __launch_bounds__(count_threads)
    count_tokens_kernel(token_counting<Id, Count, Offset> const counting, index_t chunks) {
  extern __shared__ uint4 plimsoll_shared[];
  __shared__ count_exchange shared;
  auto* const bins = reinterpret_cast<unsigned*>(plimsoll_shared);
  index_t const tokens = counting.ids.extent(1);
  index_t const experts = counting.counts.extent(2);
  count_part const part(chunks, counting.counts.extent(1));
  index_t const thread = threadIdx.x;

  if constexpr (InShared) {
    for (index_t e = thread; e < experts; e += count_threads) {
      bins[e] = 0;
    }
  }
  if (thread == 0) {
    shared = count_exchange{};
  }
  __syncthreads();
  find_tokens(counting.offsets, part.source, tokens, shared);
  __syncthreads();

  index_t const begin = shared.begin;
  routing_counters const mine =
      count_ids<InShared>(counting, part, chunks, begin, shared.end, bins);
  std::int64_t const routed = warp_reduce(mine.routed, plus{});
  std::int64_t const unrouted = warp_reduce(mine.unrouted, plus{});
  std::int64_t const out_of_range = warp_reduce(mine.out_of_range, plus{});
  if (thread % warp_size == 0) {
    atomic_add(&shared.routed, routed);
    atomic_add(&shared.unrouted, unrouted);
    atomic_add(&shared.out_of_range, out_of_range);
  }
  __syncthreads();
  if constexpr (InShared) {
    for (index_t e = thread; e < experts; e += count_threads) {
      if (bins[e] != 0) {
        atomic_add(&counting.counts(part.layer, part.source, e), bins[e]);
      }
    }
  }
  if (thread == 0) {
    routing_counters& counters = counting.counters[part.layer];
    // Tokens before the first source and after the last belong to none.
    index_t const uncovered =
        part.source == 0 && part.chunk == 0 ? tokens - (shared.covered - begin) : 0;
    atomic_add(&counters.routed, shared.routed);
    atomic_add(&counters.unrouted, shared.unrouted);
    atomic_add(&counters.out_of_range, shared.out_of_range + uncovered * counting.ids.extent(2));
  }
}

/// Adds the ids of `counting` to its outputs: one launch, nothing allocated.
template <class Id, class Count, class Offset>
PLIMSOLL_DETAIL_HIDDEN void enqueue_count(device_context const& context,
                                          token_counting<Id, Count, Offset> const& counting) {
  constexpr index_t most_blocks = 2048;
  index_t const experts = counting.counts.extent(2);
  index_t const rows = counting.counts.extent(0) * counting.counts.extent(1);
  if (rows == 0) {
    return;
  }
  std::size_t const bytes = static_cast<std::size_t>(experts) * sizeof(unsigned);
  bool const in_shared = bytes <= shared_memory_for_scratch;
  // A block adds its whole histogram to the output; that pays only with several ids per bin.
  index_t const ids_per_block = std::max<index_t>(8 * count_threads, in_shared ? 4 * experts : 0);
  index_t const ids_per_row =
      counting.ids.extent(1) * counting.ids.extent(2) / counting.counts.extent(1);
  index_t const chunks =
      std::max<index_t>(1, std::min(ids_per_row / ids_per_block + 1, most_blocks / rows));
  auto const blocks = static_cast<unsigned>(rows * chunks);
  if (in_shared) {
    launch_kernel(context, {blocks, count_threads, bytes},
                  count_tokens_kernel<true, Id, Count, Offset>, counting, chunks);
  } else {
    launch_kernel(context, {blocks, count_threads}, count_tokens_kernel<false, Id, Count, Offset>,
                  counting, chunks);
  }
}

}}}  // namespace plimsoll::detail

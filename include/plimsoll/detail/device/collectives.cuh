// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reductions, scans and sorts of a warp and of a block by CUB, and a block's ranks of items within
/// their bins; kernels call CUB nowhere else. All threads of the team must call a function of
/// this file together; it contains the barriers that CUB leaves to the caller. Storage may be
/// reused after the next barrier.
///
/// Tests run this file on the host, where other collectives with the same interface replace
/// those of CUB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/functional>
#include <cuda/std/functional>
#endif

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xffffffffu;

/// Operator type for which CUB uses a hardware instruction, in place of our own.
template <class Op>
struct cub_operator {
  using type = Op;
};
#if defined(__CUDACC__)
namespace collectives = ::cub;
template <>
struct cub_operator<plus> {
  using type = ::cuda::std::plus<>;
};
template <>
struct cub_operator<minimum> {
  using type = ::cuda::minimum<>;
};
template <>
struct cub_operator<maximum> {
  using type = ::cuda::maximum<>;
};
template <>
struct cub_operator<bit_or> {
  using type = ::cuda::std::bit_or<>;
};
#endif

// --- shuffles ------------------------------------------------------------------------------------

/// Passes every 32-bit word of `value` through `exchange`.
template <class T, class Exchange>
__device__ inline T exchange_words(T value, Exchange exchange) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int words = (sizeof(T) + 3) / 4;
  unsigned buffer[words] = {};
  __builtin_memcpy(buffer, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) {
    buffer[i] = exchange(buffer[i]);
  }
  __builtin_memcpy(&value, buffer, sizeof(T));
  return value;
}

template <class T>
__device__ inline T shuffle_xor(T value, int mask) {
  return exchange_words(value, [mask](unsigned w) { return __shfl_xor_sync(full_warp, w, mask); });
}
template <class T>
__device__ inline T shuffle_from(T value, int lane) {
  return exchange_words(value, [lane](unsigned w) { return __shfl_sync(full_warp, w, lane); });
}

// --- a warp --------------------------------------------------------------------------------------

/// Numbers in the order of T: larger bits for a larger value.
template <class T>
struct ordered_bits {
  using type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static constexpr type sign = type{1} << (8 * sizeof(type) - 1);

  [[nodiscard]] PLIMSOLL_HD static type encode(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      type bits;
      __builtin_memcpy(&bits, &value, sizeof(T));
      return (bits & sign) != 0 ? static_cast<type>(~bits) : static_cast<type>(bits | sign);
    } else {
      return std::is_signed_v<T> ? static_cast<type>(static_cast<type>(value) ^ sign)
                                 : static_cast<type>(value);
    }
  }
  [[nodiscard]] PLIMSOLL_HD static T value(type bits) {
    if constexpr (std::is_floating_point_v<T>) {
      bits = (bits & sign) != 0 ? static_cast<type>(bits ^ sign) : static_cast<type>(~bits);
      T result;
      __builtin_memcpy(&result, &bits, sizeof(T));
      return result;
    } else {
      return std::is_signed_v<T> ? static_cast<T>(bits ^ sign) : static_cast<T>(bits);
    }
  }
};

/// True for the types that hardware reduces in one or a few instructions.
template <class T>
inline constexpr bool is_word = std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// CUB takes five rounds of one shuffle per 32-bit word, and one more to pass on the result.

__device__ inline std::uint32_t warp_min_bits(std::uint32_t value) {
  return __reduce_min_sync(full_warp, value);
}
__device__ inline std::uint64_t warp_min_bits(std::uint64_t value) {
  auto const high = static_cast<std::uint32_t>(value >> 32);
  std::uint32_t const lowest_high = __reduce_min_sync(full_warp, high);
  std::uint32_t const low = high == lowest_high ? static_cast<std::uint32_t>(value) : ~0u;
  std::uint32_t const lowest_low = __reduce_min_sync(full_warp, low);
  return (static_cast<std::uint64_t>(lowest_high) << 32) | lowest_low;
}

__device__ inline std::uint32_t warp_max_bits(std::uint32_t value) {
  return __reduce_max_sync(full_warp, value);
}
__device__ inline std::uint64_t warp_max_bits(std::uint64_t value) {
  auto const high = static_cast<std::uint32_t>(value >> 32);
  std::uint32_t const highest_high = __reduce_max_sync(full_warp, high);
  std::uint32_t const low = high == highest_high ? static_cast<std::uint32_t>(value) : 0u;
  std::uint32_t const highest_low = __reduce_max_sync(full_warp, low);
  return (static_cast<std::uint64_t>(highest_high) << 32) | highest_low;
}

/// Sums modulo 2^64: 32 times 24 bits still fit into a word.
__device__ inline std::uint64_t warp_sum_bits(std::uint64_t value) {
  constexpr std::uint32_t part = (1u << 24) - 1;
  std::uint64_t const low = __reduce_add_sync(full_warp, static_cast<std::uint32_t>(value) & part);
  std::uint64_t const middle =
      __reduce_add_sync(full_warp, static_cast<std::uint32_t>(value >> 24) & part);
  std::uint64_t const high = __reduce_add_sync(full_warp, static_cast<std::uint32_t>(value >> 48));
  return low + (middle << 24) + (high << 48);
}

__device__ inline std::uint64_t warp_or_bits(std::uint64_t value) {
  std::uint32_t const low = __reduce_or_sync(full_warp, static_cast<std::uint32_t>(value));
  std::uint32_t const high = __reduce_or_sync(full_warp, static_cast<std::uint32_t>(value >> 32));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

/// Finds the first key, then the lowest index that has it, then the lane of that index.
template <class Key, class Compare>
__device__ inline extreme<Key> warp_extreme(extreme<Key> value) {
  using order = ordered_bits<Key>;
  using bits = typename order::type;
  constexpr bool rising = std::is_same_v<Compare, less>;
  bool const exists = value.index >= 0;
  // Both zeros are equal keys.
  Key const key = std::is_floating_point_v<Key> && value.key == 0 ? Key{0} : value.key;
  bits const mine = rising ? order::encode(key) : static_cast<bits>(~order::encode(key));
  bits const first = warp_min_bits(exists ? mine : static_cast<bits>(~bits{0}));
  bool const is_tied = exists && mine == first;
  auto const index = static_cast<std::uint64_t>(value.index);
  std::uint64_t const lowest_index = warp_min_bits(is_tied ? index : ~std::uint64_t{0});
  unsigned const owner = __ballot_sync(full_warp, is_tied && index == lowest_index);
  return owner == 0 ? value
                    : extreme<Key>{shuffle_from(value.key, __ffs(static_cast<int>(owner)) - 1),
                                   static_cast<index_t>(lowest_index)};
}
#endif

/// Reduces by CUB, whose result is in lane 0 only, and passes it on.
template <class T, class Op>
__device__ inline T warp_reduce_by_shuffles(T value, Op) {
  using collective = collectives::WarpReduce<T>;
  typename collective::TempStorage storage;  // empty: whole warps reduce by shuffles
  return shuffle_from(collective(storage).Reduce(value, typename cub_operator<Op>::type{}), 0);
}

/// Reduces the values of the lanes by an exact operation, and returns the result to every lane.
template <class T, class Op>
__device__ inline T warp_reduce(T value, Op op) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (is_word<T> && std::is_same_v<Op, minimum>) {
    return ordered_bits<T>::value(warp_min_bits(ordered_bits<T>::encode(value)));
  } else if constexpr (is_word<T> && std::is_same_v<Op, maximum>) {
    return ordered_bits<T>::value(warp_max_bits(ordered_bits<T>::encode(value)));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 8 && std::is_same_v<Op, plus>) {
    return static_cast<T>(warp_sum_bits(static_cast<std::uint64_t>(value)));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 4 && std::is_same_v<Op, plus>) {
    return static_cast<T>(__reduce_add_sync(full_warp, static_cast<std::uint32_t>(value)));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 4 && std::is_same_v<Op, bit_or>) {
    return static_cast<T>(__reduce_or_sync(full_warp, static_cast<std::uint32_t>(value)));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 8 && std::is_same_v<Op, bit_or>) {
    return static_cast<T>(warp_or_bits(static_cast<std::uint64_t>(value)));
  } else
#endif
  {
    return warp_reduce_by_shuffles(value, op);
  }
}
template <class Key, class Compare>
__device__ inline extreme<Key> warp_reduce(extreme<Key> value, pick<Compare> op) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (is_word<Key>) {
    return warp_extreme<Key, Compare>(value);
  } else
#endif
  {
    return warp_reduce_by_shuffles(value, op);
  }
}

/// Returns a set bit for each lane for which the condition holds.
__device__ inline unsigned warp_ballot(bool condition, [[maybe_unused]] int lane) {
#if defined(__CUDA_ARCH__)
  return __ballot_sync(full_warp, condition);
#else
  return warp_reduce(condition ? 1u << lane : 0u, bit_or{});
#endif
}
/// Returns the lowest lane for which the condition holds, or `warp_size`.
__device__ inline int warp_first(bool condition, [[maybe_unused]] int lane) {
#if defined(__CUDA_ARCH__)
  unsigned const holds = __ballot_sync(full_warp, condition);
  return holds == 0 ? warp_size : __ffs(static_cast<int>(holds)) - 1;
#else
  return warp_reduce(condition ? lane : warp_size, minimum{});
#endif
}

/// Returns the sum of the values of lower lanes; sets `total` to the sum over all lanes.
template <class T>
__device__ inline T warp_exclusive_scan(T value, T& total) {
  using collective = collectives::WarpScan<T>;
  typename collective::TempStorage storage;  // empty, as above
  T below{};
  collective(storage).ExclusiveSum(value, below, total);
  return below;
}

// --- a block -------------------------------------------------------------------------------------

/// Raw shared memory for the collectives of a block. The kernel owns it and all call sites share
/// it; `__shared__` in function templates would take memory for every instantiation.
template <int Threads>
struct block_exchange {
  static constexpr std::size_t reduce_bytes = Threads / warp_size * std::size_t{16};
  static constexpr std::size_t scan_bytes =
      sizeof(typename collectives::BlockScan<std::int64_t, Threads,
                                             collectives::BLOCK_SCAN_WARP_SCANS>::TempStorage);

  alignas(16) std::byte storage[reduce_bytes < scan_bytes ? scan_bytes : reduce_bytes];
  alignas(16) std::byte result[16];  ///< value that one thread passes to all

  template <class TempStorage>
  [[nodiscard]] __device__ TempStorage& as() {
    static_assert(sizeof(TempStorage) <= sizeof(storage) && alignof(TempStorage) <= 16);
    return *reinterpret_cast<TempStorage*>(storage);
  }
  template <class T>
  [[nodiscard]] __device__ T& result_as() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && alignof(T) <= 16);
    return *reinterpret_cast<T*>(result);
  }
};

/// Reduces the values of the threads by an exact operation, and returns the result to every thread.
/// Each warp reduces its values, and then each thread those of the warps: CUB would let one warp do
/// the latter, which takes a barrier more.
template <int Threads, class T, class Op>
__device__ inline T block_reduce(T value, Op op, int thread, block_exchange<Threads>& exchange) {
  constexpr int warps = Threads / warp_size;
  auto& of_warps = exchange.template as<T[warps]>();
  value = warp_reduce(value, op);
  if (thread % warp_size == 0) {
    of_warps[thread / warp_size] = value;
  }
  __syncthreads();  // every warp has its result
  value = of_warps[0];
#pragma unroll
  for (int i = 1; i < warps; ++i) {
    value = op(value, of_warps[i]);
  }
  return value;
}

/// Returns the sum of the values of lower threads; sets `total` to the sum over all threads.
template <int Threads, class T>
__device__ inline T block_exclusive_scan(T value, T& total, block_exchange<Threads>& exchange) {
  using collective = collectives::BlockScan<T, Threads, collectives::BLOCK_SCAN_WARP_SCANS>;
  auto& storage = exchange.template as<typename collective::TempStorage>();
  T below{};
  collective(storage).ExclusiveSum(value, below, total);
  return below;
}

// --- sorting -------------------------------------------------------------------------------------

/// Sorts the keys of one thread by Batcher's odd-even merge sort, whose comparisons do not depend
/// on the keys. Recursive, so that all indices are constants and the keys stay in registers.
template <class Compare, int Run = 1, int Step = 1, class Key, int Each>
__device__ inline void sort_in_registers(Key (&keys)[Each]) {
#pragma unroll
  for (int i = Step % Run; i < Each - Step; ++i) {
    bool const is_compared =
        (i - Step % Run) / Step % 2 == 0 && i / (2 * Run) == (i + Step) / (2 * Run);
    if (is_compared) {
      Key const first = keys[i];
      Key const second = keys[i + Step];
      bool const is_sorted = Compare{}(first, second);
      keys[i] = is_sorted ? first : second;
      keys[i + Step] = is_sorted ? second : first;
    }
  }
  if constexpr (Step > 1) {
    sort_in_registers<Compare, Run, Step / 2>(keys);
  } else if constexpr (2 * Run < Each) {
    sort_in_registers<Compare, 2 * Run, 2 * Run>(keys);
  }
}

/// Sorts the keys of all lanes in ascending order, lane by lane. A bitonic sort whose elements are
/// the keys of a lane: CUB merges in memory, where every key waits for the one before.
template <class Key, int Each>
__device__ inline void warp_sort(Key (&keys)[Each], int lane) {
  auto const exchange = [&](int partner, bool reverses, bool keeps_lower) {
    Key others[Each];
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      others[i] = shuffle_xor(reverses ? keys[Each - 1 - i] : keys[i], partner);
    }
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      keys[i] = (others[i] < keys[i]) == keeps_lower ? others[i] : keys[i];
    }
  };
#pragma unroll 1
  for (int run = 1;; run *= 2) {
    sort_in_registers<less>(keys);
    if (run == warp_size) {
      break;
    }
    // Runs of `run` lanes are sorted; two become one.
    exchange(2 * run - 1, true, (lane & run) == 0);
#pragma unroll 1
    for (int width = run / 2; width > 0; width /= 2) {
      exchange(width, false, (lane & width) == 0);
    }
  }
}

/// The sort of one tile, and the barrier of its team.
template <class DeviceTeam, class Key>
struct tile_sort;

template <class Key>
struct tile_sort<warp, Key> {
  static constexpr int threads = warp_size;
  static constexpr int keys_each = static_cast<int>(sort_tile<warp>) / threads;

  __device__ static void barrier() { __syncwarp(); }
  __device__ static void sort(Key (&keys)[keys_each], std::byte*, int lane) {
    barrier();  // all keys of the tile are read
    warp_sort(keys, lane);
  }
};

template <int Threads, class Key>
struct tile_sort<block<Threads>, Key> {
  static constexpr int threads = Threads;
  static constexpr int keys_each = static_cast<int>(sort_tile<block<Threads>>) / threads;

  __device__ static void barrier() { __syncthreads(); }
  __device__ static void sort(Key (&keys)[keys_each], std::byte* storage, int) {
    using collective = collectives::BlockMergeSort<Key, Threads, keys_each>;
    using temp_storage = typename collective::TempStorage;
    static_assert(index_t{sizeof(temp_storage)} <= sort_bytes<block<Threads>, Key>(1) &&
                  alignof(temp_storage) <= 16);
    collective(*reinterpret_cast<temp_storage*>(storage)).Sort(keys, less{});
  }
};

/// Sorts unique keys in ascending order. `storage` has `sort_bytes<DeviceTeam, Key>(n)` bytes, for
/// the sort of one tile, or for a second array of keys. Inside a kernel, CUB sorts at most one
/// tile; the merge of sorted tiles is ours. Merged, the index of a key is its index in its own run
/// plus the number of smaller keys in the other run.
template <class DeviceTeam, class Key>
__device__ void team_sort(Key* keys, index_t n, std::byte* storage, int thread) {
  using tile = tile_sort<DeviceTeam, Key>;
  constexpr index_t size = sort_tile<DeviceTeam>;
  constexpr Key last = static_cast<Key>(~Key{0});
#pragma unroll 1
  for (index_t first = 0; first < n; first += size) {
    // CUB begins with a barrier of its own today, which its interface does not promise.
    tile::barrier();  // the caller, or the sort of the previous tile, may still use the storage
    auto const valid = static_cast<int>(minimum{}(size, n - first));
    Key mine[tile::keys_each];
#pragma unroll
    for (int i = 0; i < tile::keys_each; ++i) {
      int const position = i * tile::threads + thread;  // coalesced; the order is free
      mine[i] = position < valid ? keys[first + position] : last;
    }
    tile::sort(mine, storage, thread);
#pragma unroll
    for (int i = 0; i < tile::keys_each; ++i) {
      int const position = thread * tile::keys_each + i;
      if (position < valid) {
        keys[first + position] = mine[i];
      }
    }
  }
  tile::barrier();
  Key* from = keys;
  Key* to = reinterpret_cast<Key*>(storage);
#pragma unroll 1
  for (index_t run = size; run < n; run *= 2) {
#pragma unroll 1
    for (index_t i = thread; i < n; i += tile::threads) {
      index_t const own = i / run * run;
      index_t const other = i / run % 2 == 0 ? own + run : own - run;
      index_t low = minimum{}(other, n);
#pragma unroll 1
      for (index_t high = minimum{}(other + run, n); low < high;) {
        index_t const middle = low + (high - low) / 2;
        bool const is_smaller = from[middle] < from[i];
        low = is_smaller ? middle + 1 : low;
        high = is_smaller ? high : middle;
      }
      to[minimum{}(own, other) + (i - own) + (low - minimum{}(other, n))] = from[i];
    }
    tile::barrier();
    Key* const sorted = to;
    to = from;
    from = sorted;
  }
  if (from != keys) {
#pragma unroll 1
    for (index_t i = thread; i < n; i += tile::threads) {
      keys[i] = from[i];
    }
    tile::barrier();
  }
}

// --- ranking -------------------------------------------------------------------------------------

/// Sets ranks[i] to the number of items before i in the bin of i, and, unless `counts` is null,
/// counts[b] to the number of items in bin b; for at most `most_bins` bins and n at most
/// `match_tile`. `storage` has `match_bytes<block<Threads>>(bins)` bytes. A warp finds equal bins
/// among its items by ballots. CUB's ranking of a block would also order the bins, which takes ten
/// barriers.
template <int Threads, class F>
__device__ inline void block_match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks,
                                         std::int32_t* counts, std::byte* storage, int thread) {
  constexpr int warps = Threads / warp_size;
  constexpr int most_strips = static_cast<int>(match_tile) / Threads;
  int const warp = thread / warp_size;
  int const lane = thread % warp_size;
  auto const items = static_cast<int>(n);
  auto const width = static_cast<int>(bins);
  // A warp has consecutive items, in strips of 32.
  int const strips = (items + Threads - 1) / Threads;
  int const own = warp * (strips * warp_size) + lane;
  auto* const of_warps = reinterpret_cast<std::int32_t*>(storage);  // [warps, bins]
#pragma unroll 1
  for (int i = thread; i < warps * width; i += Threads) {
    of_warps[i] = 0;
  }
  __syncthreads();  // counts are zero, and the caller's writes are seen
  std::int32_t* const of_warp = of_warps + warp * width;
  int bin[most_strips];
  int rank[most_strips];
#pragma unroll
  for (int k = 0; k < most_strips; ++k) {
    int const i = own + k * warp_size;
    bool const is_item = k < strips && i < items;
    bin[k] = is_item ? static_cast<int>(bin_of(i)) : -1;
    rank[k] = 0;
    if (k < strips) {
      unsigned peers = warp_ballot(is_item, lane);
#pragma unroll 1
      for (int bit = 1; bit < width; bit *= 2) {
        bool const is_set = (bin[k] & bit) != 0;
        unsigned const set = warp_ballot(is_set, lane);
        peers &= is_set ? set : ~set;
      }
      if (is_item) {
        int const earlier = bit_count(peers & ((1u << lane) - 1));
        rank[k] = of_warp[bin[k]] + earlier;
      }
      __syncwarp();
      if (is_item && (peers >> lane) == 1) {
        of_warp[bin[k]] = rank[k] + 1;  // the last of its peers
      }
      __syncwarp();
    }
  }
  __syncthreads();  // every warp has counted its items
#pragma unroll
  for (int k = 0; k < most_strips; ++k) {
    if (bin[k] >= 0) {
#pragma unroll
      for (int w = 0; w < warps - 1; ++w) {
        rank[k] += w < warp ? of_warps[w * width + bin[k]] : 0;
      }
      ranks[own + k * warp_size] = rank[k];
    }
  }
#pragma unroll 1
  for (int b = thread; counts != nullptr && b < width; b += Threads) {
    int all = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      all += of_warps[w * width + b];
    }
    counts[b] = all;
  }
  __syncthreads();  // every rank is written
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The team concept: the operations through which a body uses the threads that run it.
///
/// A body solves one problem. It never sees a thread: it calls its team. Every call is a barrier
/// with memory visibility on entry and on exit, except `store`, the calls of a queue, and `find`
/// over an empty range. The control flow around calls depends only on uniform values (parameters,
/// results of team calls, memory written before the previous call). The functions passed to a team
/// run in any order, write only what index i owns, and never call the team; n is below 2^31.
///
///     for_each(n, f)                  calls f(i) for every i in [0, n)
///     single(f)                       calls f() once
///     broadcast(f)                    calls f() once; returns its trivially copyable value to all
///     store(to, value)                *to = value without a barrier, visible at the next call
///     reduce(n, f, op, identity)      reduces f(i); op must be exact: no floating-point sum
///     sum min max any count           shorthands for reduce
///     sum_ordered(n, f)               sums floating-point f(i): the same bits in every team
///     argmin argmax(n, key)           return {key, index}; lowest index of a tie; -1 if n = 0
///     find(from, n, f)                returns the first i in [from, n) with f(i), else n; may
///                                     evaluate f at later indices too
///     exclusive_scan(n, f, out)       scans integers f(i) into out; returns the total
///     histogram(n, f, counts, bins)   counts[b] = number of i with f(i) = b; ignores f(i) < 0
///     sort(keys, n, storage)          sorts unique keys ascending; storage: sort_bytes(n)
///     match_ranks(n, f, bins, ranks, counts, storage)
///                                     ranks[i] = number of j < i with f(j) = f(i), for f(i) in
///                                     [0, bins); n at most match_tile; storage: match_bytes(bins);
///                                     counts[b] = number of i with f(i) = b, unless null
///     largest(n, k, f, out)           only warps: the k largest of up to most_largest scores f(i),
///                                     or keys of scores, with their indices (with_index), in
///                                     descending order
///     few_largest(n, k, f, out)       the same of up to most_few_largest in fewer steps, or false:
///                                     k is above 8 (n > 256: 16), or too many scores are equal or
///                                     in the same lanes; out has few_largest_room elements
///     queue(keys, n)                  min-queue of unique keys: empty top replace_top update_top
///                                     pop
///
/// `serial_team` runs a body on one host thread, `warp_team` and `block_team` on a GPU.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Tag that a body names as its `device_team`: one problem per warp, several warps per block.
struct warp {};
/// Tag for one problem per block of `Threads` threads.
template <int Threads>
struct block {
  static_assert(Threads == 128 || Threads == 256 || Threads == 512);
};

/// Elements of `out` that `few_largest` uses, one per lane of a warp.
inline constexpr index_t few_largest_room = 32;

/// Number of keys that a device team sorts in one collective. Longer arrays are sorted tile by
/// tile, and the tiles are merged.
template <class DeviceTeam>
inline constexpr index_t sort_tile = 320;  // a warp: the slots of DeepSeek-V3, ten keys per lane
template <int Threads>
inline constexpr index_t sort_tile<block<Threads>> = index_t{4} * Threads;

/// Returns the bytes of scratch that `sort` needs for up to `n` keys in a team of kind
/// `DeviceTeam`.
template <class DeviceTeam, class Key>
[[nodiscard]] PLIMSOLL_HD constexpr index_t sort_bytes(index_t n) {
  index_t const tile = sort_tile<DeviceTeam> + 1;  // CUB's merge sort stores one extra key
  return (n < tile ? tile : n) * index_t{sizeof(Key)};
}

/// Returns the larger `sort_bytes` of a warp and of a block of 128 threads, for bodies that run in
/// either.
template <class Key>
[[nodiscard]] PLIMSOLL_HD constexpr index_t most_sort_bytes(index_t n) {
  index_t const of_warp = sort_bytes<warp, Key>(n);
  index_t const of_block = sort_bytes<block<128>, Key>(n);
  return of_warp < of_block ? of_block : of_warp;
}

/// Most items of a call of `match_ranks`.
inline constexpr int match_tile_bits = 9;
inline constexpr index_t match_tile = index_t{1} << match_tile_bits;
/// Most bins of which a block ranks the items without a sort.
inline constexpr index_t most_bins = 512;

/// Bytes of storage of a ranking by a sort: its keys and the storage of the sort.
template <class DeviceTeam>
inline constexpr index_t sorted_ranks_bytes =
    match_tile * index_t{sizeof(std::uint64_t)} + sort_bytes<DeviceTeam, std::uint64_t>(match_tile);

/// Bytes of scratch that `match_ranks` needs in a team of kind `DeviceTeam`.
template <class DeviceTeam>
struct match_storage {
  [[nodiscard]] PLIMSOLL_HD static constexpr index_t bytes(index_t) {
    return sorted_ranks_bytes<DeviceTeam>;
  }
};
template <int Threads>
struct match_storage<block<Threads>> {
  [[nodiscard]] PLIMSOLL_HD static constexpr index_t bytes(index_t bins) {
    // A count for each warp and bin.
    return bins <= most_bins ? Threads / 32 * bins * index_t{sizeof(std::int32_t)}
                             : sorted_ranks_bytes<block<Threads>>;
  }
};
template <class DeviceTeam>
[[nodiscard]] PLIMSOLL_HD constexpr index_t match_bytes(index_t bins) {
  return match_storage<DeviceTeam>::bytes(bins);
}

/// True for a body that streams through tokens or loads and therefore declares `is_streaming`: the
/// compiler may unroll its team loops, so that memory accesses overlap. The loops of planning
/// bodies are not unrolled: their kernels are large already, and their time goes into barriers.
template <class Body>
inline constexpr bool is_streaming = requires { requires Body::is_streaming; };

struct plus {
  template <class T>
  PLIMSOLL_HD T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct minimum {
  template <class T>
  PLIMSOLL_HD T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct maximum {
  template <class T>
  PLIMSOLL_HD T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct bit_or {
  template <class T>
  PLIMSOLL_HD T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

/// A key and its index; index -1 means none.
template <class Key>
struct extreme {
  Key key;
  index_t index;
};
/// Returns the operand whose key comes first under `Compare`; of equal keys, the one with the lower
/// index.
template <class Compare>
struct pick {
  template <class Key>
  PLIMSOLL_HD extreme<Key> operator()(extreme<Key> a, extreme<Key> b) const {
    if (a.index < 0 || b.index < 0) {
      return a.index < 0 ? b : a;
    }
    if (Compare{}(a.key, b.key) || Compare{}(b.key, a.key)) {
      return Compare{}(a.key, b.key) ? a : b;
    }
    return a.index < b.index ? a : b;
  }
};
struct less {
  template <class T>
  PLIMSOLL_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct greater {
  template <class T>
  PLIMSOLL_HD bool operator()(T a, T b) const {
    return b < a;
  }
};

/// True for operations whose result does not depend on the order of evaluation. For floating-point
/// values these are minimum and maximum, up to the sign of a zero and without NaN.
template <class Op, class T>
inline constexpr bool is_exact = false;
template <class T>
inline constexpr bool is_exact<plus, T> = std::is_integral_v<T>;
template <class T>
inline constexpr bool is_exact<bit_or, T> = std::is_integral_v<T>;
template <class T>
inline constexpr bool is_exact<minimum, T> = true;
template <class T>
inline constexpr bool is_exact<maximum, T> = true;
template <class Compare, class Key>
inline constexpr bool is_exact<pick<Compare>, extreme<Key>> = true;

// nvcc treats the functions of std::numeric_limits as host functions; a constant works everywhere.
template <class T>
inline constexpr T highest = std::numeric_limits<T>::max();
template <class T>
inline constexpr T lowest = std::numeric_limits<T>::lowest();

template <class F>
using result_at = std::remove_cvref_t<std::invoke_result_t<F&, index_t>>;

/// The key of no element of a queue, in place of which `update_top` pops.
inline constexpr std::uint64_t no_key = ~std::uint64_t{0};

/// Binary min-heap over `keys`. Each operation is one `single` of the team, which costs a serial
/// team nothing.
template <class Team, class Key>
class heap_queue {
 public:
  PLIMSOLL_HD heap_queue(Team& team, Key* keys, index_t n) : team_(team), keys_(keys), size_(n) {
    team_.single([keys, n] {
      for (index_t i = n / 2; i-- > 0;) {
        sift_down(keys, n, i, keys[i]);
      }
    });
  }
  [[nodiscard]] PLIMSOLL_HD bool empty() const { return size_ == 0; }
  [[nodiscard]] PLIMSOLL_HD Key top() const { return keys_[0]; }
  PLIMSOLL_HD void replace_top(Key key) {
    team_.single([keys = keys_, n = size_, key] { sift_down(keys, n, 0, key); });
  }
  /// Replaces the top by f(top), which one thread calls, or pops if that is `no_key`. What f writes
  /// for a key may be read for the keys that take its place, and by all after the next barrier.
  template <class F>
  PLIMSOLL_HD void update_top(F f) {
    Key const key = team_.broadcast([f, top = keys_[0]] { return f(top); });
    if (key == static_cast<Key>(no_key)) {
      pop();
    } else {
      replace_top(key);
    }
  }
  PLIMSOLL_HD void pop() {
    --size_;
    team_.single([keys = keys_, n = size_] { sift_down(keys, n, 0, keys[n]); });
  }

 private:
  PLIMSOLL_HD static void sift_down(Key* keys, index_t n, index_t hole, Key key) {
    for (;;) {
      index_t child = 2 * hole + 1;
      if (child >= n) {
        break;
      }
      child += static_cast<index_t>(child + 1 < n && keys[child + 1] < keys[child]);
      if (!(keys[child] < key)) {
        break;
      }
      keys[hole] = keys[child];
      hole = child;
    }
    keys[hole] = key;
  }

  Team& team_;
  Key* keys_;
  index_t size_;
};

/// Returns the last index at which a non-decreasing array, such as a scan's, is at most x; 0 if
/// there is none.
PLIMSOLL_HD inline index_t last_not_above(std::int64_t const* rising, index_t n, std::int64_t x) {
  index_t low = 0;
  for (index_t size = n; size > 1;) {
    index_t const half = size / 2;
    low += rising[low + half] <= x ? half : 0;
    size -= half;
  }
  return low;
}

/// Adds 1 atomically. Integer sums do not depend on the order of additions.
PLIMSOLL_HD inline void increment(std::int32_t* count) {
#if defined(__CUDA_ARCH__)
  atomicAdd(count, 1);
#else
  __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
#endif
}
/// Adds 1 atomically and returns the earlier value: a place in a list, in any order.
PLIMSOLL_HD inline std::int32_t next_place(std::int32_t* count) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(count, 1);
#else
  return __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
#endif
}
/// Adds `more` atomically.
PLIMSOLL_HD inline void add_to(std::int32_t* sum, std::int32_t more) {
#if defined(__CUDA_ARCH__)
  atomicAdd(sum, more);
#else
  __atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
#endif
}
/// Adds `more` atomically, also among teams.
PLIMSOLL_HD inline void add_to(std::int64_t* sum, std::int64_t more) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(more));
#else
  __atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
#endif
}

/// Base class that builds the other team calls from a team's own for_each, single and reduce.
template <class Team>
class team_operations {
 public:
  template <class F>
  PLIMSOLL_HD auto sum(index_t n, F f) {
    using T = result_at<F>;
    return self().reduce(n, f, plus{}, T{});
  }
  template <class F>
  PLIMSOLL_HD auto min(index_t n, F f) {
    using T = result_at<F>;
    return self().reduce(n, f, minimum{}, T{highest<T>});
  }
  template <class F>
  PLIMSOLL_HD auto max(index_t n, F f) {
    using T = result_at<F>;
    return self().reduce(n, f, maximum{}, T{lowest<T>});
  }
  template <class F>
  PLIMSOLL_HD bool any(index_t n, F f) {
    return self().reduce(
               n, [&](index_t i) { return static_cast<int>(static_cast<bool>(f(i))); }, bit_or{},
               0) != 0;
  }
  template <class F>
  PLIMSOLL_HD index_t count(index_t n, F f) {
    return self().reduce(
        n, [&](index_t i) { return static_cast<index_t>(static_cast<bool>(f(i))); }, plus{},
        index_t{0});
  }
  template <class F>
  PLIMSOLL_HD auto argmin(index_t n, F key) {
    return extreme_of<less>(n, key);
  }
  template <class F>
  PLIMSOLL_HD auto argmax(index_t n, F key) {
    return extreme_of<greater>(n, key);
  }

  /// Searches one stretch at a time, since the first match is often close to `from`.
  template <class F>
  PLIMSOLL_HD index_t find(index_t from, index_t n, F f) {
    constexpr index_t stretch = 64;
    for (index_t first = from; first < n; first += stretch) {
      index_t const size = minimum{}(stretch, n - first);
      index_t const found = self().min(size, [&](index_t i) { return f(first + i) ? i : size; });
      if (found < size) {
        return first + found;
      }
    }
    return n;
  }

  template <class F>
  PLIMSOLL_HD void histogram(index_t n, F bin_of, std::int32_t* counts, index_t bins) {
    self().for_each(bins, [counts](index_t b) { counts[b] = 0; });
    self().for_each(n, [counts, bin_of](index_t i) {
      if (auto const bin = bin_of(i); bin >= 0) {
        increment(counts + bin);
      }
    });
  }

  /// Makes a min-queue over unique keys, which uses `keys` as its memory.
  template <class Key>
  PLIMSOLL_HD auto queue(Key* keys, index_t n) {
    return heap_queue<Team, Key>(self(), keys, n);
  }

 protected:
  PLIMSOLL_HD Team& self() { return static_cast<Team&>(*this); }

  /// `match_ranks` for any number of bins: sorts items by bin, then by index, so that an item's
  /// rank is its distance from the first of its bin. `storage` has `sorted_ranks_bytes`.
  template <class F>
  PLIMSOLL_HD void sorted_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks,
                                std::int32_t* counts, std::byte* storage) {
    if (counts != nullptr) {
      self().histogram(n, bin_of, counts, bins);
    }
    auto* const keys = reinterpret_cast<std::uint64_t*>(storage);
    self().for_each(n, [=](index_t i) {
      keys[i] =
          static_cast<std::uint64_t>(bin_of(i)) << match_tile_bits | static_cast<std::uint64_t>(i);
    });
    self().sort(keys, n, storage + match_tile * index_t{sizeof(std::uint64_t)});
    self().for_each(n, [=](index_t position) {
      std::uint64_t const item = keys[position] % match_tile;
      std::uint64_t const bin = keys[position] - item;
      index_t first = 0;
      for (index_t last = position; first < last;) {
        index_t const middle = first + (last - first) / 2;
        bool const is_lower = keys[middle] < bin;
        first = is_lower ? middle + 1 : first;
        last = is_lower ? last : middle;
      }
      ranks[item] = static_cast<std::int32_t>(position - first);
    });
  }

 private:
  template <class Compare, class F>
  PLIMSOLL_HD auto extreme_of(index_t n, F key) {
    using K = result_at<F>;
    return self().reduce(
        n,
        [&](index_t i) {
          return extreme<K>{key(i), i};
        },
        pick<Compare>{}, extreme<K>{K{}, -1});
  }
};

}}}  // namespace plimsoll::detail

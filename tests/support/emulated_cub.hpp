// SPDX-License-Identifier: Apache-2.0
// CUB's collectives for emulated lanes, as device/collectives.cuh uses them. Each stores its input,
// waits once, computes serially, and then overwrites its storage. Values that CUB leaves undefined
// are poison here, and a caller that reuses the storage without a barrier destroys values that
// other threads have not read yet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace plimsoll_test::emulated {

/// Returns a value that no test expects as a result.
template <class T>
T poison() {
  T value;
  std::memset(static_cast<void*>(&value), 0xa5, sizeof(T));
  return value;
}

namespace cub {

template <class T>
class WarpReduce {
 public:
  struct TempStorage {};
  explicit WarpReduce(TempStorage&) {}
  template <class Op>
  T Reduce(T value, Op op) {
    lane_values<T> const all(value);
    value = all.of(0);
    for (int lane = 1; lane < 32; ++lane) {
      value = op(value, all.of(lane));
    }
    return here().lane == 0 ? value : poison<T>();
  }
};

template <class T>
class WarpScan {
 public:
  struct TempStorage {};
  explicit WarpScan(TempStorage&) {}
  void ExclusiveSum(T value, T& below, T& total) {
    lane_values<T> const all(value);
    total = T{};
    for (int lane = 0; lane < 32; ++lane) {
      if (lane == here().lane) {
        below = total;
      }
      total = static_cast<T>(total + all.of(lane));
    }
  }
};

enum BlockScanAlgorithm { BLOCK_SCAN_WARP_SCANS };

template <class T, int Threads, BlockScanAlgorithm>
class BlockScan {
 public:
  struct TempStorage {
    T of[Threads];
  };
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}
  void ExclusiveSum(T value, T& below, T& total) {
    storage_.of[here().thread] = value;
    block_barrier();
    total = T{};
    for (int thread = 0; thread < Threads; ++thread) {
      if (thread == here().thread) {
        below = total;
      }
      total = static_cast<T>(total + storage_.of[thread]);
    }
  }

 private:
  TempStorage& storage_;
};

/// Sorts `Threads * Items` keys. After the last barrier, threads still read their keys.
template <class Key, int Threads, int Items, void (*Barrier)(), int (*Thread)()>
class merge_sort {
 public:
  struct TempStorage {
    Key of[Threads * Items + 1];
  };
  explicit merge_sort(TempStorage& storage) : storage_(storage) {}
  template <class Less>
  void Sort(Key (&keys)[Items], Less less) {
    int const thread = Thread();
    std::copy(keys, keys + Items, storage_.of + thread * Items);
    Barrier();
    if (thread == 0) {
      std::sort(storage_.of, storage_.of + Threads * Items, less);
      std::reverse(storage_.of, storage_.of + Threads * Items);
    }
    Barrier();
    // As in CUB, a thread reads keys where another thread writes the keys of its next sort.
    for (int i = 0; i < Items; ++i) {
      Key& from = storage_.of[(Threads - thread) * Items - 1 - i];
      keys[i] = from;
      from = poison<Key>();
    }
  }

 private:
  TempStorage& storage_;
};

template <class Key, int Threads, int Items>
using BlockMergeSort = merge_sort<Key, Threads, Items, block_barrier, thread_in_block>;

}  // namespace cub
}  // namespace plimsoll_test::emulated

namespace plimsoll::inline PLIMSOLL_ABI::detail {
namespace collectives = ::plimsoll_test::emulated::cub;
}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

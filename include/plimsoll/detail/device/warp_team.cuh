// SPDX-License-Identifier: Apache-2.0
/// @file
/// Team of one warp. Lanes exchange values by shuffles, and `__syncwarp` is the barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/score_order.hpp>
#include <plimsoll/detail/device/collectives.cuh>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Calls f(i) for i = first, first + step, ... below n. Counts in 32 bits, since a GPU takes two or
/// three instructions to add, compare or address by 64; n is below 2^31 (`team.hpp`).
template <bool Streaming, class F>
__device__ inline void strided(int first, index_t n, int step, F&& f) {
  auto const end = static_cast<unsigned>(n);
  if constexpr (Streaming) {
    for (auto i = static_cast<unsigned>(first); i < end; i += static_cast<unsigned>(step)) {
      f(index_t{i});
    }
  } else {
#pragma unroll 1
    for (auto i = static_cast<unsigned>(first); i < end; i += static_cast<unsigned>(step)) {
      f(index_t{i});
    }
  }
}

/// Computes `sum_ordered`: each lane is one of the 32 accumulators.
template <bool Streaming, class F>
__device__ inline auto warp_sum_ordered(index_t n, F f, int lane) {
  using T = result_at<F>;
  T partial = 0;
  strided<Streaming>(lane, n, warp_size, [&](index_t i) { partial = add(partial, f(i)); });
#pragma unroll
  for (int width = warp_size / 2; width > 0; width /= 2) {
    // Addition commutes, so both partners of a pair hold the same sum.
    partial = add(partial, shuffle_xor(partial, width));
  }
  return partial;
}

/// `warp_reduce` as a function: planners' kernels have tens of reductions of 64 bits and more, and
/// a copy for each would be a seventh of their code.
template <class T, class Op>
PLIMSOLL_NOINLINE __device__ T call_warp_reduce(T value, Op op) {
  return warp_reduce(value, op);
}

/// One thread's part of a queue: thread j owns keys j, j + Threads, ... It keeps the two smallest
/// of them in registers, in order, and the others in `keys`. One key of each of 64 ranks takes no
/// memory. CUB has no queue.
template <int Threads, class Key>
class owned_keys {
 public:
  __device__ owned_keys(Key* keys, index_t n, int thread)
      : keys_(keys), end_(static_cast<int>(n)), others_(thread + 2 * Threads) {
    Key const first = thread < end_ ? keys[thread] : none;
    Key const second = thread + Threads < end_ ? keys[thread + Threads] : none;
    smallest_ = minimum{}(first, second);
    second_ = maximum{}(first, second);
#pragma unroll 1
    for (int i = others_; i < end_; i += Threads) {
      if (Key const key = keys[i]; key < second_) {
        keys[i] = second_;
        second_ = maximum{}(key, smallest_);
        smallest_ = minimum{}(key, smallest_);
      }
    }
  }
  [[nodiscard]] __device__ Key smallest() const { return smallest_; }
  /// Replaces `old` by f(old) if this thread owns it. Keys are unique, so at most one thread does.
  template <class F>
  __device__ void update(Key old, F f) {
    if (smallest_ == old) {
      Key const key = f(old);
      smallest_ = minimum{}(key, second_);
      second_ = maximum{}(key, second_);
      if (end_ > 2 * Threads && second_ == key) {
        exchange_second();
      }
    }
  }

 private:
  static constexpr Key none = static_cast<Key>(no_key);

  /// Exchanges the second smallest key for the smallest of the others, if that is smaller.
  __device__ void exchange_second() {
    Key const key = second_;
    int place = -1;
#pragma unroll 1
    for (int i = others_; i < end_; i += Threads) {
      Key const other = keys_[i];
      place = other < second_ ? i : place;
      second_ = minimum{}(other, second_);
    }
    if (place >= 0) {
      keys_[place] = key;
    }
  }

  Key* keys_;
  int end_;
  int others_;  ///< the first of the keys that are not in registers
  Key smallest_;
  Key second_;
};

/// Min-queue: `top` takes one warp reduction, and a replacement at most a pass over the keys of one
/// lane.
template <class Key>
class warp_queue {
 public:
  __device__ warp_queue(Key* keys, index_t n, int lane)
      : own_(keys, n, lane), top_(warp_reduce(own_.smallest(), minimum{})) {}
  [[nodiscard]] __device__ bool empty() const { return top_ == static_cast<Key>(no_key); }
  [[nodiscard]] __device__ Key top() const { return top_; }
  template <class F>
  __device__ void update_top(F f) {
    own_.update(top_, f);
    top_ = warp_reduce(own_.smallest(), minimum{});
  }
  __device__ void replace_top(Key key) {
    update_top([key](Key) { return key; });
  }
  __device__ void pop() { replace_top(static_cast<Key>(no_key)); }

 private:
  owned_keys<warp_size, Key> own_;
  Key top_;
};

/// Sorts up to 64 unique keys: the place of a key is the number of smaller keys. CUB moves a whole
/// tile of keys, few or many.
template <class Key>
__device__ inline void sort_few(Key* keys, int n, int lane) {
  __syncwarp();
  Key const first = lane < n ? keys[lane] : Key{0};
  Key const second = lane + warp_size < n ? keys[lane + warp_size] : Key{0};
  auto const place_of = [=](Key key) {
    int place = 0;
#pragma unroll 4
    for (int i = 0; i < n; ++i) {
      place += static_cast<int>(keys[i] < key);
    }
    return place;
  };
  int const place_of_first = place_of(first);
  int const place_of_second = n <= warp_size ? 0 : place_of(second);
  __syncwarp();
  if (lane < n) {
    keys[place_of_first] = first;
  }
  if (lane + warp_size < n) {
    keys[place_of_second] = second;
  }
  __syncwarp();
}

/// One lane's part of up to 32 * Each unique keys above 0, in registers and in descending order.
/// CUB's sorts move the keys of all lanes, and its sorts of one thread take a round per key.
template <int Each>
class held_keys {
 public:
  /// The i-th key of this lane is key_at(i), or 0 for none.
  template <class F>
  __device__ explicit held_keys(F key_at) {
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      keys_[i] = key_at(i);
    }
    sort_in_registers<greater>(keys_);
  }
  [[nodiscard]] __device__ std::uint64_t largest() const { return keys_[0]; }
  /// Removes the largest key if it is `top`.
  __device__ void remove(std::uint64_t top) {
    if (keys_[0] == top) {
#pragma unroll
      for (int i = 1; i < Each; ++i) {
        keys_[i - 1] = keys_[i];
      }
      keys_[Each - 1] = 0;
    }
  }

 private:
  std::uint64_t keys_[Each];
};

/// Returns the larger number; of a number and NaN, the number.
template <class T>
__device__ inline T larger_number(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return fmaxf(a, b);  // one instruction
  }
#endif
  return a < b || a != a ? b : a;
}

/// Team with one problem per warp.
template <bool Streaming = false>
class warp_team : public team_operations<warp_team<Streaming>> {
 public:
  static constexpr bool is_serial = false;

  __device__ explicit warp_team(int lane) : lane_(lane) {}

  template <class F>
  __device__ void for_each(index_t n, F f) {
    __syncwarp();
    strided<Streaming>(lane_, n, warp_size, f);
    __syncwarp();
  }

  template <class F>
  __device__ void single(F f) {
    __syncwarp();
    if (lane_ == 0) {
      f();
    }
    __syncwarp();
  }

  template <class F>
  __device__ auto broadcast(F f) {
    using T = std::remove_cvref_t<std::invoke_result_t<F&>>;
    __syncwarp();
    T value{};
    if (lane_ == 0) {
      value = f();
    }
    __syncwarp();  // shuffles do not order memory
    return shuffle_from(value, 0);
  }

  template <class T>
  __device__ void store(T* to, std::type_identity_t<T> value) {
    if (lane_ == 0) {
      *to = value;
    }
  }

  template <class F, class Op, class T>
  __device__ T reduce(index_t n, F f, Op op, T identity) {
    static_assert(is_exact<Op, T>, "use sum_ordered for floating sums");
    __syncwarp();
    T value = identity;
    strided<Streaming>(lane_, n, warp_size,
                       [&](index_t i) { value = op(value, static_cast<T>(f(i))); });
    __syncwarp();
    if constexpr (Streaming || sizeof(T) <= 4) {
      return warp_reduce(value, op);
    } else {
      return call_warp_reduce(value, op);
    }
  }

  template <class F>
  __device__ auto sum_ordered(index_t n, F f) {
    __syncwarp();
    auto const value = warp_sum_ordered<Streaming>(n, f, lane_);
    __syncwarp();
    return value;
  }

  template <class F>
  __device__ index_t find(index_t from, index_t n, F f) {
    __syncwarp();
#pragma unroll 1
    for (index_t first = from; first < n; first += warp_size) {
      index_t const i = first + lane_;
      int const found = warp_first(i < n && f(i), lane_);
      __syncwarp();
      if (found < warp_size) {
        return first + found;
      }
    }
    return n;
  }

  template <class F, class T>
  __device__ T exclusive_scan(index_t n, F f, T* out) {
    static_assert(std::is_integral_v<T>);
    __syncwarp();
    T before = 0;
#pragma unroll 1
    for (index_t first = 0; first < n; first += warp_size) {
      index_t const i = first + lane_;
      T const value = i < n ? static_cast<T>(f(i)) : T{0};
      T total = 0;
      T const below = warp_exclusive_scan(value, total);
      if (i < n) {
        out[i] = static_cast<T>(before + below);
      }
      before = static_cast<T>(before + total);
    }
    __syncwarp();
    return before;
  }

  template <class Key>
  __device__ void sort(Key* keys, index_t n, std::byte* storage) {
    if (n <= 2 * warp_size) {
      sort_few(keys, static_cast<int>(n), lane_);
    } else {
      team_sort<warp>(keys, n, storage, lane_);
    }
  }

  template <class F>
  __device__ void match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks,
                              std::int32_t* counts, std::byte* storage) {
    this->sorted_ranks(n, bin_of, bins, ranks, counts, storage);
  }

  template <class Key>
  __device__ auto queue(Key* keys, index_t n) {
    __syncwarp();
    return warp_queue<Key>(keys, n, lane_);
  }

  static constexpr index_t most_largest = 256;  ///< most scores of `largest`: eight for each lane
  static constexpr index_t most_few_largest = 512;  ///< of `few_largest`

  template <class F>
  __device__ void largest(index_t n, index_t k, F value_at, std::uint64_t* out) {
    __syncwarp();
    auto const most = static_cast<int>(n);
    if (most <= 128) {
      take_largest(held_keys<4>(keys_of(most, value_at, lane_)), k, out);
    } else {
      take_largest(held_keys<8>(keys_of(most, value_at, lane_)), k, out);
    }
    __syncwarp();
  }

  template <class F>
  __device__ bool few_largest(index_t n, index_t k, F value_at, std::uint64_t* out) {
    __syncwarp();
    auto const most = static_cast<int>(n);
    auto const count = static_cast<int>(k);
    bool const is_found = most <= 128   ? by_threshold<4, 8>(most, count, value_at, out)
                          : most <= 256 ? by_threshold<8, 8>(most, count, value_at, out)
                                        : by_threshold<16, 16>(most, count, value_at, out);
    __syncwarp();
    return is_found;
  }

 private:
  /// Returns a function whose i-th key is that of the value at lane + i * 32, or 0.
  template <class F>
  __device__ static auto keys_of(int n, F value_at, int lane) {
    return [=](int i) {
      int const number = lane + i * warp_size;
      return number < n ? with_index(key_of(value_at(number)), number) : std::uint64_t{0};
    };
  }

  /// Finds the k-th largest of the lanes' largest values: the k largest of all values reach it, and
  /// few others do. Each lane takes one of these and counts the larger ones. A lane has the values
  /// at lane, lane + 32, ... Returns false if k is above Most, if more than 32 values are left, or
  /// if fewer than k different numbers are the largest of a lane.
  template <int Each, int Most, class F>
  __device__ bool by_threshold(int n, int k, F value_at, std::uint64_t* out) {
    if (k > Most) {
      return false;
    }
    using value = result_at<F>;
    value values[Each];
    // One address, and offsets from it.
    if (n == Each * warp_size) {
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        values[i] = value_at(index_t{lane_} + i * warp_size);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        values[i] =
            lane_ < n - i * warp_size ? value_at(index_t{lane_} + i * warp_size) : no_score<value>;
      }
    }
    value largest = values[0];
#pragma unroll
    for (int i = 1; i < Each; ++i) {
      largest = larger_number(largest, values[i]);
    }
    std::uint32_t const threshold = largest_of_lanes<Most>(key_of(largest), k);
    if (threshold <= nan_key) {
      return false;
    }
    value least;
    if constexpr (std::is_floating_point_v<value>) {
      least = score_of(threshold);
    } else {
      least = threshold;
    }
    std::uint32_t own = 0;  // bit i is set if the i-th value reaches the threshold
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      own |= values[i] >= least ? 1u << i : 0u;
    }
    int count = 0;
    std::uint32_t const lower = (1u << lane_) - 1;
#pragma unroll 1
    for (std::uint32_t left = warp_ballot(own != 0, lane_); left != 0;
         left = warp_ballot(own != 0, lane_)) {
      int const place = count + bit_count(left & lower);
      if (own != 0 && place < warp_size) {
        out[place] = static_cast<std::uint64_t>(lane_ + lowest_bit(own) * warp_size);
      }
      own &= own - 1;
      count += bit_count(left);
    }
    if (count > warp_size) {
      return false;
    }
    __syncwarp();
    // If there are so few, two lanes share a value, and each counts half of the others.
    int const lanes = count <= warp_size / 2 ? warp_size / 2 : warp_size;
    int const own_place = lane_ & (lanes - 1);
    std::uint64_t mine = 0;
    if (own_place < count) {
      auto const number = static_cast<index_t>(out[own_place]);
      mine = with_index(key_of(value_at(number)), number);
    }
    __syncwarp();
    out[lane_] = mine;
    __syncwarp();
    auto const* const all =
        static_cast<std::uint64_t const*>(__builtin_assume_aligned(out, 2 * sizeof(mine)));
    int rank = 0;
#pragma unroll 1
    for (int first = lane_ == own_place ? 0 : 4; first < count; first += 4 * warp_size / lanes) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rank += static_cast<int>(all[first + i] > mine);
      }
    }
    __syncwarp();
    if (lanes < warp_size) {
      rank += shuffle_xor(rank, warp_size / 2);
    }
    if (lane_ == own_place && rank < k) {
      out[rank] = mine;
    }
    return true;
  }

  /// Returns the k-th largest of the different keys of the lanes, or 0; k is at most Most.
  template <int Most>
  __device__ static std::uint32_t largest_of_lanes(std::uint32_t key, int k) {
    std::uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < Most; ++i) {
      // Later rounds find the k-th key again.
      top = warp_reduce(key, maximum{});
      key = key == top && i + 1 < k ? 0 : key;
    }
    return top;
  }

  template <class Keys>
  __device__ void take_largest(Keys keys, index_t k, std::uint64_t* out) {
    std::uint64_t* const end = out + k;
#pragma unroll 1
    for (; out != end; ++out) {
      std::uint64_t const top = warp_reduce(keys.largest(), maximum{});
      keys.remove(top);
      store(out, top);
    }
  }

  int lane_;
};

}}}  // namespace plimsoll::detail

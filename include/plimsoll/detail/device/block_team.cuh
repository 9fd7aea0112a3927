// SPDX-License-Identifier: Apache-2.0
/// @file
/// Team of one block. Threads exchange values through one raw shared buffer of the kernel, and
/// `__syncthreads` is the barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/collectives.cuh>
#include <plimsoll/detail/device/warp_team.cuh>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// `block_reduce` as a function, for the same reason as `call_warp_reduce`.
template <int Threads, class T, class Op>
PLIMSOLL_NOINLINE __device__ T call_block_reduce(T value, Op op, int thread,
                                                 block_exchange<Threads>& exchange) {
  return block_reduce(value, op, thread, exchange);
}

/// Min-queue, like `warp_queue`: thread j owns keys j, j + Threads, ... and keeps the smallest of
/// them in a register.
template <int Threads, class Key>
class block_queue {
 public:
  __device__ block_queue(Key* keys, index_t n, int thread, block_exchange<Threads>& exchange)
      : own_(keys, n, thread), thread_(thread), exchange_(exchange) {
    find_top();
  }
  [[nodiscard]] __device__ bool empty() const { return top_ == static_cast<Key>(no_key); }
  [[nodiscard]] __device__ Key top() const { return top_; }
  template <class F>
  __device__ void update_top(F f) {
    own_.update(top_, f);
    find_top();
  }
  __device__ void replace_top(Key key) {
    update_top([key](Key) { return key; });
  }
  __device__ void pop() { replace_top(static_cast<Key>(no_key)); }

 private:
  __device__ void find_top() {
    __syncthreads();
    top_ = block_reduce(own_.smallest(), minimum{}, thread_, exchange_);
  }

  owned_keys<Threads, Key> own_;
  int thread_;
  block_exchange<Threads>& exchange_;
  Key top_ = static_cast<Key>(no_key);
};

/// Team with one problem per block. Every call begins with a barrier, so that the exchange buffer
/// can be reused.
template <int Threads, bool Streaming = false>
class block_team : public team_operations<block_team<Threads, Streaming>> {
 public:
  static constexpr bool is_serial = false;

  __device__ block_team(int thread, block_exchange<Threads>& exchange)
      : thread_(thread), exchange_(exchange) {}

  template <class F>
  __device__ void for_each(index_t n, F f) {
    __syncthreads();
    strided<Streaming>(thread_, n, Threads, f);
    __syncthreads();
  }

  template <class F>
  __device__ void single(F f) {
    __syncthreads();
    if (thread_ == 0) {
      f();
    }
    __syncthreads();
  }

  template <class F>
  __device__ auto broadcast(F f) {
    using T = std::remove_cvref_t<std::invoke_result_t<F&>>;
    T& result = exchange_.template result_as<T>();
    __syncthreads();
    if (thread_ == 0) {
      result = f();
    }
    return read_after_barrier(result);
  }

  template <class T>
  __device__ void store(T* to, std::type_identity_t<T> value) {
    if (thread_ == 0) {
      *to = value;
    }
  }

  template <class F, class Op, class T>
  __device__ T reduce(index_t n, F f, Op op, T identity) {
    static_assert(is_exact<Op, T>, "use sum_ordered for floating sums");
    __syncthreads();
    T value = identity;
    strided<Streaming>(thread_, n, Threads,
                       [&](index_t i) { value = op(value, static_cast<T>(f(i))); });
    if constexpr (!Streaming) {
      value = call_block_reduce(value, op, thread_, exchange_);
    } else {
      value = block_reduce(value, op, thread_, exchange_);
    }
    return value;
  }

  template <class F>
  __device__ auto sum_ordered(index_t n, F f) {
    using T = result_at<F>;
    T& result = exchange_.template result_as<T>();
    __syncthreads();
    if (thread_ < warp_size) {
      T const value = warp_sum_ordered<Streaming>(n, f, thread_);
      if (thread_ == 0) {
        result = value;
      }
    }
    return read_after_barrier(result);
  }

  template <class F, class T>
  __device__ T exclusive_scan(index_t n, F f, T* out) {
    static_assert(std::is_integral_v<T>);
    if constexpr (Streaming) {
      if (n > Threads) {
        return scan_each<4>(n, f, out);
      }
    }
    return scan_each<1>(n, f, out);
  }

  template <class Key>
  __device__ void sort(Key* keys, index_t n, std::byte* storage) {
    team_sort<block<Threads>>(keys, n, storage, thread_);
  }

  template <class F>
  __device__ void match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks,
                              std::int32_t* counts, std::byte* storage) {
    if (bins <= most_bins) {
      block_match_ranks<Threads>(n, bin_of, bins, ranks, counts, storage, thread_);
    } else {
      this->sorted_ranks(n, bin_of, bins, ranks, counts, storage);
    }
  }

  template <class Key>
  __device__ auto queue(Key* keys, index_t n) {
    __syncthreads();
    return block_queue<Threads, Key>(keys, n, thread_, exchange_);
  }

 private:
  /// Scans with `Each` values for each thread at a time.
  template <int Each, class F, class T>
  __device__ T scan_each(index_t n, F f, T* out) {
    T before = 0;
#pragma unroll 1
    for (index_t first = 0; first < n; first += Each * Threads) {
      __syncthreads();
      index_t const own = first + Each * thread_;
      T values[Each];
      T sum = 0;
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        values[i] = own + i < n ? static_cast<T>(f(own + i)) : T{0};
        sum = static_cast<T>(sum + values[i]);
      }
      T total = 0;
      T below = static_cast<T>(before + block_exclusive_scan(sum, total, exchange_));
#pragma unroll
      for (int i = 0; i < Each; ++i) {
        if (own + i < n) {
          out[own + i] = below;
        }
        below = static_cast<T>(below + values[i]);
      }
      before = static_cast<T>(before + total);
    }
    __syncthreads();
    return before;
  }

  template <class T>
  [[nodiscard]] __device__ static T read_after_barrier(T const& result) {
    __syncthreads();
    return result;
  }

  int thread_;
  block_exchange<Threads>& exchange_;
};

}}}  // namespace plimsoll::detail

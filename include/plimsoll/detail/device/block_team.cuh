// SPDX-License-Identifier: Apache-2.0
/// @file
/// A team of one block. Every call exchanges values through one raw shared buffer that the kernel
/// owns, so that call sites do not add up in shared memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/warp_team.cuh>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// Room for one value of up to 16 bytes per warp.
template <int Threads>
struct block_exchange {
  static constexpr int warps = Threads / warp_size;
  alignas(16) std::byte bytes[16 * warps];
};

template <int Threads>
class block_team : public team_operations<block_team<Threads>> {
 public:
  static constexpr bool is_serial = false;

  __device__ block_team(int thread, block_exchange<Threads>& exchange)
      : thread_(thread), exchange_(exchange.bytes) {}

  template <class F>
  __device__ void for_each(index_t n, F f) {
    __syncthreads();
    for (index_t i = thread_; i < n; i += Threads) {
      f(i);
    }
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
    T* const slots = slots_of<T>();
    __syncthreads();
    if (thread_ == 0) {
      slots[0] = f();
    }
    return read_after_barrier(slots, 0);
  }

  template <class T>
  __device__ void store(T* place, std::type_identity_t<T> value) {
    if (thread_ == 0) {
      *place = value;
    }
  }

  template <class F, class Op, class T>
  __device__ T reduce(index_t n, F f, Op op, T identity) {
    static_assert(is_exact<Op, T>, "use sum_ordered for floating sums");
    T* const slots = slots_of<T>();
    __syncthreads();
    T value = identity;
    for (index_t i = thread_; i < n; i += Threads) {
      value = op(value, static_cast<T>(f(i)));
    }
    value = warp_reduce(value, op);
    if (lane() == 0) {
      slots[warp()] = value;
    }
    __syncthreads();
    value = slots[0];
    for (int i = 1; i < warps; ++i) {
      value = op(value, slots[i]);
    }
    __syncthreads();
    return value;
  }

  template <class F>
  __device__ auto sum_ordered(index_t n, F f) {
    using T = result_at<F>;
    T* const slots = slots_of<T>();
    __syncthreads();
    if (warp() == 0) {
      T const value = warp_sum_ordered(n, f, lane());
      if (lane() == 0) {
        slots[0] = value;
      }
    }
    return read_after_barrier(slots, 0);
  }

  template <class F, class T>
  __device__ T exclusive_scan(index_t n, F f, T* out) {
    static_assert(std::is_integral_v<T>);
    T* const slots = slots_of<T>();
    T before = 0;
    for (index_t first = 0; first < n; first += Threads) {
      __syncthreads();
      index_t const i = first + thread_;
      T const value = i < n ? static_cast<T>(f(i)) : T{0};
      T warp_total = 0;
      T below = warp_exclusive_scan(value, lane(), warp_total);
      if (lane() == 0) {
        slots[warp()] = warp_total;
      }
      __syncthreads();
      T total = 0;
      for (int w = 0; w < warps; ++w) {
        if (w == warp()) {
          below = static_cast<T>(below + total);
        }
        total = static_cast<T>(total + slots[w]);
      }
      if (i < n) {
        out[i] = static_cast<T>(before + below);
      }
      before = static_cast<T>(before + total);
    }
    __syncthreads();
    return before;
  }

 private:
  static constexpr int warps = Threads / warp_size;

  [[nodiscard]] __device__ int lane() const { return thread_ % warp_size; }
  [[nodiscard]] __device__ int warp() const { return thread_ / warp_size; }

  template <class T>
  __device__ T* slots_of() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && alignof(T) <= 16);
    return reinterpret_cast<T*>(exchange_);
  }
  template <class T>
  __device__ T read_after_barrier(T const* slots, int i) const {
    __syncthreads();
    T const value = slots[i];
    __syncthreads();
    return value;
  }

  int thread_;
  std::byte* exchange_;
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

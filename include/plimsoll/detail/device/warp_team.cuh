// SPDX-License-Identifier: Apache-2.0
/// @file
/// A team of one warp: values pass by shuffles, `__syncwarp` is the barrier.
#pragma once

#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xffffffffu;

/// `value` with every 32-bit word of it passed through `exchange`.
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
template <class T>
__device__ inline T shuffle_up(T value, int distance) {
  return exchange_words(value,
                        [distance](unsigned w) { return __shfl_up_sync(full_warp, w, distance); });
}

/// op over the lanes' values; every lane gets the result. For exact operations only.
template <class T, class Op>
__device__ inline T warp_reduce(T value, Op op) {
#pragma unroll
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    value = op(value, shuffle_xor(value, mask));
  }
  return value;
}

/// Smallest of the lanes' 64-bit values, by two hardware reductions where there are any.
__device__ inline std::uint64_t warp_min(std::uint64_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  auto const high = static_cast<unsigned>(value >> 32);
  unsigned const lowest_high = __reduce_min_sync(full_warp, high);
  unsigned const low = high == lowest_high ? static_cast<unsigned>(value) : ~0u;
  unsigned const lowest_low = __reduce_min_sync(full_warp, low);
  return (static_cast<std::uint64_t>(lowest_high) << 32) | lowest_low;
#else
  return warp_reduce(value, minimum{});
#endif
}

/// Sum of the values of lower lanes; `total` becomes the sum over all lanes.
template <class T>
__device__ inline T warp_exclusive_scan(T value, int lane, T& total) {
  T inclusive = value;
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    T const below = shuffle_up(inclusive, distance);
    if (lane >= distance) {
      inclusive = static_cast<T>(inclusive + below);
    }
  }
  total = shuffle_from(inclusive, warp_size - 1);
  return static_cast<T>(inclusive - value);
}

/// The 32 accumulators of sum_ordered, one per lane.
template <class F>
__device__ inline auto warp_sum_ordered(index_t n, F f, int lane) {
  using T = result_at<F>;
  T partial = 0;
  for (index_t i = lane; i < n; i += warp_size) {
    partial = add(partial, f(i));
  }
#pragma unroll
  for (int width = warp_size / 2; width > 0; width /= 2) {
    // Addition commutes, so both partners of a pair hold the same sum.
    partial = add(partial, shuffle_xor(partial, width));
  }
  return partial;
}

/// Min-queue of 64-bit keys. Lane j owns places j, j + 32, ... and keeps the smallest of them in a
/// register, so `top` is one warp reduction and a replacement rescans the places of one lane.
class warp_queue {
 public:
  __device__ warp_queue(std::uint64_t* keys, index_t n, int lane)
      : keys_(keys), places_(n), size_(n), lane_(lane) {
    rescan();
    top_ = warp_min(smallest_);
  }
  [[nodiscard]] __device__ bool empty() const { return size_ == 0; }
  [[nodiscard]] __device__ std::uint64_t top() const { return top_; }
  __device__ void replace_top(std::uint64_t key) {
    if (smallest_ == top_) {
      keys_[place_] = key;
      rescan();
    }
    top_ = warp_min(smallest_);
  }
  __device__ void pop() {
    --size_;
    replace_top(none);
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  __device__ void rescan() {
    smallest_ = none;
    for (index_t i = lane_; i < places_; i += warp_size) {
      if (keys_[i] < smallest_) {
        smallest_ = keys_[i];
        place_ = i;
      }
    }
  }

  std::uint64_t* keys_;
  index_t places_;
  index_t size_;
  int lane_;
  index_t place_ = 0;
  std::uint64_t smallest_ = none;
  std::uint64_t top_ = none;
};

/// One problem per warp.
class warp_team : public team_operations<warp_team> {
 public:
  static constexpr bool is_serial = false;

  __device__ explicit warp_team(int lane) : lane_(lane) {}

  template <class F>
  __device__ void for_each(index_t n, F f) {
    __syncwarp();
    for (index_t i = lane_; i < n; i += warp_size) {
      f(i);
    }
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
    __syncwarp();  // shuffles order no memory
    return shuffle_from(value, 0);
  }

  template <class T>
  __device__ void store(T* place, std::type_identity_t<T> value) {
    if (lane_ == 0) {
      *place = value;
    }
  }

  template <class F, class Op, class T>
  __device__ T reduce(index_t n, F f, Op op, T identity) {
    static_assert(is_exact<Op, T>, "use sum_ordered for floating sums");
    __syncwarp();
    T value = identity;
    for (index_t i = lane_; i < n; i += warp_size) {
      value = op(value, static_cast<T>(f(i)));
    }
    __syncwarp();
    if constexpr (std::is_same_v<Op, minimum> && std::is_same_v<T, std::uint64_t>) {
      return warp_min(value);
    } else {
      return warp_reduce(value, op);
    }
  }

  template <class F>
  __device__ auto sum_ordered(index_t n, F f) {
    __syncwarp();
    auto const value = warp_sum_ordered(n, f, lane_);
    __syncwarp();
    return value;
  }

  template <class F, class T>
  __device__ T exclusive_scan(index_t n, F f, T* out) {
    static_assert(std::is_integral_v<T>);
    __syncwarp();
    T before = 0;
    for (index_t first = 0; first < n; first += warp_size) {
      index_t const i = first + lane_;
      T const value = i < n ? static_cast<T>(f(i)) : T{0};
      T total = 0;
      T const below = warp_exclusive_scan(value, lane_, total);
      if (i < n) {
        out[i] = static_cast<T>(before + below);
      }
      before = static_cast<T>(before + total);
    }
    __syncwarp();
    return before;
  }

  __device__ auto queue(std::uint64_t* keys, index_t n) {
    __syncwarp();
    return warp_queue(keys, n, lane_);
  }

 private:
  int lane_;
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A team of one host thread.
#pragma once

#include <cstddef>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/host/sort.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Team of one host thread. Members are marked for the device only because bodies are; they never
/// run there.
class serial_team : public team_operations<serial_team> {
 public:
  static constexpr bool is_serial = true;

  template <class F>
  PLIMSOLL_HD void for_each(index_t n, F f) {
    for (index_t i = 0; i < n; ++i) {
      f(i);
    }
  }

  template <class F>
  PLIMSOLL_HD void single(F f) {
    f();
  }

  template <class F>
  PLIMSOLL_HD auto broadcast(F f) {
    return f();
  }

  template <class T>
  PLIMSOLL_HD void store(T* to, std::type_identity_t<T> value) {
    *to = value;
  }

  template <class F, class Op, class T>
  PLIMSOLL_HD T reduce(index_t n, F f, Op op, T identity) {
    static_assert(is_exact<Op, T>, "use sum_ordered for floating sums");
    T result = identity;
    for (index_t i = 0; i < n; ++i) {
      result = op(result, static_cast<T>(f(i)));
    }
    return result;
  }

  template <class F>
  PLIMSOLL_HD auto sum_ordered(index_t n, F f) {
    result_at<F> partial[32] = {};
    for (index_t i = 0; i < n; ++i) {
      partial[i % 32] = add(partial[i % 32], f(i));
    }
    for (int width = 16; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) {
        partial[j] = add(partial[j], partial[j + width]);
      }
    }
    return partial[0];
  }

  template <class F, class T>
  PLIMSOLL_HD T exclusive_scan(index_t n, F f, T* out) {
    static_assert(std::is_integral_v<T>);
    T total = 0;
    for (index_t i = 0; i < n; ++i) {
      T const value = static_cast<T>(f(i));
      out[i] = total;
      total = static_cast<T>(total + value);
    }
    return total;
  }

  template <class F>
  PLIMSOLL_HD index_t find(index_t from, index_t n, F f) {
    while (from < n && !f(from)) {
      ++from;
    }
    return minimum{}(from, n);
  }

  template <class F>
  PLIMSOLL_HD void histogram(index_t n, F bin_of, std::int32_t* counts, index_t bins) {
    for (index_t b = 0; b < bins; ++b) {
      counts[b] = 0;
    }
    for (index_t i = 0; i < n; ++i) {
      if (auto const bin = bin_of(i); bin >= 0) {
        ++counts[bin];
      }
    }
  }

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
  template <class Key>
  PLIMSOLL_HD void sort(Key* keys, index_t n, std::byte*) {
    sort_keys(keys, n);
  }

  /// Without `counts`, counts in `storage`, which does not grow with the number of bins.
  template <class F>
  PLIMSOLL_HD void match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks,
                               std::int32_t* counts, std::byte* storage) {
    if (bins > most_bins) {
      this->sorted_ranks(n, bin_of, bins, ranks, counts, storage);
      return;
    }
    auto* const seen = counts != nullptr ? counts : reinterpret_cast<std::int32_t*>(storage);
    for (index_t b = 0; b < bins; ++b) {
      seen[b] = 0;
    }
    for (index_t i = 0; i < n; ++i) {
      ranks[i] = seen[bin_of(i)]++;
    }
  }
};

}}}  // namespace plimsoll::detail

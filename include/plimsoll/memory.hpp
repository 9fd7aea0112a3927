// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading arrays that are in a policy's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

namespace detail {

/// Waits for the context's work so far and returns the elements of a vector of any stride.
/// Allocates nothing in the context's memory, unlike `on_host`.
template <class Context, class T>
std::vector<std::remove_const_t<T>> read_elements(Context const& context,
                                                  vector_ref<T> const& source) {
  using value = std::remove_const_t<T>;
  using memory = memory_of<Context>;
  index_t const n = source.extent(0);
  index_t const step = source.stride(0);
  std::vector<value> result(static_cast<std::size_t>(n));
  if (n < 2 || step == 1) {
    memory::to_host(context, source.data_handle(), result.data(), result.size() * sizeof(value));
  } else if (step == 0) {
    memory::to_host(context, source.data_handle(), result.data(), sizeof(value));
    std::fill(result.begin() + 1, result.end(), result[0]);
  } else {
    // A copy of rows takes a positive pitch only.
    memory::rows_to_host(context, step > 0 ? &source[0] : &source[n - 1],
                         static_cast<std::size_t>(step > 0 ? step : -step) * sizeof(value),
                         result.data(), sizeof(value), result.size());
    if (step < 0) {
      std::reverse(result.begin(), result.end());
    }
  }
  return result;
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Copies `elements` from the policy's memory (host memory, or device memory for `gpu`) to a
/// vector.
///
/// @param elements a contiguous range, or a rank-1 view of any stride
/// @return a `std::vector` of the elements, in order
/// @stream synchronises the policy's stream
template <execution_policy P, class Elements>
  requires(detail::readable<Elements, 1> && !detail::is_generated<std::remove_cvref_t<Elements>>)
auto read(P const& policy, Elements&& elements) {
  auto const source = detail::argument<1>("read", "elements", elements);
  return detail::read_elements(detail::resolve(policy), source);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

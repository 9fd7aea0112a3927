// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrays in a policy's memory.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI {

/// Copies `elements` from the memory of `policy` (host memory, or device memory for `gpu`) to a
/// vector, in order.
///
/// @param elements a contiguous range or a rank-1 view with stride 1
/// @stream synchronises the policy's stream
/// @throws invalid_input for a stride other than 1
template <execution_policy P, class Elements>
  requires(detail::readable<Elements, 1> && !detail::is_generated<std::remove_cvref_t<Elements>>)
auto read(P const& policy, Elements&& elements) {
  auto const source = detail::normalize<1>(elements);
  if (source.extent(0) > 0 && source.stride(0) != 1) {
    detail::fail("read", "elements", "stride 1", detail::text(source.stride(0)));
  }
  std::vector<detail::view_value_t<std::remove_const_t<decltype(source)>>> result(
      static_cast<std::size_t>(source.extent(0)));
  detail::memory_of<detail::context_of<P>>::to_host(detail::resolve(policy), source.data_handle(),
                                                    result.data(),
                                                    result.size() * sizeof(result[0]));
  return result;
}

}  // namespace plimsoll

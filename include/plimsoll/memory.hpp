// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading arrays that are in a policy's memory.
#pragma once

#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Copies one element from the policy's memory, such as a report.
///
/// @param element a view of rank 0
/// @stream synchronizes the policy's stream
template <execution_policy P, view_of_rank<0> Element>
auto read(P const& policy, Element const& element) {
  using value = std::remove_cv_t<std::remove_pointer_t<decltype(element.data_handle())>>;
  vector_ref<value const> const source(element.data_handle(), 1);
  detail::expect_elements("read", "element", source);
  return detail::on_host(detail::resolve(policy), source).front();
}

/// @brief Copies `elements` from the policy's memory (host memory, or device memory for `gpu`) to a
/// vector.
///
/// @param elements a contiguous range, or a rank-1 view of any stride
/// @return a `std::vector` of the elements, in order
/// @workspace from the policy, for a stride of 0 or less: the size of the elements
/// @stream synchronizes the policy's stream
template <execution_policy P, class Elements>
auto read(P const& policy, Elements const& elements) {
  auto const source =
      PLIMSOLL_INPUT_OF("stored elements", unchecked, "read", elements, "[n]", detail::any_element);
  return detail::on_host(detail::resolve(policy), source);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `token_drop`: derives the options of `top_k` and `capacity_mask` and checks them.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/host/top_k.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the options of `top_k`: `route` with `function`.
inline top_k_options with_function(std::string_view name, top_k_options route,
                                   score_function function) {
  if (route.function != score_function::none && route.function != function) {
    constexpr char const* names[] = {"none", "softmax", "sigmoid"};
    fail(name, "options.route.function", "none, as options.function applies",
         names[static_cast<int>(route.function)]);
  }
  if (route.homes.data != nullptr) {
    fail(name, "options.route.homes", "none, as batch.homes applies",
         text(route.homes.extent(0), " tokens"));
  }
  route.function = function;
  return route;
}

/// Returns the options of `capacity_mask`: `limit` with the columns of `route`, whose local experts
/// it checks.
template <class Context>
capacity_options with_columns(std::string_view name, Context const& context, capacity_options limit,
                              top_k_options const& route) {
  expect_top_k(name, route, limit.experts);
  limit.top_k = route.k;
  limit.candidates = limit.top_k;
  matrix_ref<std::int32_t const> const& local = route.local_experts;
  if (!is_given(name, "options.route.local_experts", local)) {
    return limit;
  }
  limit.candidates += local.extent(1);
  for (index_t home = 0; home < local.extent(0); ++home) {
    for (std::int32_t const e : on_host(context, row_of(local, home))) {
      if (e < -1 || e >= limit.experts) {
        fail(name, "options.route.local_experts", "-1 or an expert", text(e, " for home ", home));
      }
    }
  }
  return limit;
}

}}}  // namespace plimsoll::detail

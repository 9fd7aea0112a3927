// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `token_drop`: derives the options of `top_k` and `capacity_mask`, checks them, and
/// launches both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/capacity_mask.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/capacity_mask.hpp>
#include <plimsoll/detail/call/top_k.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the options of `top_k`: `route` with `function`.
inline top_k_options with_function(std::string_view name, top_k_options route,
                                   score_function function) {
  expect_enumerator(name, "options.function", score_function::sigmoid, function);
  expect_enumerator(name, "options.route.function", score_function::sigmoid, route.function);
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
  on_behalf_of(name, name, {{"options.", "options.route."}},
               [&] { expect_top_k(name, route, limit.experts); });
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

/// Memory of `token_drop`, which the constructor takes, and the launches of a batch, which neither
/// allocate nor synchronize. The caller synchronizes after the constructor.
template <class Context>
class token_drop_pipeline {
 public:
  token_drop_pipeline(Context const& context, score_function function, top_k_options const& route,
                      capacity_options const& limit)
      : context_(context),
        route_(with_function(name, route, function)),
        mask_(make_mask(with_columns(name, context_, limit, route))),
        ids_(context_, limit.max_tokens * width()),
        weights_(context_, limit.max_tokens * width()) {
    matrix_ref<float const> const logits(nullptr, limit.max_tokens, limit.experts);
    auto const body = make_top_k_body(context_, logits, route_, ids(0), {});
    scratch_ = {context_, launch_bytes(context_, body.problems(), body)};
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] capacity_mask_pipeline<Context> const& mask() const { return mask_; }
  /// Options of `top_k` for a batch.
  [[nodiscard]] top_k_options route(vector_ref<std::int32_t const> homes) const {
    top_k_options result = route_;
    result.homes = homes;
    return result;
  }
  [[nodiscard]] index_t width() const { return mask_.options().candidates; }
  /// Ids of a batch before the mask, and their weights: `[tokens, width()]`.
  [[nodiscard]] matrix_ref<std::int32_t> ids(index_t tokens) const {
    return {ids_.data(), tokens, width()};
  }
  [[nodiscard]] matrix_ref<float> weights(index_t tokens) const {
    return {weights_.data(), tokens, width()};
  }

  template <class Score, class KeptId>
  void enqueue(matrix_ref<Score const> scores, top_k_options const& route,
               capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
    index_t const tokens = scores.extent(0);
    matrix_ref<std::int32_t const> const chosen = ids(tokens);
    matrix_ref<float const> const chosen_weights = weights(tokens);
    prepared_context<Context> const prepared{context_, scratch_.data()};
    if constexpr (runs_on_device<Context>) {
      // Counting in the kernel that selects ids saves a launch; a host would need atomic additions.
      pair_lists const lists = mask_.lists_for(tokens);
      enqueue_top_k(prepared, scores, route, ids(tokens), weights(tokens),
                    count_chosen_body{lists});
      mask_.enqueue_counted(lists, chosen, chosen_weights, batch, kept);
    } else {
      enqueue_top_k(prepared, scores, route, ids(tokens), weights(tokens));
      mask_.enqueue(chosen, chosen_weights, batch, kept);
    }
  }

 private:
  static constexpr char const* name = "token_drop";

  capacity_mask_pipeline<Context> make_mask(capacity_options const& limit) const {
    return on_behalf_of(name, "capacity_mask", {{"options.", "options.limit."}},
                        [&] { return capacity_mask_pipeline<Context>(context_, limit); });
  }

  Context context_;
  top_k_options route_;
  capacity_mask_pipeline<Context> mask_;
  buffer<std::int32_t, Context> ids_;
  buffer<float, Context> weights_;
  buffer<std::byte, Context> scratch_;
};

}}}  // namespace plimsoll::detail

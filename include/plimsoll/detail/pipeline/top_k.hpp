// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launch of `top_k`.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/top_k.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Score, class Id, class Listener = no_listener>
auto make_top_k_body(Context const&, matrix_ref<Score const> scores, top_k_options const& options,
                     matrix_ref<Id> ids, matrix_ref<float> weights, Listener const& listener = {}) {
  return top_k_body<Score, Listener, Id>{
      scores, options, ids, weights, runs_on_device<Context> ? 1 : 64, listener};
}

template <class Context, class Score, class Id, class Listener = no_listener>
void enqueue_top_k(Context const& context, matrix_ref<Score const> scores,
                   top_k_options const& options, matrix_ref<Id> ids, matrix_ref<float> weights,
                   Listener const& listener = {}) {
  auto const body = make_top_k_body(context, scores, options, ids, weights, listener);
  launch(context, body.problems(), body);
}

}}}  // namespace plimsoll::detail

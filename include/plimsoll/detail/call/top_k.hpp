// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `top_k`: checks options and shapes, and launches the body.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/top_k.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the options; `expect_top_k_scores` checks the shapes of a batch.
inline void expect_top_k(std::string_view name, top_k_options const& options, index_t experts) {
  expect_between(name, "scores", 1, expert_limit, experts, "experts");
  expect_between(name, "options.k", 1, experts, options.k, "experts");
  expect_between(name, "options.groups", 1, experts, options.groups, "groups");
  if (experts % options.groups != 0) {
    fail(name, "options.groups", text("a divisor of ", experts, " experts"), text(options.groups));
  }
  index_t const size = experts / options.groups;
  expect_between(name, "options.kept_groups", (options.k + size - 1) / size, options.groups,
                 options.kept_groups, "groups");
  if (options.groups > 1) {
    expect_between(name, "options.best_of_group", 1, size, options.best_of_group, "experts");
  }
  expect_enumerator(name, "options.function", score_function::sigmoid, options.function);
  expect_enumerator(name, "options.normalize", normalization::to_sum, options.normalize);
  if (options.normalize == normalization::to_sum) {
    fail(name, "options.normalize", "none or to_one", "to_sum");
  }
  if (!(options.scale >= 0x1p-64 && options.scale <= 0x1p64)) {
    fail(name, "options.scale", "a number from 2^-64 to 2^64", text(options.scale));
  }
  if (is_given(name, "options.bias", options.bias)) {
    expect_extent(name, "options.bias", experts, options.bias.extent(0), "experts");
  }
}

/// Checks the scores and the options, from which the call then knows the candidates of each token.
template <class Score>
void expect_top_k_scores(checked_call& call, matrix_ref<Score const> const& scores,
                         top_k_options const& options) {
  expect_top_k(call, options, scores.extent(1));
  index_t const tokens = scores.extent(0);
  bool const expands = is_given(call, "options.local_experts", options.local_experts);
  index_t const width = options.k + (expands ? options.local_experts.extent(1) : 0);
  expect_between(call, "scores", 0, 0x7fffffff / width, tokens, "tokens (below 2^31 candidates)");
  call.expect_given("options.homes", options.homes, "[tokens]");
  call.know({"k + m", width, "candidates"});
}

template <class Context, class Score, class Id, class Listener = no_listener>
auto make_top_k_body(Context const&, matrix_ref<Score const> scores, top_k_options const& options,
                     matrix_ref<Id> ids, matrix_ref<float> weights, Listener const& listener = {}) {
  return top_k_body < Score, Listener, Id,
         runs_on_device<Context> ? 1 : 64 > {scores, options, ids, weights, listener};
}

template <class Context, class Score, class Id, class Listener = no_listener>
void enqueue_top_k(Context const& context, matrix_ref<Score const> scores,
                   top_k_options const& options, matrix_ref<Id> ids, matrix_ref<float> weights,
                   Listener const& listener = {}) {
  auto const body = make_top_k_body(context, scores, options, ids, weights, listener);
  launch(context, body.problems(), body);
}

}}}  // namespace plimsoll::detail

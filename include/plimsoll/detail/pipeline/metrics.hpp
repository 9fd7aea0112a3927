// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `measure`, `correlate` and `classify_experts`.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/metrics.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/metrics_types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Loads>
void enqueue_measure(Context const& context, Loads const& loads,
                     vector_ref<balance_stats> const& out) {
  launch(context, loads.extent(0), metrics_body<Loads>{loads, out});
}

template <class Context, class Loads>
void enqueue_correlate(Context const& context, Loads const& loads,
                       tensor_ref<double> const& correlation) {
  launch(context, loads.extent(1) * loads.extent(2), correlation_body<Loads>{loads, correlation});
}

template <class Context, class Loads>
void enqueue_classify(Context const& context, Loads const& loads, expert_use_options const& options,
                      matrix_ref<expert_use> const& use) {
  launch(context, loads.extent(1), classes_body<Loads>{loads, options, use});
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frame of planning calls.
#pragma once

#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Runs a planning call of `steps` steps, each with one problem per layer: `enqueue(reports)`
/// launches them on `context`, with one report per problem, step by step. Waits for them and
/// returns their certificates in order; throws the first fault by `throw_fault`.
template <class Context, class Throw, class Enqueue>
std::vector<certificate> run_planning(std::string_view function, Context const& context,
                                      index_t layers, index_t steps, Throw const& throw_fault,
                                      Enqueue const& enqueue) {
  buffer<problem_report, Context> const reports(context, steps * layers);
  enqueue(reports.data());
  return collect(function, reports, layers, throw_fault);
}

}}}  // namespace plimsoll::detail

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
#include <plimsoll/execution.hpp>
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

/// Runs a planning call and returns its reports, in memory of `lists`; throws as `run_planning`.
template <class Report = problem_report, class Context, class Throw, class Enqueue>
host_list<Report> planning_reports(std::string_view function, Context const& context,
                                   resource_ref lists, index_t layers, index_t steps,
                                   Throw const& throw_fault, Enqueue const& enqueue) {
  buffer<Report, Context> const reports(context, steps * layers);
  enqueue(reports.data());
  host_list<Report> result = reports.read(lists);
  expect_sound(function, result, layers, throw_fault);
  return result;
}

/// Returns the certificates of one step of a planning call.
inline std::vector<certificate> certificates_of_step(std::vector<certificate> const& all,
                                                     index_t layers, index_t step) {
  auto const first = all.begin() + step * layers;
  return {first, first + layers};
}

}}}  // namespace plimsoll::detail

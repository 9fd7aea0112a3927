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
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Runs a planning call of `steps` steps, each with one problem per layer: `enqueue(reports)`
/// launches them on `context`, with one report per problem, step by step. Waits for them and
/// returns their certificates in order; throws the first fault.
template <class Context, class Enqueue>
std::vector<certificate> run_planning(std::string_view function, Context const& context,
                                      index_t layers, index_t steps, fault_names const& names,
                                      Enqueue const& enqueue) {
  buffer<problem_report, Context> const reports(context, steps * layers);
  enqueue(reports.data());
  return collect(function, reports, layers, names);
}
/// As above, for a call that has the usual names for its arguments.
template <class Context, class Enqueue>
std::vector<certificate> run_planning(std::string_view function, Context const& context,
                                      index_t layers, index_t steps, Enqueue const& enqueue) {
  return run_planning(function, context, layers, steps, fault_names{}, enqueue);
}

/// Runs a planning call and returns its reports, in memory of `lists`; throws as `run_planning`.
template <class Report = problem_report, class Context, class Enqueue>
host_list<Report> planning_reports(std::string_view function, Context const& context,
                                   resource_ref lists, index_t layers, index_t steps,
                                   fault_names const& names, Enqueue const& enqueue) {
  buffer<Report, Context> const reports(context, steps * layers);
  enqueue(reports.data());
  host_list<Report> result = reports.read(lists);
  expect_sound(function, result, layers, names);
  return result;
}
template <class Context, class Enqueue>
host_list<problem_report> planning_reports(std::string_view function, Context const& context,
                                           resource_ref lists, index_t layers, index_t steps,
                                           Enqueue const& enqueue) {
  return planning_reports(function, context, lists, layers, steps, fault_names{}, enqueue);
}

/// Returns the certificates of one step of a planning call.
inline std::vector<certificate> certificates_of_step(std::vector<certificate> const& all,
                                                     index_t layers, index_t step) {
  auto const first = all.begin() + step * layers;
  return {first, first + layers};
}

}}}  // namespace plimsoll::detail

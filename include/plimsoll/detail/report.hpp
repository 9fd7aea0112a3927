// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of bodies, one per problem, and their conversion to certificates or an exception. Bodies
/// cannot throw and may run on a device, so a report contains a fault in addition to the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Outcome of one problem whose result is a certificate, or which has none. A body with another
/// result, such as counts, writes a type of its own.
struct problem_report {
  certificate result;
  fault refused = {};
};

/// Returns the fault of a refused value.
template <class T = double>
PLIMSOLL_HD fault fault_of(fault_kind kind, index_t where = -1, T got = 0, index_t also = -1) {
  return {kind, fault_side::from, where, static_cast<double>(got), also};
}
/// Returns the report of a problem with a refused value.
template <class T = double>
PLIMSOLL_HD problem_report refusal(fault_kind kind, index_t where = -1, T got = 0,
                                   index_t also = -1) {
  return {certificate{}, fault_of(kind, where, got, also)};
}

/// Throws what `describe` says about a fault, if there is one. `names` are those that the call has
/// for its arguments.
inline void expect_no_fault(std::string_view function, fault const& found, index_t layer = -1,
                            fault_names const& names = {}) {
  if (found) {
    throw invalid_input(text(function, ": ", describe({found, layer}, names)));
  }
}
/// As above, for the fault of a report.
template <class Report>
void expect_no_fault(std::string_view function, Report const& report, index_t layer = -1,
                     fault_names const& names = {}) {
  expect_no_fault(function, report.refused, layer, names);
}

/// Throws the first fault of the reports of all steps of a call, each with one report per layer.
template <class Reports>
void expect_sound(std::string_view function, Reports const& reports, index_t layers,
                  fault_names const& names = {}) {
  index_t layer = 0;
  for (auto const& report : reports) {
    expect_no_fault(function, report, layer, names);
    layer = layer + 1 == layers ? 0 : layer + 1;
  }
}

/// Waits for the reports of all steps of a call, each with one report per layer. Throws the first
/// fault, else returns the certificates in order.
template <class Context>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports, index_t layers,
                                 fault_names const& names = {}) {
  std::vector<certificate> certificates;
  certificates.reserve(static_cast<std::size_t>(reports.size()));
  std::vector<problem_report> const found = reports.read();
  expect_sound(function, found, layers, names);
  for (problem_report const& report : found) {
    certificates.push_back(report.result);
  }
  return certificates;
}

}}}  // namespace plimsoll::detail

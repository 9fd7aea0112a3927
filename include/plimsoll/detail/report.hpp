// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of bodies, one per problem, and their conversion to certificates or an exception. Bodies
/// cannot throw and may run on a device, so a report contains a fault in addition to the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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

/// The refused value of one problem, and the words of its message. For each primitive, a function
/// `throw_<primitive>_fault(refused_value)` in detail/call throws the message of its faults, and
/// returns for a fault of another kind.
struct refused_value {
  std::string_view function;
  fault refused;
  index_t layer = 0;  ///< or another number of the problem

  [[nodiscard]] fault const& found() const { return refused; }
  [[nodiscard]] std::string in_layer() const { return text(" in layer ", layer); }
  /// The value and its layer.
  [[nodiscard]] std::string got() const { return text(found().got, in_layer()); }
  /// The index that the fault names, as ", expert 3"; empty if there is none.
  [[nodiscard]] std::string where(std::string_view name) const {
    return found().where < 0 ? "" : text(", ", name, " ", found().where);
  }
  /// The second index, as ", step 2"; empty if there is none.
  [[nodiscard]] std::string also(std::string_view name) const {
    return found().also < 0 ? "" : text(", ", name, " ", found().also);
  }
  [[noreturn]] void fail(std::string_view argument, std::string_view expected,
                         std::string_view what) const {
    detail::fail(function, argument, expected, what);
  }
};

/// Throws the first fault of the reports of all steps of a call, each with one report per layer, by
/// `throw_fault`. A report is any type with the member `refused`.
template <class Reports, class Throw>
void expect_sound(std::string_view function, Reports const& reports, index_t layers,
                  Throw const& throw_fault) {
  index_t number = 0;
  for (auto const& report : reports) {
    if (report.refused) {
      refused_value const value{function, report.refused, number % layers};
      throw_fault(value);
      value.fail("problem", "a known fault", value.got());
    }
    ++number;
  }
}

/// Waits for the reports of all steps of a call, each with one report per layer. Throws the first
/// fault by `throw_fault`, else returns the certificates in order.
template <class Context, class Throw>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports, index_t layers,
                                 Throw const& throw_fault) {
  std::vector<certificate> certificates;
  certificates.reserve(static_cast<std::size_t>(reports.size()));
  std::vector<problem_report> const found = reports.read();
  expect_sound(function, found, layers, throw_fault);
  for (problem_report const& report : found) {
    certificates.push_back(report.result);
  }
  return certificates;
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a planning body reports per problem, and how the report becomes certificates or an error.
/// Bodies cannot throw and may run on a device, so faults in values travel with the certificate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// A value that a body found unusable.
enum class fault : std::int32_t {
  none,
  load,             ///< a load that is negative, not a number, or 2^47 and more
  total_load,       ///< loads of a problem that add up to 2^47 and more
  floor,            ///< an expert's least copies below 1
  cap_below_floor,  ///< an expert's most copies below its least
  floors,           ///< least copies that do not fit the slots
  caps,             ///< most copies that do not fill the slots
  copies,           ///< an expert without a copy, or with too many
  copies_total,     ///< more copies than slots
  rank_offsets      ///< offsets that do not rise from 0 to the number of slots
};

/// One problem's outcome. `where` is the expert or rank that a fault is about, -1 for none of them.
struct problem_report {
  certificate result;
  fault what = fault::none;
  index_t where = -1;
  double got = 0;
};

/// Shortest of the usual spellings: whole numbers without a fraction.
inline std::string spell(double value) {
  if (value != value) {
    return "NaN";  // to_string would show its sign, which differs between machines
  }
  if (value > -1e15 && value < 1e15 &&
      static_cast<double>(static_cast<long long>(value)) == value) {
    return std::to_string(static_cast<long long>(value));
  }
  return std::to_string(value);
}

[[noreturn]] inline void fail(std::string_view function, problem_report const& report,
                              index_t layer) {
  std::string got = spell(report.got) + " in layer " + std::to_string(layer);
  std::string const expert = ", expert " + std::to_string(report.where);
  switch (report.what) {
    case fault::load:
      fail(function, "loads", "values from 0 to below 2^47", got + expert);
    case fault::total_load:
      fail(function, "loads", "a total below 2^47 per layer", got);
    case fault::floor:
      fail(function, "min_copies", "at least 1 for every expert", got + expert);
    case fault::cap_below_floor:
      fail(function, "max_copies", "at least min_copies for every expert", got + expert);
    case fault::floors:
      fail(function, "min_copies", "a total of at most the slots", got);
    case fault::caps:
      fail(function, "max_copies", "a total of at least the slots", got);
    case fault::copies:
      fail(function, "replica_count", "1 to 32767 copies of every expert", got + expert);
    case fault::copies_total:
      fail(function, "replica_count", "a total of at most the slots", got);
    case fault::rank_offsets:
      fail(function, "rank_offsets", "offsets that rise from 0 to the number of slots",
           got + ", rank " + std::to_string(report.where));
    case fault::none:
      break;
  }
  fail(function, "problem", "a known fault", got);
}

/// Waits for the reports of all layers. Throws invalid_input for the first fault, else returns
/// the certificates in order.
template <class Context>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports) {
  std::vector<certificate> certificates;
  certificates.reserve(static_cast<std::size_t>(reports.size()));
  for (problem_report const& report : reports.read()) {
    if (report.what != fault::none) {
      fail(function, report, static_cast<index_t>(certificates.size()));
    }
    certificates.push_back(report.result);
  }
  return certificates;
}

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail

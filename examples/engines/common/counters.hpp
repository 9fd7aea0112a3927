// SPDX-License-Identifier: Apache-2.0
// Names the counters of an object, and throws for token copies that it could not place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/waterline_types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll_engines {

struct counter {
  char const* name;
  std::int64_t value;
};
using counter_list = std::vector<counter>;

inline counter_list counters_of(plimsoll::dispatch_counters const& of) {
  return {{"routed", of.routed},
          {"beyond_quota", of.beyond_quota},
          {"without_slot", of.without_slot},
          {"unrouted", of.unrouted},
          {"out_of_range", of.out_of_range}};
}
inline counter_list counters_of(plimsoll::spill_counters const& of) {
  return {{"routed", of.routed},
          {"unplanned", of.unplanned},
          {"unrouted", of.unrouted},
          {"out_of_range", of.out_of_range}};
}
inline counter_list counters_of(plimsoll::waterline_report const& of) {
  return {{"rows", of.rows},
          {"moved", of.moved},
          {"unplaced", of.unplaced},
          {"new_destinations", of.new_destinations},
          {"without_expert", of.without_expert},
          {"unrouted", of.unrouted},
          {"out_of_range", of.out_of_range}};
}
inline counter_list counters_of(plimsoll::capacity_report const& of) {
  return {{"routed", of.routed},         {"kept", of.kept},
          {"unrouted", of.unrouted},     {"out_of_range", of.out_of_range},
          {"duplicates", of.duplicates}, {"not_numbers", of.not_numbers}};
}

/// Adds the counters of several reports.
template <class Report>
counter_list sum_of(std::vector<Report> const& reports) {
  counter_list sums = counters_of(Report{});
  for (Report const& report : reports) {
    counter_list const more = counters_of(report);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i].value += more[i].value;
    }
  }
  return sums;
}

/// Throws if ids of the last calls were lost: those that the counters named in `lost` count.
inline void expect_none_lost(std::string const& function, counter_list const& counted,
                             std::initializer_list<std::string_view> lost) {
  for (counter const& one : counted) {
    for (std::string_view const name : lost) {
      if (one.name == name && one.value > 0) {
        throw plimsoll::invalid_input(
            function + ": topk_ids: expected ids that can be placed, or -1, got " +
            std::to_string(one.value) + " " + one.name + "; check(allow_lost=True) accepts them");
      }
    }
  }
}

}  // namespace plimsoll_engines

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `quota`, `source_quotas` and `dispatch`: checks of shapes, and messages about
/// refused values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/host/fixed_load.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the part of a placement that `quota` and `source_quotas` share.
inline slot_ranges ranges_of(std::string_view name, placement_ref const& placement,
                             index_t layers) {
  index_t const slots = placement.physical_to_logical.extent(1);
  expect_extent(name, "placement.physical_to_logical", layers,
                placement.physical_to_logical.extent(0), "layers");
  expect_between(name, "placement.physical_to_logical", 1, 0x7fffffff, slots, "slots");
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, layers,
                      placement.ranks);
  return {placement.rank_offsets, slots, placement.ranks};
}

/// Checks the shape of an argument of `quota` or `source_quotas` with one column per slot.
template <class T>
void expect_rows_of_slots(std::string_view name, std::string_view argument,
                          matrix_ref<T> const& matrix, index_t rows, std::string_view row,
                          index_t slots) {
  expect_extent(name, argument, rows, matrix.extent(0), row);
  expect_extent(name, argument, slots, matrix.extent(1), "slots");
}

/// Checks the shapes of the outputs of a dispatch of `tokens` times `ids` ids.
template <class Slot>
void expect_dispatch_outputs(std::string_view name, index_t tokens, index_t ids,
                             matrix_ref<Slot> const& slots,
                             vector_ref<dispatch_counters> const& counters) {
  expect_extent(name, "slots", tokens, slots.extent(0), "tokens");
  expect_extent(name, "slots", ids, slots.extent(1), "ids per token");
  expect_extent(name, "counters", 1, counters.extent(0), "counters");
}

/// `loads` is the name of the argument with the loads.
inline void throw_quota_fault(refused_value const& of, std::string_view loads) {
  throw_load_fault(of, loads);
  throw_map_fault(of);
  switch (of.found().kind) {
    case fault_kind::share:
      of.fail("split", "values from 0 to the load of the slot's expert, 0 in empty slots",
              of.got() + of.where("slot"));
    case fault_kind::shares:
      of.fail("split", text("shares that add up to the expert's load, ", of.found().got),
              text("others", of.in_layer(), of.where("expert")));
    default:
      break;
  }
}

/// Throws if a layer of the loads that `function` took as `argument` could not be rounded.
inline void expect_rounded(std::string_view function, std::string_view argument,
                           quota_report const& report, index_t layer) {
  if (report.refused) {
    throw_quota_fault({function, {certificate{}, report.refused}, layer}, argument);
  }
}

/// Throws for the first layer that `quota` could not round.
inline void expect_all_rounded(std::vector<quota_report> const& reports) {
  index_t layer = 0;
  for (quota_report const& report : reports) {
    expect_rounded("quota", "loads", report, layer);
    ++layer;
  }
}

}}}  // namespace plimsoll::detail

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies the slot map and rank offsets of a placement to the host and checks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Slot map and rank offsets of a placement on the host.
struct host_slots {
  index_t slots;
  index_t ranks;
  std::vector<std::int32_t> experts;  ///< `[layers, slots]`
  std::vector<std::int32_t> begins;   ///< `[layers, ranks + 1]`

  [[nodiscard]] std::int32_t const* experts_of(index_t layer) const {
    return experts.data() + layer * slots;
  }
  [[nodiscard]] std::int32_t const* begins_of(index_t layer) const {
    return begins.data() + layer * (ranks + 1);
  }
};

/// Returns the first slot of each rank where slots are spread evenly, `[layers, ranks + 1]`.
inline std::vector<std::int32_t> even_begins(index_t layers, index_t slots, index_t ranks) {
  slot_ranges const spread{{}, slots, ranks};
  std::vector<std::int32_t> result;
  for (index_t i = 0; i < layers * (ranks + 1); ++i) {
    result.push_back(static_cast<std::int32_t>(spread.begin(0, i % (ranks + 1))));
  }
  return result;
}

/// Returns whether the slots of a rank, `begins[rank]` to `begins[rank + 1]`, are in [0, slots] and
/// those of rank 0 begin at 0.
inline bool is_slot_range(std::int32_t const* begins, index_t rank, index_t slots) {
  return begins[0] == 0 && begins[rank] <= begins[rank + 1] && begins[rank + 1] <= slots;
}

/// Reads and checks the slots of a placement whose shapes the caller has checked. Throws for
/// offsets that do not rise, naming the rank, and for an invalid expert id, naming the slot.
template <class Context>
host_slots read_slots(std::string_view function, Context const& context,
                      placement_ref const& placement, index_t experts) {
  index_t const layers = placement.physical_to_logical.extent(0);
  index_t const slots = placement.physical_to_logical.extent(1);
  host_slots result{
      slots, placement.ranks, rows_on_host(context, placement.physical_to_logical), {}};
  result.begins = placement.rank_offsets.data != nullptr
                      ? rows_on_host(context, placement.rank_offsets)
                      : even_begins(layers, slots, placement.ranks);
  for (index_t layer = 0; layer < layers; ++layer) {
    std::int32_t const* const begin = result.begins_of(layer);
    for (index_t r = 0; r < result.ranks; ++r) {
      if (!is_slot_range(begin, r, slots)) {
        double const end = begin[r + 1];
        expect_no_fault(function, fault_of(fault_kind::rank_offsets, r, end), layer);
      }
      for (index_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
        double const expert = result.experts_of(layer)[slot];
        if (expert < -1 || expert >= static_cast<double>(experts)) {
          expect_no_fault(function, fault_of(fault_kind::expert_id, slot, expert, r), layer);
        }
      }
    }
  }
  return result;
}

}}}  // namespace plimsoll::detail

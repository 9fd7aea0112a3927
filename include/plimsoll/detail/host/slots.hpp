// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies the slot map and rank offsets of a placement to the host and checks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/host/topology.hpp>
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

/// Reads and checks the slots of a placement whose shapes the caller has checked. Throws for
/// offsets that do not rise, naming the rank, and for an invalid expert id, naming the slot.
template <class Context>
host_slots read_slots(std::string_view function, Context const& context,
                      placement_ref const& placement, index_t experts) {
  index_t const layers = placement.physical_to_logical.extent(0);
  host_slots result{placement.physical_to_logical.extent(1),
                    placement.ranks,
                    rows_on_host(context, placement.physical_to_logical),
                    {}};
  if (placement.rank_offsets.data != nullptr) {
    result.begins = rows_on_host(context, placement.rank_offsets);
  } else {
    slot_ranges const even{{}, result.slots, result.ranks};
    for (index_t i = 0; i < layers * (result.ranks + 1); ++i) {
      result.begins.push_back(static_cast<std::int32_t>(even.begin(0, i % (result.ranks + 1))));
    }
  }
  for (index_t layer = 0; layer < layers; ++layer) {
    std::int32_t const* const begin = result.begins_of(layer);
    for (index_t r = 0; r < result.ranks; ++r) {
      if (begin[0] != 0 || begin[r] > begin[r + 1] || begin[r + 1] > result.slots) {
        double const end = begin[r + 1];
        throw_topology_fault({function, refusal(fault_kind::rank_offsets, r, end), layer});
      }
      for (index_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
        double const expert = result.experts_of(layer)[slot];
        if (expert < -1 || expert >= static_cast<double>(experts)) {
          throw_map_fault({function, refusal(fault_kind::expert_id, slot, expert, r), layer});
        }
      }
    }
  }
  return result;
}

}}}  // namespace plimsoll::detail

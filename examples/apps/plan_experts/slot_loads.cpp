// SPDX-License-Identifier: Apache-2.0
#include "slot_loads.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "loads_text.hpp"

namespace examples {

load_file expert_loads(load_file& slots, plan const& in_use, reading_progress const& progress) {
  if (slots.experts() != in_use.slots) {
    throw file_error(slots.name(),
                     "loads of the " + std::to_string(in_use.slots) +
                         " slots of a layer of the plan in use, on " +
                         std::to_string(in_use.ranks) + " ranks",
                     npy::to_string(slots.shape()) + " as (steps, layers, slots)");
  }
  return slots.with_type([&]<class Load>(Load) {
    text_numbers result{byte_store(slots.name()),
                        {slots.steps(), slots.layers(), in_use.experts},
                        std::is_same_v<Load, double>};
    std::vector<Load> of_experts(static_cast<std::size_t>(in_use.experts));
    slots.for_each_step<Load>(
        [&](index_t step, loads_ref<Load> loads) {
          for (index_t layer = 0; layer < loads.extent(0); ++layer) {
            std::fill(of_experts.begin(), of_experts.end(), Load{0});
            for (index_t slot = 0; slot < loads.extent(1); ++slot) {
              auto const expert =
                  in_use.physical_to_logical[static_cast<std::size_t>(layer * in_use.slots + slot)];
              Load const load = loads(layer, slot);
              if (expert >= 0) {
                of_experts[static_cast<std::size_t>(expert)] += load;
              } else if (load != 0) {
                throw file_error(
                    slots.name(), "no tokens in slots that are empty in the plan in use",
                    "some in step " + std::to_string(step) + ", layer " +
                        std::to_string(in_use.layer_ids[static_cast<std::size_t>(layer)]) +
                        ", slot " + std::to_string(slot));
              }
            }
            result.bytes.append({reinterpret_cast<char const*>(of_experts.data()),
                                 of_experts.size() * sizeof(Load)});
          }
        },
        progress);
    return load_file::of_numbers(std::move(result));
  });
}

}  // namespace examples

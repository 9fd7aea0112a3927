// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placements of all planned layers, with their dimensions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/placement.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace examples {

using plimsoll::index_t;

/// The expert in every slot of every planned layer. `layer_ids` gives the model's layer id of each.
struct plan {
  index_t layers = 0;
  index_t experts = 0;
  index_t ranks = 0;
  index_t slots = 0;                         ///< of one layer, over all ranks
  std::vector<std::int64_t> layer_ids = {};  ///< [layers], increasing; 0, 1, ... unless changed
  /// [layers, slots], slots ordered by rank, -1 in an empty slot
  std::vector<std::int32_t> physical_to_logical = {};
  /// [layers, ranks + 1]: rank r has the slots from offset r up to, but not including, offset r + 1
  std::vector<std::int32_t> rank_offsets = {};
  std::vector<std::int32_t> replica_count = {};  ///< [layers, experts]

  plan() = default;

  /// Makes an empty plan whose slots are divided evenly over the ranks: rank r begins at
  /// floor(r * slots / ranks).
  plan(index_t layer_count, index_t expert_count, index_t rank_count, index_t slot_count)
      : layers(layer_count),
        experts(expert_count),
        ranks(rank_count),
        slots(slot_count),
        layer_ids(static_cast<std::size_t>(layers)),
        physical_to_logical(static_cast<std::size_t>(layers * slots)),
        replica_count(static_cast<std::size_t>(layers * experts)) {
    for (index_t layer = 0; layer < layers; ++layer) {
      layer_ids[static_cast<std::size_t>(layer)] = layer;
      for (index_t rank = 0; rank <= ranks; ++rank) {
        rank_offsets.push_back(static_cast<std::int32_t>(rank * slots / ranks));
      }
    }
  }

  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {physical_to_logical.data(), layers, slots},
            .replica_count = {replica_count.data(), layers, experts},
            .ranks = ranks,
            .rank_offsets = {rank_offsets.data(), layers, ranks + 1}};
  }

  /// Returns the number of slots of a layer.
  [[nodiscard]] index_t slots_of(index_t layer) const {
    return rank_offsets[static_cast<std::size_t>((layer + 1) * (ranks + 1) - 1)];
  }

  friend bool operator==(plan const&, plan const&) = default;
};

/// Smallest and largest number of slots.
struct slot_range {
  index_t least = 0;
  index_t most = 0;
};

/// Returns the range of the number of slots of a layer.
[[nodiscard]] inline slot_range slots_of_layers(plan const& p) {
  slot_range range{p.slots_of(0), p.slots_of(0)};
  for (index_t layer = 1; layer < p.layers; ++layer) {
    range.least = std::min(range.least, p.slots_of(layer));
    range.most = std::max(range.most, p.slots_of(layer));
  }
  return range;
}

/// Returns the range of the number of slots of a rank, summed over all layers.
[[nodiscard]] inline slot_range slots_of_ranks(plan const& p) {
  slot_range range{p.layers * p.slots, 0};
  for (index_t rank = 0; rank < p.ranks; ++rank) {
    index_t slots = 0;
    for (index_t layer = 0; layer < p.layers; ++layer) {
      auto const at = static_cast<std::size_t>(layer * (p.ranks + 1) + rank);
      slots += p.rank_offsets[at + 1] - p.rank_offsets[at];
    }
    range.least = std::min(range.least, slots);
    range.most = std::max(range.most, slots);
  }
  return range;
}

/// Removes slots at the ends of the rows that no layer uses.
inline void trim(plan& p) {
  index_t const most = slots_of_layers(p).most;
  auto to = p.physical_to_logical.begin();
  for (index_t layer = 0; layer < p.layers; ++layer) {
    auto const from = p.physical_to_logical.begin() + layer * p.slots;
    to = std::copy(from, from + most, to);
  }
  p.physical_to_logical.erase(to, p.physical_to_logical.end());
  p.slots = most;
}

/// Fills all slots of an empty plan: those of rank r with consecutive experts from first_expert(r)
/// on, modulo the number of experts.
template <class First>
void fill_in_order(plan& p, First const& first_expert) {
  auto const offsets = p.placement().rank_offsets;
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      index_t const begin = offsets(layer, rank);
      for (index_t slot = begin; slot < offsets(layer, rank + 1); ++slot) {
        index_t const expert = (first_expert(rank, begin) + slot - begin) % p.experts;
        p.physical_to_logical[static_cast<std::size_t>(layer * p.slots + slot)] =
            static_cast<std::int32_t>(expert);
        ++p.replica_count[static_cast<std::size_t>(layer * p.experts + expert)];
      }
    }
  }
}

/// Makes the placement of SGLang or vLLM without a plan: slot i holds expert i mod experts.
[[nodiscard]] inline plan trivial_plan(index_t layers, index_t experts, index_t ranks,
                                       index_t slots) {
  plan result(layers, experts, ranks, slots);
  fill_in_order(result, [](index_t, index_t first_slot) { return first_slot; });
  return result;
}

/// Makes that of TensorRT-LLM without a plan: the slots of rank r begin with expert
/// floor(r experts / ranks). Every expert has a slot if all ranks have equally many.
[[nodiscard]] inline plan tensorrt_llm_plan(index_t layers, index_t experts, index_t ranks,
                                            index_t slots) {
  plan result(layers, experts, ranks, slots);
  fill_in_order(result, [=](index_t rank, index_t) { return rank * experts / ranks; });
  return result;
}

}  // namespace examples

// SPDX-License-Identifier: Apache-2.0
// Converts an engine's slot map to its padded inverse, and finds the fault of a wrong map.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>

int main() {
  // [convert]
  // One layer, three experts, two ranks of two slots.
  std::int64_t const map[4] = {0, 1, 2, 0};
  plimsoll::array const physical_to_logical(plimsoll::seq, map, 1, 4);      // [layers, slots]
  auto replica_count = plimsoll::zeros<std::int64_t>(plimsoll::seq, 1, 3);  // [layers, experts]
  auto offsets = plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 4);        // [layers, experts + 1]
  auto lists = plimsoll::zeros<std::int32_t>(plimsoll::seq, 1, 4);          // [layers, slots]
  auto log2phy = plimsoll::zeros<std::int64_t>(plimsoll::seq, 1, 3, 2);  // [layers, experts, width]
  plimsoll::count_replicas(plimsoll::seq, physical_to_logical, replica_count);
  plimsoll::slots_to_replicas(plimsoll::seq, physical_to_logical, offsets, lists);
  plimsoll::replicas_to_padded(plimsoll::seq, {offsets.view(), lists.view()}, log2phy);
  auto const slots = log2phy.to_host();
  for (std::size_t expert = 0; expert < 3; ++expert) {
    std::printf("expert %zu: slots %d %d\n", expert, int(slots[2 * expert]),
                int(slots[2 * expert + 1]));
  }
  // [end]

  // [check]
  // The same counts with a map that puts both replicas of expert 0 on rank 0.
  std::int64_t const wrong[4] = {0, 0, 1, 2};
  auto const placement = plimsoll::copy_placement(
      plimsoll::seq, plimsoll::array(plimsoll::seq, wrong, 1, 4), replica_count, 2);
  try {
    plimsoll::validate(plimsoll::seq, placement.ref(),
                       {.replica_anti_affinity = plimsoll::anti_affinity::rank});
  } catch (plimsoll::invalid_input const& error) {
    std::printf("%s\n", error.what());
  }
  // [end]
}

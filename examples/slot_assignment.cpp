// SPDX-License-Identifier: Apache-2.0
// Divides the slots of two layers among four GPUs: those with one slot more in the first layer have
// one slot less in the second.
#include <cstddef>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <vector>

int main() {
  // [example]
  std::vector<int> const slots{6, 6};  // two layers of four experts, with two more copies each
  auto rank_offsets = plimsoll::zeros<int>(plimsoll::seq, 2, 5);  // [layers, ranks + 1]
  plimsoll::assign_slots(plimsoll::seq, slots, {.on = {.ranks = 4}}, rank_offsets);
  std::vector<int> const first = rank_offsets.to_host();
  // [end]
  for (std::size_t gpu = 0; gpu < 4; ++gpu) {
    int const a = first[gpu + 1] - first[gpu];
    int const b = first[5 + gpu + 1] - first[5 + gpu];
    std::printf("GPU %zu: %d slots in layer 0, %d in layer 1, %d in all\n", gpu, a, b, a + b);
  }
}

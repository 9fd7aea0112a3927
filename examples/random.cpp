// SPDX-License-Identifier: Apache-2.0
// Draws noise for the loads of experts: the same on every rank, without communication.
#include <cstdint>
#include <cstdio>
#include <plimsoll/random.hpp>

int main() {
  // [noise]
  std::uint64_t const seed = 7;
  for (std::uint64_t layer = 0; layer < 2; ++layer) {
    std::printf("layer %d:", static_cast<int>(layer));
    for (std::uint64_t expert = 0; expert < 4; ++expert) {
      std::printf(" %.3f", plimsoll::random::uniform(seed, layer, expert));
    }
    std::printf("\n");
  }
  // [end]
  std::printf("bits %016llx\n",
              static_cast<unsigned long long>(plimsoll::random::bits(seed, 1, 3)));
}

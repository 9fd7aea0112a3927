// SPDX-License-Identifier: Apache-2.0
// call_time LOADS LAYERS EXPERTS SLOTS GROUPS NODES RANKS WIDTH CALLS
// Prints the time of each call of rebalance_experts in C++, in microseconds. LOADS is a file of
// float32.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <plimsoll/execution/omp.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/views.hpp>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 10) {
    return 2;
  }
  long number[8];
  for (int i = 0; i < 8; ++i) {
    number[i] = std::atol(argv[i + 2]);
  }
  auto const [layers, experts, slots, groups, nodes, ranks, width, calls] = number;
  std::vector<float> loads(static_cast<std::size_t>(layers * experts));
  std::ifstream(argv[1], std::ios::binary)
      .read(reinterpret_cast<char*>(loads.data()),
            static_cast<std::streamsize>(loads.size() * sizeof(float)));
  for (long call = 0; call < calls; ++call) {
    auto const start = std::chrono::steady_clock::now();
    // As in Python, the outputs are allocated by every call.
    std::vector<std::int64_t> map(static_cast<std::size_t>(layers * slots));
    std::vector<std::int64_t> inverse(static_cast<std::size_t>(layers * experts * width));
    std::vector<std::int64_t> copies(loads.size());
    plimsoll::rebalance_experts(plimsoll::omp,
                                plimsoll::array_ref(std::as_const(loads), layers, experts), slots,
                                groups, nodes, ranks, plimsoll::array_ref(map, layers, slots),
                                plimsoll::array_ref(inverse, layers, experts, width),
                                plimsoll::array_ref(copies, layers, experts));
    std::printf("%.2f\n",
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                    .count());
  }
}

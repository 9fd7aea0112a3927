// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/slot_assignment.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// Layers of 256 experts with up to `ranks` additional copies. Arguments: layers, ranks.
void slot_assignment(benchmark::State& state) {
  index_t const layers = state.range(0);
  index_t const ranks = state.range(1);
  std::vector<std::int32_t> slots;
  for (index_t layer = 0; layer < layers; ++layer) {
    double const u = plimsoll::random::uniform(1, 0, static_cast<std::uint64_t>(layer));
    slots.push_back(256 + static_cast<std::int32_t>(u * static_cast<double>(ranks)));
  }
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(layers * (ranks + 1)));
  for (auto _ : state) {
    plimsoll::assign_slots(plimsoll::seq, slots, {.on = {.ranks = ranks}},
                           matrix(offsets, layers, ranks + 1));
    benchmark::DoNotOptimize(offsets.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(slot_assignment)
    ->Name("slot_assignment/slot_assignment")
    ->ArgNames({"layers", "ranks"})
    ->Args({58, 64})
    ->Args({58, 1024});

}  // namespace
}  // namespace plimsoll_bench

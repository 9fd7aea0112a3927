// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include "inputs.hpp"

namespace plimsoll_bench { namespace {

// The placement of the goal `eplb`: 58 layers, 256 experts, 320 slots, 64 ranks.
struct maps {
  static constexpr index_t layers = 58, experts = 256, slots = 320, ranks = 64, width = 65;

  std::vector<std::int32_t> map, counts, offsets, lists, padded;
  plimsoll::placement_ref placement;
  plimsoll::replica_lists_ref replicas;
  plimsoll::tensor_ref<std::int32_t> inverse;

  maps()
      : map(layers * slots),
        counts(layers * experts),
        offsets(layers * (experts + 1)),
        lists(layers * slots),
        padded(layers * experts * width),
        placement{matrix(map, layers, slots), matrix(counts, layers, experts), ranks, {}},
        replicas{matrix(offsets, layers, experts + 1), matrix(lists, layers, slots)},
        inverse(padded.data(), layers, experts, width) {
    auto loads = lognormal_loads(layers, experts);
    plimsoll::eplb(plimsoll::seq, matrix(loads, layers, experts), {.on = {.ranks = ranks}},
                   matrix(map, layers, slots), matrix(counts, layers, experts));
    list();
    pad();
  }
  void list() {
    plimsoll::slots_to_replicas(plimsoll::seq, placement.physical_to_logical,
                                matrix(offsets, layers, experts + 1), matrix(lists, layers, slots));
  }
  void pad() { plimsoll::replicas_to_padded(plimsoll::seq, replicas, inverse); }
};

template <class Call>
void run(benchmark::State& state, Call call) {
  maps m;
  for (auto _ : state) {
    call(m);
    benchmark::ClobberMemory();
  }
}

void to_replicas(benchmark::State& state) {
  run(state, [](maps& m) { m.list(); });
}
void to_padded(benchmark::State& state) {
  run(state, [](maps& m) { m.pad(); });
}
/// Eight ranks join, beside validate of the same placement.
void to_more_ranks(benchmark::State& state) {
  std::vector<std::int32_t> source_ranks(maps::ranks + 8, -1);
  std::iota(source_ranks.begin(), source_ranks.end() - 8, 0);
  std::vector<std::int32_t> map(maps::layers * (maps::slots + 40));
  run(state, [&](maps& m) {
    plimsoll::resize_placement(plimsoll::seq, m.placement, source_ranks, {},
                               matrix(map, maps::layers, maps::slots + 40),
                               matrix(m.counts, maps::layers, maps::experts));
  });
}
void validate(benchmark::State& state) {
  run(state, [](maps& m) { plimsoll::validate(plimsoll::seq, m.placement); });
}
void validate_replicas(benchmark::State& state) {
  run(state, [](maps& m) { plimsoll::validate(plimsoll::seq, m.placement, m.replicas); });
}
void validate_padded(benchmark::State& state) {
  run(state, [](maps& m) { plimsoll::validate(plimsoll::seq, m.placement, m.inverse); });
}
BENCHMARK(to_replicas)->Name("placement_maps/slots_to_replicas");
BENCHMARK(to_padded)->Name("placement_maps/replicas_to_padded");
BENCHMARK(to_more_ranks)->Name("placement_maps/resize_placement");
BENCHMARK(validate)->Name("placement_maps/validate");
BENCHMARK(validate_replicas)->Name("placement_maps/validate/replicas");
BENCHMARK(validate_padded)->Name("placement_maps/validate/padded");

}  // namespace
}  // namespace plimsoll_bench

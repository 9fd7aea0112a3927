// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <plimsoll/minmax_lp.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_inputs.cuh"
#include "split_inputs.hpp"

namespace plimsoll_bench { namespace {

/// 58 different instances of `drifted_layer`, in device memory.
struct drifted_model {
  static constexpr index_t layers = 58;
  static constexpr index_t experts = drifted_layer::experts;

  index_t slots;
  device_array<std::int32_t> map;
  device_array<std::int32_t> loads;

  explicit drifted_model(index_t extra_slots)
      : slots(experts + extra_slots),
        map(of_layers(extra_slots, &drifted_layer::map)),
        loads(of_layers(extra_slots, &drifted_layer::now)) {}
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map.data(), layers, slots},
            .replica_count = {nullptr, layers, experts},
            .ranks = drifted_layer::ranks};
  }

 private:
  template <class Member>
  static std::vector<std::int32_t> of_layers(index_t extra_slots, Member member) {
    std::vector<std::int32_t> all;
    for (std::uint64_t seed = 0; seed < layers; ++seed) {
      drifted_layer const layer(extra_slots, seed);
      all.insert(all.end(), (layer.*member).begin(), (layer.*member).end());
    }
    return all;
  }
};

// Solves all layers of a model in one launch, from loads to splits and certificates in device
// memory.
struct split_model {
  drifted_model const& in;
  double tolerance;
  stream work;
  device_array<double> split{static_cast<std::size_t>(drifted_model::layers * in.slots)};
  plimsoll::minmax_lp<plimsoll::gpu_policy> lp{
      plimsoll::gpu(work.get()), in.placement(), {.tolerance = tolerance}};
  replayed solve{work.get(), [this] {
                   constexpr index_t layers = drifted_model::layers;
                   lp.solve(plimsoll::matrix_ref<std::int32_t const>(in.loads.data(), layers,
                                                                     drifted_model::experts),
                            plimsoll::matrix_ref<double>(split.data(), layers, in.slots));
                 }};

  split_model(drifted_model const& model, double gap) : in(model), tolerance(gap) {}
};

template <index_t Extra, int Digits>
void minmax_lp(benchmark::State& state) {
  if (gpu_missing(state)) {
    return;
  }
  static drifted_model const in(Extra);
  static split_model model(in, Digits == 3 ? 1e-3 : 1e-6);
  for (auto _ : state) {
    state.SetIterationTime(model.solve.run());
  }
}
BENCHMARK(minmax_lp<64, 6>)
    ->Name("goal/minmax_lp")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();
BENCHMARK(minmax_lp<64, 3>)
    ->Name("goal/minmax_lp_coarse")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();
BENCHMARK(minmax_lp<256, 6>)
    ->Name("goal/minmax_lp_dense")
    ->Apply(as_goal_timed_by_itself<>)
    ->UseManualTime();

}  // namespace
}  // namespace plimsoll_bench

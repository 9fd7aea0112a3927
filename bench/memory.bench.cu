// SPDX-License-Identifier: Apache-2.0
// The costs of device memory that docs/memory.md describes: calls that take temporaries from a pool
// that releases or keeps its memory, and prepared objects that are destroyed after replays on
// another stream.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/waterline.hpp>

#include <cstdint>
#include <optional>

#include "device_inputs.cuh"
#include "inputs.hpp"

namespace plimsoll_bench { namespace {

using plimsoll::detail::check_cuda;

/// Sets the bytes that the default pool keeps at a synchronization, until it is destroyed.
class kept_bytes {
 public:
  explicit kept_bytes(std::uint64_t bytes) {
    // [keep]
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetDefaultMemPool(&pool_, device), "cudaDeviceGetDefaultMemPool");
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &bytes),
               "cudaMemPoolSetAttribute");
    // [end]
  }
  kept_bytes(kept_bytes const&) = delete;
  kept_bytes& operator=(kept_bytes const&) = delete;
  ~kept_bytes() {
    std::uint64_t none = 0;
    static_cast<void>(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &none));
    static_cast<void>(cudaMemPoolTrimTo(pool_, 0));
  }

 private:
  cudaMemPool_t pool_ = nullptr;
};

void plan(benchmark::State& state, std::uint64_t kept) {
  if (gpu_missing(state)) {
    return;
  }
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  kept_bytes const threshold(kept);
  stream const work;
  device_array<std::int32_t> const loads(lognormal_loads(layers, experts));
  device_array<std::int32_t> const map(layers * slots);
  device_array<std::int32_t> const counts(layers * experts);
  for (auto _ : state) {
    auto certificates = plimsoll::eplb(
        plimsoll::gpu(work.get()),
        plimsoll::matrix_ref<std::int32_t>(loads.data(), layers, experts), {.on = {.ranks = 64}},
        plimsoll::matrix_ref<std::int32_t>(map.data(), layers, slots),
        plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
    benchmark::DoNotOptimize(certificates.data());
  }
}
BENCHMARK_CAPTURE(plan, trims, 0)->Name("memory/eplb/pool_trims")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, keeps, UINT64_MAX)
    ->Name("memory/eplb/pool_keeps")
    ->Unit(benchmark::kMicrosecond);

// Constructs an object on one stream, replays its work on another, and destroys it: the object's
// stream waits for the replay, since memory is freed in the order of that stream only.
void replace(benchmark::State& state, std::uint64_t kept) {
  if (gpu_missing(state)) {
    return;
  }
  using line = plimsoll::waterline<plimsoll::gpu_policy>;
  kept_bytes const threshold(kept);
  step_batch const& b = step_batch::one();
  stream const own;
  stream const other;
  device_array<std::int64_t> const loads(b.loads);
  cudaEvent_t replays_done = nullptr;
  check_cuda(cudaEventCreateWithFlags(&replays_done, cudaEventDisableTiming), "cudaEventCreate");
  std::optional<line> prepared;
  for (auto _ : state) {
    prepared.emplace(plimsoll::gpu(own.get()),
                     plimsoll::waterline_options{.on = {.ranks = step_batch::ranks},
                                                 .slots = step_batch::slots,
                                                 .top_k = step_batch::k,
                                                 .max_tokens = step_batch::tokens});
    state.PauseTiming();
    replayed step(own.get(), [&] {
      prepared->plan(plimsoll::matrix_ref<std::int64_t const>(loads.data(), 2, b.ranks), b.busiest);
    });
    step.launch(other.get());
    state.ResumeTiming();
    // [destroy]
    // The graph was replayed on the stream `other`; the object's policy has the stream `own`.
    check_cuda(cudaEventRecord(replays_done, other.get()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(own.get(), replays_done, 0), "cudaStreamWaitEvent");
    prepared.reset();  // freed on `own`, after the replay
    // [end]
    check_cuda(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
  }
  static_cast<void>(cudaEventDestroy(replays_done));
}
BENCHMARK_CAPTURE(replace, trims, 0)
    ->Name("memory/waterline_replaced/pool_trims")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(replace, keeps, UINT64_MAX)
    ->Name("memory/waterline_replaced/pool_keeps")
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll_bench

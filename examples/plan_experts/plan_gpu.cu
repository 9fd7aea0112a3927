// SPDX-License-Identifier: Apache-2.0
// The part of plan_experts that runs on a GPU.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <plimsoll/error.hpp>

#include "planner.hpp"

namespace examples {
namespace {

void check(cudaError_t code, char const* call) {
  if (code == cudaSuccess) {
    return;
  }
  throw plimsoll::cuda_error(code, "--policy: expected a GPU on which " + std::string(call) +
                                       " succeeds, got " + cudaGetErrorString(code));
}

template <class T>
class device_array {
 public:
  explicit device_array(index_t size) : bytes_(static_cast<std::size_t>(size) * sizeof(T)) {
    check(cudaMalloc(&data_, bytes_), "cudaMalloc");
  }
  device_array(device_array const&) = delete;
  device_array& operator=(device_array const&) = delete;
  ~device_array() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] T* data() const { return static_cast<T*>(data_); }
  void copy_from(T const* host) {
    check(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  void copy_to(T* host) const {
    check(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

class stream {
 public:
  stream() {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { static_cast<void>(cudaStreamDestroy(stream_)); }

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class Load>
planning_time plan_with(loads_ref<Load> loads, plimsoll::eplb_options const& options,
                        plan& result) {
  stream const work;
  device_array<Load> device_loads(result.layers * result.experts);
  device_array<std::int32_t> slots(result.layers * result.slots);
  device_array<std::int32_t> replicas(result.layers * result.experts);
  device_loads.copy_from(loads.data_handle());
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  planning_time const time = time_of([&] {
    plimsoll::eplb(plimsoll::gpu(work.get()),
                   loads_ref<Load>(device_loads.data(), result.layers, result.experts), options,
                   matrix(slots.data(), result.layers, result.slots),
                   matrix(replicas.data(), result.layers, result.experts));
    work.synchronize();
  });
  slots.copy_to(result.physical_to_logical.data());
  replicas.copy_to(result.replica_count.data());
  return time;
}

template <class Load>
planning_time plan_with(steps_ref<Load> loads, plimsoll::craft_options const& options, plan& result,
                        plimsoll::craft_plan& found) {
  stream const work;
  device_array<Load> device_loads(loads.extent(0) * result.layers * result.experts);
  device_array<std::int32_t> slots(result.layers * result.slots);
  device_array<std::int32_t> offsets(result.layers * (result.ranks + 1));
  device_array<std::int32_t> replicas(result.layers * result.experts);
  device_loads.copy_from(loads.data_handle());
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  planning_time const time = time_of([&] {
    found = plimsoll::craft(
        plimsoll::gpu(work.get()),
        steps_ref<Load>(device_loads.data(), loads.extent(0), result.layers, result.experts),
        options, matrix(slots.data(), result.layers, result.slots),
        matrix(offsets.data(), result.layers, result.ranks + 1),
        matrix(replicas.data(), result.layers, result.experts));
    work.synchronize();
  });
  slots.copy_to(result.physical_to_logical.data());
  offsets.copy_to(result.rank_offsets.data());
  replicas.copy_to(result.replica_count.data());
  return time;
}

template <class Load>
planning_time plan_with(steps_ref<Load> loads, plimsoll::gem_options const& options,
                        plimsoll::latency_curves const& curves, plan& result,
                        std::vector<plimsoll::certificate>& found) {
  stream const work;
  index_t const samples = curves.tokens.extent(0);
  index_t const rows = curves.latency.extent(0);
  index_t const speeds = curves.speeds.extent(0);
  device_array<Load> device_loads(loads.extent(0) * result.layers * result.experts);
  device_array<std::int64_t> device_tokens(samples);
  device_array<double> device_latency(rows * samples);
  device_array<double> device_speeds(speeds);
  device_array<std::int32_t> slots(result.layers * result.slots);
  device_array<std::int32_t> replicas(result.layers * result.experts);
  device_loads.copy_from(loads.data_handle());
  device_tokens.copy_from(curves.tokens.data_handle());
  device_latency.copy_from(curves.latency.data_handle());
  plimsoll::latency_curves there{
      {device_tokens.data(), samples}, {device_latency.data(), rows, samples}, curves.dense_until};
  if (speeds > 0) {
    device_speeds.copy_from(curves.speeds.data_handle());
    there.speeds = {device_speeds.data(), speeds};
  }
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  planning_time const time = time_of([&] {
    found = plimsoll::gem(
        plimsoll::gpu(work.get()),
        steps_ref<Load>(device_loads.data(), loads.extent(0), result.layers, result.experts), there,
        options, matrix(slots.data(), result.layers, result.slots),
        matrix(replicas.data(), result.layers, result.experts));
    work.synchronize();
  });
  slots.copy_to(result.physical_to_logical.data());
  replicas.copy_to(result.replica_count.data());
  return time;
}

}  // namespace

planning_time plan_on_gpu(loads_ref<std::int64_t> loads, plimsoll::eplb_options const& options,
                          plan& result) {
  return plan_with(loads, options, result);
}
planning_time plan_on_gpu(loads_ref<double> loads, plimsoll::eplb_options const& options,
                          plan& result) {
  return plan_with(loads, options, result);
}
planning_time plan_on_gpu(steps_ref<std::int64_t> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found) {
  return plan_with(loads, options, result, found);
}
planning_time plan_on_gpu(steps_ref<double> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found) {
  return plan_with(loads, options, result, found);
}
planning_time plan_on_gpu(steps_ref<std::int64_t> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found) {
  return plan_with(loads, options, curves, result, found);
}
planning_time plan_on_gpu(steps_ref<double> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found) {
  return plan_with(loads, options, curves, result, found);
}

}  // namespace examples

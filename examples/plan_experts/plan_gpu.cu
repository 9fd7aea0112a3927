// SPDX-License-Identifier: Apache-2.0
// The part of plan_experts that runs on a GPU.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

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

 private:
  cudaStream_t stream_ = nullptr;
};

/// Returns the elements of a contiguous view.
template <class T, int Rank>
std::span<T> elements(plimsoll::array_ref<T, Rank> const& view) {
  std::size_t size = 1;
  for (index_t const extent : view.extents) {
    size *= static_cast<std::size_t>(extent);
  }
  return {view.data, size};
}

}  // namespace

template <class Load>
planning_time plan_on_gpu(loads_ref<Load> loads, plimsoll::eplb_options const& options,
                          plan& result) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  plimsoll::array const there(policy, elements(loads), loads.extent(0), loads.extent(1));
  return plan_with(policy, there, options, result);
}

template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::craft_options const& options,
                          plan& result, plimsoll::craft_plan& found) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  plimsoll::array const there(policy, elements(loads), loads.extent(0), loads.extent(1),
                              loads.extent(2));
  return plan_with(policy, there, options, result, found);
}

template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::select_planner_options const& options,
                          plan& result, selection& found) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  plimsoll::array const there(policy, elements(loads), loads.extent(0), loads.extent(1),
                              loads.extent(2));
  return plan_with(policy, there, options, result, found);
}

template <class Load>
planning_time plan_on_gpu(steps_ref<Load> loads, plimsoll::gem_options const& options,
                          plimsoll::latency_curves const& curves, plan& result,
                          std::vector<plimsoll::certificate>& found) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  plimsoll::array const there(policy, elements(loads), loads.extent(0), loads.extent(1),
                              loads.extent(2));
  plimsoll::array const tokens(policy, elements(curves.tokens));
  plimsoll::array const latency(policy, elements(curves.latency), curves.latency.extent(0),
                                curves.latency.extent(1));
  plimsoll::array const speeds(policy, elements(curves.speeds));
  plimsoll::latency_curves const curves_there{tokens.view(), latency.view(), curves.dense_until,
                                              speeds.view()};
  return plan_with(policy, there, options, curves_there, result, found);
}

template planning_time plan_on_gpu(loads_ref<std::int64_t>, plimsoll::eplb_options const&, plan&);
template planning_time plan_on_gpu(loads_ref<double>, plimsoll::eplb_options const&, plan&);
template planning_time plan_on_gpu(steps_ref<std::int64_t>, plimsoll::craft_options const&, plan&,
                                   plimsoll::craft_plan&);
template planning_time plan_on_gpu(steps_ref<double>, plimsoll::craft_options const&, plan&,
                                   plimsoll::craft_plan&);
template planning_time plan_on_gpu(steps_ref<std::int64_t>, plimsoll::select_planner_options const&,
                                   plan&, selection&);
template planning_time plan_on_gpu(steps_ref<double>, plimsoll::select_planner_options const&,
                                   plan&, selection&);
template planning_time plan_on_gpu(steps_ref<std::int64_t>, plimsoll::gem_options const&,
                                   plimsoll::latency_curves const&, plan&,
                                   std::vector<plimsoll::certificate>&);
template planning_time plan_on_gpu(steps_ref<double>, plimsoll::gem_options const&,
                                   plimsoll::latency_curves const&, plan&,
                                   std::vector<plimsoll::certificate>&);

}  // namespace examples

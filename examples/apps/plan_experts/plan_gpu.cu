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

/// Copies a matrix, which may be empty, to the device.
template <class Policy, class T>
auto on_device(Policy const& policy, plimsoll::matrix_ref<T const> const& matrix) {
  return plimsoll::array(policy, elements(matrix), matrix.extent(0), matrix.extent(1));
}

/// A placement on the device.
template <class Policy>
class placement_on_device {
 public:
  placement_on_device(Policy const& policy, plimsoll::placement_ref const& from)
      : map_(on_device(policy, from.physical_to_logical)),
        counts_(on_device(policy, from.replica_count)),
        offsets_(on_device(policy, from.rank_offsets)),
        ranks_(from.ranks) {}

  [[nodiscard]] plimsoll::placement_ref ref() const {
    return {map_.view(), counts_.view(), ranks_, offsets_.view()};
  }

 private:
  plimsoll::array<std::int32_t, Policy, 2> map_;
  plimsoll::array<std::int32_t, Policy, 2> counts_;
  plimsoll::array<std::int32_t, Policy, 2> offsets_;
  index_t ranks_;
};

}  // namespace

template <class Load>
planning_time plan_on_gpu(loads_ref<Load> loads, plimsoll::eplb_options const& options,
                          plan& result) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  auto const there = on_device(policy, loads);
  auto const offsets = on_device(policy, options.rank_offsets);
  plimsoll::eplb_options options_there = options;
  options_there.rank_offsets = offsets.view();
  return plan_with(policy, there, options_there, result);
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
  auto const offsets = on_device(policy, options.rank_offsets);
  plimsoll::select_planner_options options_there = options;
  options_there.rank_offsets = offsets.view();
  return plan_with(policy, there, options_there, result, found);
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
  auto const latency = on_device(policy, curves.latency);
  plimsoll::array const speeds(policy, elements(curves.speeds));
  plimsoll::latency_curves const curves_there{tokens.view(), latency.view(), curves.dense_until,
                                              speeds.view()};
  auto const offsets = on_device(policy, options.rank_offsets);
  plimsoll::gem_options options_there = options;
  options_there.rank_offsets = offsets.view();
  return plan_with(policy, there, options_there, curves_there, result, found);
}

template <class Load>
planning_time plan_on_gpu(loads_ref<Load> loads, given_plan const& given, plan& result) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  auto const there = on_device(policy, loads);
  placement_on_device const placement(policy, given.placement);
  return plan_with(policy, there, given_plan{placement.ref(), given.where, given.how}, result);
}

template <class Load>
void plan_on_gpu(steps_ref<Load> loads, migration const& move, plan& result,
                 migration_outcome& found) {
  stream const work;
  auto const policy = plimsoll::gpu(work.get());
  plimsoll::array const there(policy, elements(loads), loads.extent(0), loads.extent(1),
                              loads.extent(2));
  placement_on_device const from(policy, move.from);
  placement_on_device const to(policy, move.to);
  plimsoll::array const speeds(policy, elements(move.alignment.on.speeds));
  migration move_there = move;
  move_there.from = from.ref();
  move_there.to = to.ref();
  move_there.alignment.on.speeds = speeds.view();
  plan_with(policy, there, move_there, result, found);
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
template planning_time plan_on_gpu(loads_ref<std::int64_t>, given_plan const&, plan&);
template planning_time plan_on_gpu(loads_ref<double>, given_plan const&, plan&);
template void plan_on_gpu(steps_ref<std::int64_t>, migration const&, plan&, migration_outcome&);
template void plan_on_gpu(steps_ref<double>, migration const&, plan&, migration_outcome&);

}  // namespace examples

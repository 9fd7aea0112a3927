// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loop over one large array on the device, by CUB.
#pragma once

#include <cub/device/device_for.cuh>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/device/batched.cuh>
#include <plimsoll/detail/device/runtime.cuh>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Calls f(i) for i in [0, n), in any order. A long array fills the device, also if it has too few
/// rows to do so with one block per row. Does not synchronize.
///
/// CUB reads and clears CUDA's last error before and after its launch (CCCL 3.0): an error that
/// earlier work left pending is reported here, without a launch. So only calls that enqueue nothing
/// else use this function.
template <class F>
PLIMSOLL_DETAIL_HIDDEN void for_each_index(device_context const& context, index_t n, F const& f) {
  current_device const device(context);
  device.check();
  check_cuda(cub::DeviceFor::Bulk(n, f, context.stream), "cub::DeviceFor::Bulk");
}

}}}  // namespace plimsoll::detail

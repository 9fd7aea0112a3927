// SPDX-License-Identifier: Apache-2.0
// Part of emulated_device.hpp. A system header, because the pragmas of nvcc are unknown to a host
// compiler, and g++ lets a file silence that in no other way.
#pragma once
#pragma GCC system_header

#include <plimsoll/detail/device/block_team.cuh>
#include <plimsoll/detail/device/warp_team.cuh>

// SPDX-License-Identifier: Apache-2.0
// Part of emulated_device.hpp. This is a system header because host compilers warn about nvcc's
// pragmas, and g++ lets a file silence this warning in no other way.
#pragma once
#pragma GCC system_header

#include <plimsoll/detail/device/block_team.cuh>
#include <plimsoll/detail/device/warp_team.cuh>

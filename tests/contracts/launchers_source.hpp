// SPDX-License-Identifier: Apache-2.0
// Part of cuda_calls.cpp. A system header for the reason that device_teams_source.hpp is one.
#pragma once
#pragma GCC system_header

#define __launch_bounds__(...)
#include <plimsoll/detail/device/batched.cuh>
#include <plimsoll/detail/device/cooperative.cuh>
#undef __launch_bounds__

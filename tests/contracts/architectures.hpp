// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

#include <cstdint>
#include <vector>

// What each of the two shared objects has: one source, compiled for another GPU. Names hold types
// of the library, which must be the same ones in host and CUDA translation units.
#define PLIMSOLL_TEST_DECLARE(architecture)                                                       \
  namespace architectures::architecture {                                                         \
  /* Where this object finds templates of the library that launch kernels. */                     \
  std::vector<std::uintptr_t> addresses();                                                        \
  void sum_steps(plimsoll::gpu_policy const& policy, plimsoll::tensor_ref<std::int32_t const> in, \
                 plimsoll::matrix_ref<std::int64_t> out);                                         \
  }
PLIMSOLL_TEST_DECLARE(sm_80)
PLIMSOLL_TEST_DECLARE(sm_90)
#undef PLIMSOLL_TEST_DECLARE

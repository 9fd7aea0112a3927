// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

#include <cstdint>
#include <vector>

// Functions of each of the two shared objects: one source, compiled for different GPUs. Their
// signatures contain types of the library, which must be the same types in host and CUDA files.
#define PLIMSOLL_TEST_DECLARE(architecture)                                                       \
  namespace architectures::architecture {                                                         \
  /* Returns the addresses of this object's templates that launch kernels. */                     \
  std::vector<std::uintptr_t> addresses();                                                        \
  void sum_steps(plimsoll::gpu_policy const& policy, plimsoll::tensor_ref<std::int32_t const> in, \
                 plimsoll::matrix_ref<std::int64_t> out);                                         \
  }
PLIMSOLL_TEST_DECLARE(sm_80)
PLIMSOLL_TEST_DECLARE(sm_90)
#undef PLIMSOLL_TEST_DECLARE

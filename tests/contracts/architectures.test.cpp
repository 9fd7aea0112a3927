// SPDX-License-Identifier: Apache-2.0
// One program with two shared objects that were built for different GPUs, like two extensions of
// one Python process. The dynamic linker binds templates of equal name to those of the first
// object, whose kernels may not run on the GPU of the second.
#include "architectures.hpp"

#include <doctest/doctest.h>
#include <plimsoll/error.hpp>

#include <cstddef>

TEST_CASE("architectures: shared objects for different GPUs share nothing that launches kernels") {
  auto const of_80 = architectures::sm_80::addresses();
  auto const of_90 = architectures::sm_90::addresses();
  REQUIRE(of_80.size() == of_90.size());
  for (std::size_t i = 0; i < of_80.size(); ++i) {
    CAPTURE(i);
    CHECK(of_80[i] != 0);
    CHECK(of_80[i] != of_90[i]);
  }
}

TEST_CASE("architectures: policies, views and exceptions pass between host and CUDA files") {
  plimsoll::gpu_policy const policy = plimsoll::gpu(nullptr);
  plimsoll::tensor_ref<std::int32_t const> const in(nullptr, 0, 2, 3);
  plimsoll::matrix_ref<std::int64_t> const out(nullptr, 2, 0);
  CHECK_THROWS_AS(architectures::sm_80::sum_steps(policy, in, out), plimsoll::invalid_input);
  CHECK_THROWS_AS(architectures::sm_90::sum_steps(policy, in, out), plimsoll::invalid_input);
}

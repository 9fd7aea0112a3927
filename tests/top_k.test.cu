// SPDX-License-Identifier: Apache-2.0
#include "top_k.cases.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace plimsoll_test {

// CUDA's own conversions, which are independent of Plimsoll's.
template <>
struct stored_as<__half> {
  static __half from(float x) { return __float2half(x); }
  static float to(__half x) { return __half2float(x); }
};
template <>
struct stored_as<__nv_bfloat16> {
  static __nv_bfloat16 from(float x) { return __float2bfloat16(x); }
  static float to(__nv_bfloat16 x) { return __bfloat162float(x); }
};

PLIMSOLL_TEST_CASE("top_k: CUDA's scores of 16 bits", P, PLIMSOLL_POLICIES) {
  check_type<P, __half>();
  check_type<P, __nv_bfloat16>();
}

}  // namespace plimsoll_test

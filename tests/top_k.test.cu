// SPDX-License-Identifier: Apache-2.0
// Tests of top_k under the policies of a CUDA compiler.
#include <plimsoll/views.hpp>

// A view of CUDA's types needs no other header.
static_assert(plimsoll::detail::score_value<__half> &&
              plimsoll::detail::score_value<__nv_bfloat16>);

#include "top_k.cases.hpp"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("top_k: CUDA's scores of 16 bits", P, PLIMSOLL_POLICIES) {
  check_type<P, __half>();
  check_type<P, __nv_bfloat16>();
}

}  // namespace plimsoll_test

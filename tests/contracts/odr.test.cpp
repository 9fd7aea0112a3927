// SPDX-License-Identifier: Apache-2.0
// Two host files include the whole library and are linked with each other and, if
// PLIMSOLL_TEST_NVCC_TU is defined, with a file that nvcc compiled. All must compute the same plan.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include "odr.hpp"

TEST_CASE("host files of one program agree") {
  CHECK(odr::plan_here(plimsoll::seq) == odr::plan_in_other_file());
}

#ifdef PLIMSOLL_TEST_NVCC_TU
TEST_CASE("host and nvcc files of one program agree") {
  CHECK(odr::plan_here(plimsoll::seq) == odr::plan_in_nvcc_file());
}
#endif

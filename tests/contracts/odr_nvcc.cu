// SPDX-License-Identifier: Apache-2.0
#include "odr.hpp"

std::vector<std::int32_t> odr::plan_in_nvcc_file() { return plan_here(plimsoll::seq); }

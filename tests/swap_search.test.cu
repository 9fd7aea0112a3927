// SPDX-License-Identifier: Apache-2.0
// Tests of swap_search under the policies of a CUDA compiler.
#include "swap_search.cases.hpp"

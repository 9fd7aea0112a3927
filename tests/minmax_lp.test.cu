// SPDX-License-Identifier: Apache-2.0
// Tests of minmax_lp under the policies of a CUDA compiler.
#include "minmax_lp.cases.hpp"

// SPDX-License-Identifier: Apache-2.0
// Tests of exact_math under the policies of a CUDA compiler.
#include "exact_math.cases.hpp"

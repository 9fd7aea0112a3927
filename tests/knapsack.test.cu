// SPDX-License-Identifier: Apache-2.0
// Tests of knapsack under the policies of a CUDA compiler.
#include "knapsack.cases.hpp"

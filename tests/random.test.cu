// SPDX-License-Identifier: Apache-2.0
// Tests of random under the policies of a CUDA compiler.
#include "random.cases.hpp"
